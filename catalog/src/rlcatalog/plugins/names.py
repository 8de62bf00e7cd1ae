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
from typing import NamedTuple

from rlcatalog import public_index


def may_claim(kind: str, name: str, distribution: str) -> bool:
    """Return whether a bare name can refer to a distribution's part.

    Args:
        kind: The kind of part, `"config"` for a key, or `"suffix"`.
        name: The name.
        distribution: The distribution.
    """
    owner = public_index.provider_of(kind, name)
    if owner is not None:
        return owner == distribution
    return f"{_word(name)}_".startswith(f"{_word(distribution)}_")


def _word(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).strip("_").lower()


def ways_to_say(what: str, name: str, distributions: Iterable[str]) -> str:
    """Return the message for an unknown bare name, with the addresses that work."""
    addresses = [f"{distribution}/{name}" for distribution in sorted(set(distributions))]
    ways = " or ".join(map(repr, addresses))
    return f"{what} {name!r} needs its distribution's name. Use {ways}."


class KeyNames(NamedTuple):
    """The names of config keys that do not answer to their field's name alone.

    Attributes:
        addresses: Struct → field → `"distribution/key"`, for keys that need their address.
        homeless: Bare key → the distributions that have such a key, if only its address works.
    """

    addresses: dict[type, dict[str, str]]
    homeless: dict[str, list[str]]


def name_keys(structs: Mapping[type, str]) -> KeyNames:
    """Return the names of the config keys.

    Args:
        structs: Config struct → distribution.
    """
    # Key → the distributions that have a key of this name.
    distributions: dict[str, set[str]] = defaultdict(set)
    for struct, distribution in structs.items():
        for key in field_names(struct):
            distributions[key].add(distribution)
    owners = {}
    homeless = {}
    for key, users in distributions.items():
        claimants = [name for name in users if may_claim("config", key, name)]
        if len(claimants) == 1:
            owners[key] = claimants[0]
        else:  # the bare key names none of them
            homeless[key] = sorted(users)
    addresses: dict[type, dict[str, str]] = {}
    for struct, distribution in structs.items():
        for key in field_names(struct):
            if owners.get(key) != distribution:
                address = f"{distribution}/{key}"
                addresses.setdefault(struct, {})[key] = address
    return KeyNames(addresses, homeless)


def field_names(struct: type) -> tuple[str, ...]:
    """Return the names of a config struct's fields."""
    names: tuple[str, ...] = struct.__struct_fields__  # type: ignore[attr-defined]
    return names
