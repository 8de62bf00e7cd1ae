"""Names and their owners: who keeps a name that several plugins claim. Nothing here depends on an order.

A name is a component's, a config key's, a command's, or one that a declaration enters into a table of the process. It
belongs to the distribution that the public index gives it to, or, unlisted, to the installed one whose own name it
begins with. Whoever claims another's loses the part.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rlcatalog.errors import DuplicateNameError, PluginError
from rlcatalog.plugins import public_index
from rlcatalog.plugins.component import Component
from rlcatalog.plugins.process_wide import ProcessWideSpec


class Owners:
    """Says whose a name is.

    Args:
        installed: The distributions that have plugins, usable or not.
        reserved: Config keys that are taken, with their owner (the kernel's own).
    """

    def __init__(self, installed: Iterable[str], reserved: Mapping[str, str]) -> None:
        self._by_word = {_word(name): name for name in installed}
        self.reserved = reserved

    def of(self, kind: str, name: str) -> str | None:
        """Return the distribution that a name belongs to, or None.

        Args:
            kind: The kind of component, or `"config"` for a key.
            name: The name.
        """
        if kind == "config" and name in self.reserved:
            return self.reserved[name]
        if (listed := public_index.provider_of(kind, name)) is not None:
            return listed
        pieces = _word(name).split("_")
        words = ("_".join(pieces[:count]) for count in range(len(pieces), 0, -1))
        return next((self._by_word[word] for word in words if word in self._by_word), None)

    def refusal(self, kind: str, name: str, claimed_by: str) -> DuplicateNameError | None:
        """Return the error for a distribution that claims a name of another's, or None where it may."""
        owner = self.of(kind, name)
        if owner is None or owner == claimed_by:
            return None
        what = f"config key {name!r}" if kind == "config" else f"{kind} {name!r}"
        return DuplicateNameError(
            f"{what} belongs to {owner}, and {claimed_by} has another one. Begin its name with {_word(claimed_by)!r}."
        )


def _word(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


@dataclass
class Settled:
    """Who provides which name.

    Attributes:
        names: (kind, name) → the one component that the name means.
        contested: (kind, name) → the components of a name that belongs to none of them.
        problems: Components with what is wrong.
        lost: Components that are not provided.
    """

    names: dict[tuple[str, str], Component] = field(default_factory=dict)
    contested: dict[tuple[str, str], list[Component]] = field(default_factory=dict)
    problems: list[tuple[Component, PluginError]] = field(default_factory=list)
    lost: list[Component] = field(default_factory=list)

    def lose(self, component: Component, error: PluginError) -> None:
        """Leave a component out."""
        self.lost.append(component)
        self.problems.append((component, error))


def settle(components: Iterable[Component], owners: Owners) -> Settled:
    """Say who provides which name."""
    groups: dict[tuple[str, str], list[Component]] = defaultdict(list)
    for component in components:
        groups[component.kind, component.name].append(component)
    found = Settled()
    for (kind, name), group in sorted(groups.items()):
        count, claims = Counter(c.distribution for c in group), []
        for c in sorted(group, key=lambda c: c.distribution):
            if count[c.distribution] > 1:  # by two entry points
                found.lose(c, DuplicateNameError(f"{c.distribution} declares {kind} {name!r} twice."))
            elif (refused := owners.refusal(kind, name, c.distribution)) is not None:
                found.lose(c, refused)
            else:
                claims.append(c)
        if len(claims) == 1:
            found.names[kind, name] = claims[0]
        elif claims:
            found.contested[kind, name] = claims
            found.problems += [(c, DuplicateNameError(contest(kind, name, claims))) for c in claims]
    return found


def contest(kind: str, name: str, claims: Sequence[Component]) -> str:
    """Say who claims a name that belongs to nobody, and the ways out."""
    who, full = (sep.join(c.address for c in claims) for sep in (" and ", " or "))
    return f"{kind} {name!r} is claimed by {who} and belongs to none of them. Say {full}."


def settle_entries(components: Sequence[Component], owners: Owners) -> Settled:
    """Find the process-wide declarations that lose, for one of their entries is another's; those left have no rival."""
    found, claims = Settled(), defaultdict(list)
    for c in components:
        assert isinstance(c.declaration, ProcessWideSpec)
        for entry in c.declaration.entries:
            claims[c.kind, entry].append(c)
    for (kind, entry), rivals in sorted(claims.items()):
        distributions, owner = sorted({c.distribution for c in rivals}), owners.of(kind, entry)
        for c in rivals:
            if c.distribution != owner and (owner is not None or len(distributions) > 1) and c not in found.lost:
                text = f"{kind} {c.name!r}: {entry!r} is claimed by {' and '.join(distributions)}"
                if owner is not None:
                    text = f"{kind} {c.name!r}: {entry!r} belongs to {owner}, and {c.distribution} claims it"
                found.lose(c, DuplicateNameError(f"{text}. Call yours something else, or disable one:"
                                                 f" RLCATALOG_DISABLE_PLUGINS={c.distribution}."))  # fmt: skip
    return found


def settle_keys(structs: Mapping[type, str]) -> tuple[dict[type, dict[str, str]], dict[str, list[str]]]:
    """Find the config keys that several distributions claim, none of which owns them.

    Args:
        structs: Config struct → distribution.

    Returns:
        Struct → field → `"distribution/key"`, where that is how the key is called; and key → distributions, where the
        key alone means nothing.
    """
    claims: dict[str, dict[type, str]] = defaultdict(dict)
    for struct, distribution in structs.items():
        for key in struct.__struct_fields__:  # type: ignore[attr-defined]
            claims[key][struct] = distribution
    contested = {key: sorted(set(users.values())) for key, users in claims.items() if len(set(users.values())) > 1}
    renamed: dict[type, dict[str, str]] = defaultdict(dict)
    for key in contested:
        for struct, distribution in claims[key].items():
            renamed[struct][key] = f"{distribution}/{key}"
    return dict(renamed), contested
