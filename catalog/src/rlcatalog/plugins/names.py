"""The rule of names. It does not depend on the order in which plugins are found.

Every part answers to its address, `distribution/name`. A name alone means the part that the public index lists under
it; where the index has none, the part whose name begins with that of its own distribution, as `acme_net_small` of
`acme-net` does. Other names mean nothing alone. A name that two distributions may claim is an error that gives both
addresses. Config keys, commands and suffixes of files follow the same rule.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rlcatalog.errors import DuplicateNameError
from rlcatalog.plugins import public_index
from rlcatalog.plugins.component import Component


def may_claim(kind: str, name: str, distribution: str) -> bool:
    """Whether a name alone may mean what a distribution calls so.

    Args:
        kind: The kind of component, `"config"` for a key, or `"suffix"`.
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
    """Return the message for a name that means nothing alone, with the addresses that do."""
    addresses = " or ".join(repr(f"{distribution}/{name}") for distribution in sorted(set(distributions)))
    return f"{what} {name!r} means nothing alone. Say {addresses}."


def bare_names(components: Iterable[Component]) -> dict[tuple[str, str], list[Component]]:
    """Return (kind, name) → the components that the name alone may mean: one, or several whose addresses tell."""
    meanings: dict[tuple[str, str], list[Component]] = defaultdict(list)
    for c in components:
        if may_claim(c.kind, c.name, c.distribution):
            meanings[c.kind, c.name].append(c)
    return dict(meanings)


def bare_keys(structs: Mapping[type, str]) -> tuple[dict[type, dict[str, str]], dict[str, list[str]]]:
    """Say how the config keys are called.

    Args:
        structs: Config struct → distribution.

    Returns:
        Struct → field → `"distribution/key"`, where that is how the key is called; and key → distributions, where the
        key alone means nothing.
    """
    holders: dict[str, dict[type, str]] = defaultdict(dict)
    for struct, distribution in structs.items():
        for key in struct.__struct_fields__:  # type: ignore[attr-defined]
            holders[key][struct] = distribution
    renamed: dict[type, dict[str, str]] = defaultdict(dict)
    homeless: dict[str, list[str]] = {}
    for key, users in holders.items():
        bare = {d for d in users.values() if may_claim("config", key, d)}
        if len(bare) != 1:
            homeless[key] = sorted(set(users.values()))
            bare = set()
        for struct, distribution in users.items():
            if distribution not in bare:
                renamed[struct][key] = f"{distribution}/{key}"
    return dict(renamed), homeless


def find_losers(components: Sequence[Component]) -> list[tuple[Component, DuplicateNameError]]:
    """Return the components that claim another's entry in a table of the process, each with why it is left out."""
    claims: dict[tuple[str, str], list[Component]] = defaultdict(list)
    for c in components:
        for entry in c.declaration.entries:
            claims[c.kind, entry].append(c)
    lost: dict[int, tuple[Component, DuplicateNameError]] = {}
    for (kind, entry), rivals in sorted(claims.items()):
        distributions = sorted({c.distribution for c in rivals})
        owner = public_index.provider_of(kind, entry)
        keepers = [d for d in distributions if may_claim(kind, entry, d)] or ([] if owner else distributions)
        for c in rivals:
            if keepers != [c.distribution]:
                text = f"{kind} {c.name!r}: {entry!r} is claimed by {' and '.join(distributions)}"
                if owner is not None:
                    text = f"{kind} {c.name!r}: {entry!r} belongs to {owner}, and {c.distribution} claims it"
                lost.setdefault(id(c), (c, DuplicateNameError(
                    f"{text}. Call yours something else, or disable one: RLCATALOG_DISABLE_PLUGINS={c.distribution}."
                )))  # fmt: skip
    return list(lost.values())
