"""The rule of choice: who fills a slot.

1. What the config names wins, by a name or by a switch that is on.
2. What the running program registered with a match comes next, at any rank.
3. Otherwise the listed parts are asked, and the best rank wins. Listed are the parts of the public index, and those of
   preferred distributions, which win ties. A part for a class of its own package is asked with them.
4. Only where none of them matches, and only in slots that cannot stay empty, other plugins' parts are asked.

So installing a package never changes what a config builds. A part for a nearer class of the space comes before one of a
better rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rlcatalog.errors import AmbiguousChoiceError, NoMatchError, reason, shown
from rlcatalog.plugins import Component, Match, Rank, Request
from rlcatalog.spaces.action_codecs import package_of

#: Slots that may stay empty.
OPTIONAL = ("memory", "head", "env_wrapper")
#: Slot → the config key that names its part.
KEYS = {
    "preprocessor": "custom_preprocessor", "filter": "observation_filter", "action_dist": "custom_action_dist",
    **dict.fromkeys(("trunk", "memory", "head"), "custom_model"),
}  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """What one candidate said to a request; `rank` is None where it does not match, or was not asked."""

    component: Component
    rank: Rank | None
    why: str


@dataclass(frozen=True)
class Choice:
    """What a slot holds and why.

    Attributes:
        slot: Name of the slot.
        component: The chosen component, or None for a slot left empty.
        why: The reason.
        verdicts: All candidates: the chosen one first, then the others that were asked, then the rest.
    """

    slot: str
    component: Component | None
    why: str
    verdicts: tuple[Verdict, ...] = ()

    def reasons(self, none: str = "none installed") -> str:
        """Return what each candidate said, for messages."""
        return "; ".join(f"{v.component.name}: {v.why}" for v in self.verdicts) or none


def choose(
    slot: str,
    components: Iterable[Component],
    request: Request,
    *,
    named: Component | None = None,
    prefer: Sequence[str] = (),
) -> Choice:
    """Choose for one slot, by the rule above.

    Args:
        slot: Name of the slot.
        components: The candidates.
        request: What is asked.
        named: The component that the config names.
        prefer: Distributions that count as listed and win ties, the most preferred first.

    Raises:
        AmbiguousChoiceError: Two candidates match equally well, or two switches of a slot are on.
        NoMatchError: A switch is on, and its part does not fit.
        PartError: A candidate's match function raises, or returns something else.
    """
    candidates, asked, chosen = list(components), list[Verdict](), None
    on = [c for c in candidates if c.switch is not None and c.declaration.is_on(request.config)]
    if named is not None:  # its match is asked for its rank alone
        chosen = Verdict(named, verdict(named, request).rank, "named in the config")
    elif on:
        chosen = _switched_on(slot, on, request)
    else:
        for tier in _in_order(slot, candidates, request, prefer):
            here = [verdict(c, request) for c in tier]
            asked += here
            if matching := [v for v in here if v.rank is not None]:
                chosen = _best(slot, matching, request, prefer)
                break
    others = sorted((v for v in asked if v is not chosen), key=lambda v: -(v.rank or 0))
    first = [] if chosen is None else [chosen]
    verdicts = (*first, *others, *_unasked(slot, chosen, candidates, [*first, *others]))
    if chosen is None:
        return Choice(slot, None, "nothing matches", verdicts)
    return Choice(slot, chosen.component, chosen.why, verdicts)


def _in_order(
    slot: str, candidates: Sequence[Component], request: Request, prefer: Sequence[str]
) -> list[list[Component]]:
    """Return the candidates in the order in which they are asked: the program's, the listed, in need all others."""
    program, listed, others = list[Component](), list[Component](), list[Component]()
    for c in candidates:
        spec = c.declaration
        # A part without a match waits for its name or its switch, and one of the program's for no class.
        if spec.match is None and not spec.kinds:
            continue
        if c.in_process:
            program.append(c)
        elif c.is_indexed or c.distribution in prefer or _is_at_home(c, request):
            listed.append(c)
        else:
            others.append(c)
    return [program, listed] if slot in OPTIONAL else [program, listed, others]


def _best(slot: str, matching: Sequence[Verdict], request: Request, prefer: Sequence[str]) -> Verdict:
    """Return the nearest of those who match, then the best rank, then the preferred one."""
    if len(matching) == 1:
        return matching[0]
    distances = [_distance(v.component, request) for v in matching]
    near = [v for v, distance in zip(matching, distances, strict=True) if distance == min(distances)]
    rank = max(v.rank or 0 for v in near)
    best = [v for v in near if v.rank == rank]
    for distribution in prefer if len(best) > 1 else ():
        if preferred := [v for v in best if v.component.distribution == distribution]:
            best = preferred
            break
    if len(best) > 1:
        raise _tie(slot, best, request)
    return best[0]


def _distance(component: Component, request: Request) -> int:
    """Return how many of the space's classes stand before one that a part is for; all of them where it names none."""
    space = request.space_for(component.kind)
    distance = space.distance(component.declaration.kinds)
    return len(space.classes) if distance is None else distance


def _is_at_home(component: Component, request: Request) -> bool:
    """Whether a part is for a class of space that its own package defines."""
    space = request.space_for(component.kind)
    own = {package_of(target) for target in component.declaration.targets.values()}
    kinds = component.declaration.kinds
    return any(name in kinds and package_of(name) in own for name in space.classes)


