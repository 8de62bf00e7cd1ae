"""Selection rule: which component fills a slot. The first step that finds a component decides.

1. The component that the config names, by its name or by a switch that is on.
2. A matching component that the running program registered with `match` or `kinds`, regardless of
  its rank.
3. The listed component with the best rank. Listed components are the ones in the public index and
   the ones from preferred distributions, which win ties. A component for a space class that its
   package defines competes with them.
4. The best rank of all other components, only in slots that cannot stay empty.

Therefore, installing an unlisted package changes nothing that listed components build. A component
for a more derived space class takes precedence over one with a better rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from rlcatalog.errors import AmbiguousChoiceError, NoMatchError, reason, shown
from rlcatalog.plugins import Component, Match, Rank, Request
from rlcatalog.spaces.action_codecs import package_of

#: Slots of the model that can stay empty.
OPTIONAL = ("memory", "head")
#: Slot → the config key that names its part.
KEYS = {
    "preprocessor": "custom_preprocessor",
    "filter": "observation_filter",
    "action_dist": "custom_action_dist",
    **dict.fromkeys(("trunk", "memory", "head"), "custom_model"),
}


#: A candidate and its answer to a request, or the reason why it was not considered.
Verdict = tuple[Component, Match]


class Choice(NamedTuple):
    """Component chosen for a slot, with the reason.

    Attributes:
        component: The chosen component, or None for an empty slot.
        why: The reason.
        verdicts: All candidates with their answers: the chosen one first, then the others
            considered, then those not considered.
    """

    component: Component | None
    why: str
    verdicts: tuple[Verdict, ...] = ()

    def reasons(self, none: str = "none installed") -> str:
        """Return each candidate's answer, for error messages."""
        return (
            "; ".join(f"{component.name}: {answer.why}" for component, answer in self.verdicts)
            or none
        )


def choose(
    slot: str,
    components: Iterable[Component],
    request: Request,
    *,
    named: Component | None = None,
    prefer: Sequence[str] = (),
) -> Choice:
    """Choose a component for one slot, by this module's selection rule.

    Args:
        slot: Name of the slot.
        components: The candidates.
        request: The request.
        named: The component that the config names.
        prefer: Distributions that count as listed and win ties, most preferred first.

    Raises:
        AmbiguousChoiceError: Two candidates match equally well, or two of a slot's switches are on.
        NoMatchError: A switch is on, but its component does not fit.
        PartError: A candidate's match function raises, or does not return a Match.
    """
    candidates = list(components)
    asked: list[Verdict] = []
    component: Component | None = None
    why = "nothing matches"
    on = [c for c in candidates if c.switch is not None and c.declaration.is_on(request.config)]
    if named is not None:
        component, why = named, "named in the config"
        asked = [(named, verdict(named, request))]  # only to show its answer
    elif on:
        component, match = _switched_on(slot, on, request)
        why, asked = match.why, [(component, match)]
    else:
        for tier in filter(None, _in_order(slot, candidates, request, prefer)):
            answers = [(c, verdict(c, request)) for c in tier]
            asked += answers
            if matching := [answer for answer in answers if answer[1].rank is not None]:
                component, match = _best(slot, matching, request, prefer)
                why = match.why
                break
    asked.sort(key=lambda v: (v[0] is not component, -(v[1].rank or 0)))
    return Choice(component, why, (*asked, *_unasked(slot, component, candidates, asked)))


def _in_order(
    slot: str, candidates: Sequence[Component], request: Request, prefer: Sequence[str]
) -> list[list[Component]]:
    """Return the candidates by step: registered ones, listed ones, and all others if the slot
    cannot stay empty.
    """
    steps: list[list[Component]] = [[], [], []]
    for c in candidates:
        # Without a match and kinds, a part needs its name or its switch.
        if c.declaration.match is None and not c.declaration.kinds:
            continue
        is_listed = c.is_indexed or c.distribution in prefer or _is_at_home(c, request)
        steps[0 if c.in_process else 1 if is_listed else 2].append(c)
    return steps[:2] if slot in OPTIONAL else steps


def _best(
    slot: str, matching: Sequence[tuple[Component, Match]], request: Request, prefer: Sequence[str]
) -> tuple[Component, Match]:
    """Return the best match: by the nearest space class, then by rank, then by preference."""
    if len(matching) == 1:
        return matching[0]
    distances = [_distance(c, request) for c, _ in matching]
    near = [
        v for v, distance in zip(matching, distances, strict=True) if distance == min(distances)
    ]
    rank = max(match.rank for _, match in near if match.rank is not None)
    best = [(c, match) for c, match in near if match.rank == rank]
    for distribution in prefer:
        if preferred := [(c, match) for c, match in best if c.distribution == distribution]:
            best = preferred
            break
    if len(best) > 1:
        raise _tie(slot, best, request)
    return best[0]


def _distance(component: Component, request: Request) -> int:
    """Return how many of the space's classes precede the first of the component's kinds; all of
    them if it has none.
    """
    space = request.space_for(component.kind)
    distance = space.distance(component.declaration.kinds)
    return len(space.classes) if distance is None else distance


