"""Names and their owners: who keeps a name that several plugins claim. Nothing here depends on an order.

A name is a component's, a config key's, a command's, or one that a declaration enters into a table of the process. It
belongs to the distribution that the public index gives it to, or, unlisted, to the installed one whose own name it
begins with. Whoever claims another's loses the part, unless it overrides the owner's.
"""

from __future__ import annotations

import re
from collections import defaultdict
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
        prefer: Distributions that keep a name which belongs to nobody, the most preferred first.
    """

    def __init__(self, installed: Iterable[str], reserved: Mapping[str, str], prefer: Sequence[str]) -> None:
        self._by_word = {_word(name): name for name in installed}
        self.reserved, self._prefer = reserved, prefer

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

    def preferred(self, distributions: Iterable[str]) -> str | None:
        """Return the one of several distributions that the user prefers, or None."""
        among = set(distributions)
        return next((name for name in self._prefer if name in among), None)

    def refusal(self, kind: str, name: str, claimed_by: str) -> DuplicateNameError | None:
        """Return the error for a distribution that claims a name of another's, or None where it may."""
        owner = self.of(kind, name)
        if owner is None or owner == claimed_by:
            return None
        what = f"config key {name!r}" if kind == "config" else f"{kind} {name!r}"
        way = "" if kind in ("config", "command") else f", or let it declare overrides='{owner}/{name}'"
        return DuplicateNameError(
            f"{what} belongs to {owner}, and {claimed_by} has another one. Begin its name with"
            f" {_word(claimed_by)!r}{way}."
        )


