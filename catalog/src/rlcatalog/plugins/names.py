"""Naming rule, which does not depend on the order in which plugins are found.

Every part has an address, `distribution/name`. A bare name refers to the part that the
public index lists under it. If there is none, it refers to the part whose name starts with its
distribution's name, such as `acme_net_small` from `acme-net`. Other bare names are errors. A name
that two distributions can claim is an error that gives both addresses. Config keys, commands and
file suffixes follow the same rule.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from rlcatalog import public_index


def may_claim(kind: str, name: str, distribution: str) -> bool:
    """Return whether a bare name can refer to a distribution's part.

    Args:
        kind: The kind of part, `"config"` for a key, or `"suffix"`.
        name: The name.
        distribution: The distribution.
    """
    if (owner := public_index.provider_of(kind, name)) is not None:
        return owner == distribution
    return f"{_word(name)}_".startswith(f"{_word(distribution)}_")


def _word(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).strip("_").lower()


def ways_to_say(what: str, name: str, distributions: Iterable[str]) -> str:
    """Return the message for an unknown bare name, with the addresses that work."""
    addresses = " or ".join(
        repr(f"{distribution}/{name}") for distribution in sorted(set(distributions))
    )
    return f"{what} {name!r} needs its distribution's name. Use {addresses}."


def bare_keys(
    structs: Mapping[type, str],
) -> tuple[dict[type, dict[str, str]], dict[str, list[str]]]:
    """Return the names of the config keys.

    Args:
        structs: Config struct → distribution.

    Returns:
        Struct → field → `"distribution/key"`, for keys that need their address; and bare key → the
        distributions that have such a key.
    """
    fields: dict[type, tuple[str, ...]] = {s: s.__struct_fields__ for s in structs}  # type: ignore[attr-defined]
    users: dict[str, set[str]] = defaultdict(set)
    for struct, distribution in structs.items():
        for key in fields[struct]:
            users[key].add(distribution)
    owners = {
        key: [d for d in distributions if may_claim("config", key, d)]
        for key, distributions in users.items()
    }
    homeless = {key: sorted(users[key]) for key, bare in owners.items() if len(bare) != 1}
    renamed = {
        struct: {
            key: f"{d}/{key}" for key in fields[struct] if key in homeless or d not in owners[key]
        }
        for struct, d in structs.items()
    }
    return {struct: names for struct, names in renamed.items() if names}, homeless