def _is_at_home(component: Component, request: Request) -> bool:
    """Return whether a component is for a space class that the same package defines."""
    space = request.space_for(component.kind)
    own = {package_of(target) for target in component.declaration.targets.values()}
    kinds = component.declaration.kinds
    return any(name in kinds and package_of(name) in own for name in space.classes)


def _switched_on(slot: str, on: Sequence[Component], request: Request) -> tuple[Component, Match]:
    """Return the component whose switch is on, and its match."""
    if len(on) > 1:
        raise _two_switches(slot, on)
    component, answer = on[0], verdict(on[0], request)
    if answer.rank is None:
        switch = str(component.switch)
        raise NoMatchError(
            f"{slot}: {switch}={shown(request.config.get(switch))} selects {component.name!r}"
            f" ({component.provider}), which does not fit: {answer.why}. Remove {switch} from the"
            " config."
        )
    return component, answer


def _unasked(
    slot: str, chosen: Component | None, candidates: Iterable[Component], asked: Sequence[Verdict]
) -> Iterator[Verdict]:
    """Yield, for each of the other candidates, why it was not considered and how to choose it by
    name.
    """
    known = {id(component) for component, _ in asked}
    for c in candidates:
        if id(c) in known:
            continue
        switch = c.switch
        way = f"{switch}=True" if switch else f"{KEYS[slot]}={c.address!r}"
        # Because of its name or its switch.
        waits = c.declaration.match is None and not c.declaration.kinds
        if not waits:
            way += f" or RLCATALOG_PREFER_PLUGINS={c.distribution}"
        if waits:
            why = f"{switch} is not set" if switch else "only chosen by name"
        elif chosen is None or slot in OPTIONAL:
            why = "is only selected by name or switch"
        else:
            why = f"not considered: {chosen.name!r} comes first"
        yield c, Match(None, f"{why}; to choose it: {way}" if c.is_third_party else why)


def verdict(component: Component, request: Request) -> Match:
    """Return one candidate's answer.

    Raises:
        PartError: The component's match function raises, or does not return a Match.
    """
    spec, framework = component.declaration, request.framework
    by_framework = framework is not None and spec.targets_allowed is None
    if by_framework and framework not in spec.targets and framework not in component.extensions:
        return Match(None, f"has no code for framework {framework!r}")
    try:
        answer: Any = spec.judge(request)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise component.fault(f"its match function raised {reason(error)}.") from error
    if type(answer) is Match and type(answer.why) is str:
        if answer.rank is None or type(answer.rank) is Rank:
            return answer
        if isinstance(answer.rank, int) and answer.rank in [*Rank]:
            return Match(Rank(answer.rank), answer.why)
    raise component.fault(f"its match function returned {shown(answer)} instead of a Match.")


# --- errors ---------------------------------------------------------------------------------------


def _two_switches(slot: str, on: Sequence[Component]) -> AmbiguousChoiceError:
    switches = list(dict.fromkeys(str(c.switch) for c in on))
    names = " and ".join(f"{c.name!r} ({c.provider}: {c.switch} is set)" for c in on)
    packages = list(dict.fromkeys(c.distribution for c in on if c.is_third_party))
    if len(switches) > 1:
        way = f"Remove one of {' and '.join(switches)} from the config"
    elif packages and len({c.distribution for c in on}) > 1:
        way = f"Disable one with RLCATALOG_DISABLE_PLUGINS={packages[-1]}"
    else:
        way = "Give each a separate switch"
    return AmbiguousChoiceError(
        f"{slot}: {names} are switched on together, but there is only one {slot}. {way}."
    )


def _tie(
    slot: str, best: Sequence[tuple[Component, Match]], request: Request
) -> AmbiguousChoiceError:
    components = [c for c, _ in best]
    names = " and ".join(f"{c.name!r} ({c.provider}: {match.why})" for c, match in best)
    ways = [*_in_config(slot, components[0], request), *_about_plugins(components)]
    out = (
        f"Options: {', or '.join(ways)}."
        if ways
        else "Let one of them match with a different rank."
    )
    space, rank = request.space_for(slot).describe(), best[0][1].rank
    assert rank is not None  # these parts match
    return AmbiguousChoiceError(f"{slot}: {names} match {space} equally well ({rank.name}). {out}")


def _in_config(slot: str, component: Component, request: Request) -> list[str]:
    """Return how to resolve a tie in the config; components for subspaces have no config key."""
    name, key, path = component.address, KEYS[slot], request.space_for(slot).path
    if slot == "action_dist" and path != "action":
        return [f"name one in the config ({key}={{{path!r}: {name!r}}})"]
    if slot != "action_dist" and (path != "obs" or request.config.get(key) is not None):
        return []
    return [f"name one in the config ({key}={name!r})"]


def _about_plugins(best: Sequence[Component]) -> list[str]:
    """Return how to resolve a tie by preferring or disabling a plugin; empty if one plugin provides
    all of them.
    """
    distributions = [c.distribution for c in best]
    single = [
        name for name in dict.fromkeys(distributions) if name and distributions.count(name) == 1
    ]
    ways = [f"prefer one with RLCATALOG_PREFER_PLUGINS={single[0]}"] if single else []
    if len(best) == 2 and single:
        ways.append(f"disable one with RLCATALOG_DISABLE_PLUGINS={single[-1]}")
    return ways