def _word(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


@dataclass
class Settled:
    """Who provides which name.

    Attributes:
        active: (kind, name) → the one component that the name means.
        contested: (kind, name) → the components of a name that belongs to none of them.
        shadowed: Components found by `distribution/name` alone.
        problems: Components with what is wrong; those among `lost` are not provided at all.
        lost: Components that are not provided.
    """

    active: dict[tuple[str, str], Component] = field(default_factory=dict)
    contested: dict[tuple[str, str], list[Component]] = field(default_factory=dict)
    shadowed: list[Component] = field(default_factory=list)
    problems: list[tuple[Component, PluginError]] = field(default_factory=list)
    lost: list[Component] = field(default_factory=list)

    def lose(self, component: Component, error: PluginError) -> None:
        """Leave a component out."""
        self.lost.append(component)
        self.problems.append((component, error))

    def shadow(self, component: Component, by: str, error: PluginError | None = None) -> None:
        """Leave a component to those who name its distribution."""
        component.shadowed_by = by
        self.shadowed.append(component)
        if error is not None:
            self.problems.append((component, error))


def settle(components: Iterable[Component], owners: Owners) -> Settled:
    """Say who provides which name."""
    groups: dict[tuple[str, str], list[Component]] = defaultdict(list)
    for component in components:
        groups[component.kind, component.name].append(component)
    found = Settled()
    for key, group in sorted(groups.items()):
        _settle_name(key, sorted(group, key=lambda c: c.distribution), owners, found)
    return found


def _settle_name(key: tuple[str, str], group: list[Component], owners: Owners, found: Settled) -> None:
    kind, name = key
    distributions = [c.distribution for c in group]
    for c in [c for c in group if distributions.count(c.distribution) > 1]:  # by two entry points
        found.lose(c, DuplicateNameError(f"{c.distribution} declares {kind} {name!r} twice."))
    group = [c for c in group if distributions.count(c.distribution) == 1]
    claims: list[Component] = []
    for c in group:
        if c.declaration.overrides is None:
            refused = owners.refusal(kind, name, c.distribution)
            claims.append(c) if refused is None else found.lose(c, refused)
    known = {c.address: c for c in claims}
    overriding = {c.address: str(c.declaration.overrides) for c in group if c.declaration.overrides is not None}
    overriders: dict[str, list[Component]] = defaultdict(list)
    for c in group:
        victim = c.declaration.overrides
        if victim in known:
            overriders[str(victim)].append(c)
        elif victim in overriding and victim != c.address:
            found.lose(c, DuplicateNameError(
                f"{kind} {name!r}: {c.address} overrides {victim}, {victim} overrides {overriding[str(victim)]}, and an"
                " override cannot be overridden."
            ))  # fmt: skip
        elif victim is not None:
            refused = owners.refusal(kind, name, str(victim).partition("/")[0])
            if refused is not None and owners.of(kind, name) != c.distribution:
                found.lose(c, refused)
            else:
                claims.append(c)
                text = f"{kind} {name!r} overrides {victim}, and nothing installed provides that."
                found.problems.append((c, DuplicateNameError(text)))
    claims = [_overridden(c, overriders[c.address], owners, found) for c in claims]
    _contend(key, claims, owners, found)


def _overridden(victim: Component, overriders: list[Component], owners: Owners, found: Settled) -> Component:
    """Return who answers to a victim's name: the one that overrides it; itself where several do."""
    if not overriders:
        return victim
    preferred: str | None = overriders[0].distribution
    if len(overriders) > 1 and (preferred := owners.preferred(c.distribution for c in overriders)) is None:
        who = " and ".join(c.address for c in overriders)
        text = f"{who} both override {victim.address}, which stays in its place. {_ways_out(overriders)}"
        for c in overriders:
            found.shadow(c, victim.distribution, DuplicateNameError(text))
        return victim
    winner = next(c for c in overriders if c.distribution == preferred)
    for c in [victim, *(c for c in overriders if c is not winner)]:
        found.shadow(c, winner.distribution)
    return winner


def _contend(key: tuple[str, str], claims: list[Component], owners: Owners, found: Settled) -> None:
    """Enter those who claim one name."""
    if len(claims) > 1 and (preferred := owners.preferred(c.distribution for c in claims)) is not None:
        for c in claims:
            if c.distribution != preferred:
                found.shadow(c, preferred)
        claims = [c for c in claims if c.distribution == preferred]
    if len(claims) == 1:
        found.active[key] = claims[0]
    elif claims:
        found.contested[key] = claims
        found.problems += [(c, DuplicateNameError(contest(*key, claims))) for c in claims]


def contest(kind: str, name: str, claims: Sequence[Component]) -> str:
    """Say who claims a name that belongs to nobody, and the ways out."""
    who, full = (sep.join(c.address for c in claims) for sep in (" and ", " or "))
    return f"{kind} {name!r} is claimed by {who} and belongs to none of them. Say {full}; {_ways_out(claims)}"


def _ways_out(claims: Sequence[Component]) -> str:
    first, *_, last = (c.distribution for c in claims)
    return f"put one first with RLCATALOG_PREFER_PLUGINS={first}, or disable one with RLCATALOG_DISABLE_PLUGINS={last}."


def settle_entries(components: Sequence[Component], owners: Owners) -> Settled:
    """Find the process-wide declarations that lose, for one of their entries is another's; those left have no rival."""
    found, claims = Settled(), defaultdict(list)
    for c in components:
        assert isinstance(c.declaration, ProcessWideSpec)
        for entry in c.declaration.entries:
            claims[c.kind, entry].append(c)
    for (kind, entry), rivals in sorted(claims.items()):
        distributions = sorted({c.distribution for c in rivals})
        keeper = owners.of(kind, entry)
        if keeper is None and len(distributions) > 1:
            keeper = owners.preferred(distributions) or ""
        for c in rivals:
            if keeper not in (None, c.distribution) and c not in found.lost:
                text = f"{kind} {c.name!r}: {entry!r} is claimed by {' and '.join(distributions)}"
                if keeper:
                    text = f"{kind} {c.name!r}: {entry!r} belongs to {keeper}, and {c.distribution} claims it"
                found.lose(c, DuplicateNameError(f"{text}. Call yours something else, or disable one:"
                                                 f" RLCATALOG_DISABLE_PLUGINS={c.distribution}."))  # fmt: skip
    return found


def settle_keys(structs: Mapping[type, str], owners: Owners) -> tuple[dict[type, dict[str, str]], dict[str, list[str]]]:
    """Find the config keys that several distributions claim, none of which owns them.

    Args:
        structs: Config struct → distribution.
        owners: Who is preferred.

    Returns:
        Struct → field → `"distribution/key"`, where that is how the key is called; and key → distributions, where the
        key alone means nothing.
    """
    claims: dict[str, dict[type, str]] = defaultdict(dict)
    for struct, distribution in structs.items():
        for key in struct.__struct_fields__:  # type: ignore[attr-defined]
            claims[key][struct] = distribution
    renamed: dict[type, dict[str, str]] = defaultdict(dict)
    contested: dict[str, list[str]] = {}
    for key, users in claims.items():
        distributions = sorted(set(users.values()))
        if len(distributions) > 1:
            preferred = owners.preferred(distributions)
            for struct, distribution in users.items():
                if distribution != preferred:
                    renamed[struct][key] = f"{distribution}/{key}"
            if preferred is None:
                contested[key] = distributions
    return dict(renamed), contested