def _switched_on(slot: str, on: Sequence[Component], request: Request) -> Verdict:
    """Return the verdict of the part whose switch is on."""
    if len(on) > 1:
        raise _two_switches(slot, on)
    chosen = verdict(on[0], request)
    if chosen.rank is None:
        switch = str(on[0].switch)
        raise NoMatchError(
            f"{slot}: {switch}={shown(request.config.get(switch))} asks for {on[0].name!r} ({on[0].provider}), which"
            f" does not fit: {chosen.why}. Leave {switch} out of the config."
        )
    return chosen


def _unasked(
    slot: str, chosen: Verdict | None, candidates: Iterable[Component], asked: Sequence[Verdict]
) -> list[Verdict]:
    """Return why each of the other candidates was not asked, and how to name it."""
    known = {id(v.component) for v in asked}
    verdicts = []
    for c in candidates:
        if id(c) in known:
            continue
        switch, key = c.switch, KEYS.get(slot)
        ways = [f"{switch}=True"] if switch else [f"{key}={c.address!r}"] if key else []
        if c.is_third_party and c.declaration.match is not None:
            ways.append(f"RLCATALOG_PREFER_PLUGINS={c.distribution}")
        if switch and c.declaration.match is None:
            why = f"{switch} is not set"
        elif c.declaration.match is None:
            why = "only chosen by name"
        elif chosen is None or slot in OPTIONAL:
            why = "comes in by name or switch alone"
        else:
            why = f"not asked: {chosen.component.name!r} stands in front"
        verdicts.append(
            Verdict(c, None, f"{why}; to choose it: {' or '.join(ways)}" if ways and c.is_third_party else why)
        )
    return verdicts


def repeat(slot: str, component: Component) -> Choice:
    """Return the choice of an earlier lookup again; no candidate is asked."""
    why = "chosen before, when the policy was saved or its run began"
    return Choice(slot, component, why, (Verdict(component, None, why),))


def verdict(component: Component, request: Request) -> Verdict:
    """Ask one candidate.

    Raises:
        PartError: Its match function raises, or returns something else.
    """
    spec, framework = component.declaration, request.framework
    by_framework = framework is not None and spec.targets_allowed is None
    if by_framework and framework not in spec.targets and framework not in component.extensions:
        return Verdict(component, None, f"has no code for framework {framework!r}")
    try:
        answer: Any = spec.judge(request)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise component.fault(f"its match function raised {reason(error)}.") from error
    is_match = type(answer) is Match and type(answer.why) is str
    if is_match and (answer.rank is None or (isinstance(answer.rank, int) and answer.rank in [*Rank])):
        return Verdict(component, None if answer.rank is None else Rank(answer.rank), answer.why)
    raise component.fault(f"its match function returned {shown(answer)} instead of a Match.")


# --- errors ----------------------------------------------------------------------------------------------------------


def _two_switches(slot: str, on: Sequence[Component]) -> AmbiguousChoiceError:
    switches = list(dict.fromkeys(str(c.switch) for c in on))
    names = " and ".join(f"{c.name!r} ({c.provider}: {c.switch} is set)" for c in on)
    way = f"Leave one of {' and '.join(switches)} out of the config" if len(switches) > 1 else (
        "; ".join(_about_plugins(on)) or "Give each a switch of its own")  # fmt: skip
    return AmbiguousChoiceError(f"{slot}: {names} are switched on at once, and there is one {slot}. {way}.")


def _tie(slot: str, best: Sequence[Verdict], request: Request) -> AmbiguousChoiceError:
    space = request.space_for(slot)
    names = " and ".join(f"{v.component.name!r} ({v.component.provider}: {v.why})" for v in best)
    ways = [*_in_config(slot, best, request), *_about_plugins([v.component for v in best])]
    out = f"Ways out: {', or '.join(ways)}." if ways else "Let one of them match with another rank."
    rank = Rank(best[0].rank or 0).name
    return AmbiguousChoiceError(f"{slot}: {names} match {space.describe()} equally well ({rank}). {out}")


def _in_config(slot: str, best: Sequence[Verdict], request: Request) -> list[str]:
    """Return the way to settle a tie in the config; a part inside a space has no key of its own there."""
    name, key = best[0].component.address, KEYS.get(slot)
    if slot == "action_dist" and request.action is not None and request.action.path != "action":
        return [f"name one in the config ({key}={{{request.action.path!r}: {name!r}}})"]
    if slot != "action_dist" and (request.obs.path != "obs" or request.config.get(key or "") is not None):
        return []
    return [f"name one in the config ({key}={name!r})"]


def _about_plugins(best: Sequence[Component]) -> list[str]:
    """Return the ways to settle it by preferring or disabling a plugin; none where one plugin brings all of them."""
    distributions = [c.distribution for c in best]
    single = [name for name in dict.fromkeys(distributions) if name and distributions.count(name) == 1]
    ways = [f"prefer one with RLCATALOG_PREFER_PLUGINS={single[0]}"] if single else []
    if len(best) == 2 and single:
        ways.append(f"disable one with RLCATALOG_DISABLE_PLUGINS={single[-1]}")
    return ways
