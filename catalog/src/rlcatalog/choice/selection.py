"""Selection rule: which part fills a slot. The first step that finds a part decides.

1. The part that the config names, by its name or by a switch that is on.
2. A matching part that the running program registered with `match` or `kinds`, regardless of
  its rank.
3. The listed part with the best rank. Listed parts are the ones in the public index and
   the ones from preferred distributions, which win ties. A part for a space class that its
   package defines competes with them.
4. The best rank of all other parts, only in slots that cannot stay empty.

Therefore, installing an unlisted package changes nothing that listed parts build. A part
for a more derived space class takes precedence over one with a better rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from rlcatalog.errors import AmbiguousChoiceError, NoMatchError, reason, shown
from rlcatalog.plugins import Match, Part, Rank, Request
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
Verdict = tuple[Part, Match]


class Choice(NamedTuple):
    """Part chosen for a slot, with the reason.

    Attributes:
        part: The chosen part, or None for an empty slot.
        why: The reason.
        verdicts: All candidates with their answers: the chosen one first, then the others
            considered, then those not considered.
    """

    part: Part | None
    why: str
    verdicts: tuple[Verdict, ...] = ()

    def reasons(self, none: str = "none installed") -> str:
        """Return each candidate's answer, for error messages."""
        return "; ".join(f"{part.name}: {answer.why}" for part, answer in self.verdicts) or none


def choose(
    slot: str,
    parts: Iterable[Part],
    request: Request,
    *,
    named: Part | None = None,
    prefer: Sequence[str] = (),
) -> Choice:
    """Choose a part for one slot, by this module's selection rule.

    Args:
        slot: Name of the slot.
        parts: The candidates.
        request: The request.
        named: The part that the config names.
        prefer: Distributions that count as listed and win ties, most preferred first.

    Raises:
        AmbiguousChoiceError: Two candidates match equally well, or two of a slot's switches are on.
        NoMatchError: A switch is on, but its part does not fit.
        PartError: A candidate's match function raises, or does not return a Match.
    """
    candidates = list(parts)
    asked: list[Verdict] = []
    part: Part | None = None
    why = "nothing matches"
    on = [c for c in candidates if c.switch is not None and c.declaration.is_on(request.config)]
    if named is not None:
        part, why = named, "named in the config"
        asked = [(named, verdict(named, request))]  # only to show its answer
    elif on:
        part, match = _switched_on(slot, on, request)
        why, asked = match.why, [(part, match)]
    else:
        for tier in filter(None, _in_order(slot, candidates, request, prefer)):
            answers = [(c, verdict(c, request)) for c in tier]
            asked += answers
            if matching := [answer for answer in answers if answer[1].rank is not None]:
                part, match = _best(slot, matching, request, prefer)
                why = match.why
                break
    asked.sort(key=lambda v: (v[0] is not part, -(v[1].rank or 0)))
    return Choice(part, why, (*asked, *_unasked(slot, part, candidates, asked)))


def _in_order(
    slot: str, candidates: Sequence[Part], request: Request, prefer: Sequence[str]
) -> list[list[Part]]:
    """Return the candidates by step: registered ones, listed ones, and all others if the slot
    cannot stay empty.
    """
    steps: list[list[Part]] = [[], [], []]
    for c in candidates:
        # Without a match and kinds, a part needs its name or its switch.
        if c.declaration.match is None and not c.declaration.kinds:
            continue
        is_listed = c.is_indexed or c.distribution in prefer or _is_at_home(c, request)
        steps[0 if c.in_process else 1 if is_listed else 2].append(c)
    return steps[:2] if slot in OPTIONAL else steps


def _best(
    slot: str, matching: Sequence[tuple[Part, Match]], request: Request, prefer: Sequence[str]
) -> tuple[Part, Match]:
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


def _distance(part: Part, request: Request) -> int:
    """Return how many of the space's classes precede the first of the part's kinds; all of
    them if it has none.
    """
    space = request.space_for(part.kind)
    distance = space.distance(part.declaration.kinds)
    return len(space.classes) if distance is None else distance


def _is_at_home(part: Part, request: Request) -> bool:
    """Return whether a part is for a space class that the same package defines."""
    space = request.space_for(part.kind)
    own = {package_of(target) for target in part.declaration.targets.values()}
    kinds = part.declaration.kinds
    return any(name in kinds and package_of(name) in own for name in space.classes)


def _switched_on(slot: str, on: Sequence[Part], request: Request) -> tuple[Part, Match]:
    """Return the part whose switch is on, and its match."""
    if len(on) > 1:
        raise _two_switches(slot, on)
    part, answer = on[0], verdict(on[0], request)
    if answer.rank is None:
        switch = str(part.switch)
        raise NoMatchError(
            f"{slot}: {switch}={shown(request.config.get(switch))} selects {part.name!r}"
            f" ({part.provider}), which does not fit: {answer.why}. Remove {switch} from the"
            " config."
        )
    return part, answer


def _unasked(
    slot: str, chosen: Part | None, candidates: Iterable[Part], asked: Sequence[Verdict]
) -> Iterator[Verdict]:
    """Yield, for each of the other candidates, why it was not considered and how to choose it by
    name.
    """
    known = {id(part) for part, _ in asked}
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


def verdict(part: Part, request: Request) -> Match:
    """Return one candidate's answer.

    Raises:
        PartError: The part's match function raises, or does not return a Match.
    """
    spec, framework = part.declaration, request.framework
    by_framework = framework is not None and spec.targets_allowed is None
    if by_framework and framework not in spec.targets and framework not in part.extensions:
        return Match(None, f"has no code for framework {framework!r}")
    try:
        answer: Any = spec.judge(request)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise part.fault(f"its match function raised {reason(error)}.") from error
    if type(answer) is Match and type(answer.why) is str:
        if answer.rank is None or type(answer.rank) is Rank:
            return answer
        if isinstance(answer.rank, int) and answer.rank in [*Rank]:
            return Match(Rank(answer.rank), answer.why)
    raise part.fault(f"its match function returned {shown(answer)} instead of a Match.")


# --- errors ---------------------------------------------------------------------------------------


def _two_switches(slot: str, on: Sequence[Part]) -> AmbiguousChoiceError:
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


def _tie(slot: str, best: Sequence[tuple[Part, Match]], request: Request) -> AmbiguousChoiceError:
    parts = [c for c, _ in best]
    names = " and ".join(f"{c.name!r} ({c.provider}: {match.why})" for c, match in best)
    ways = [*_in_config(slot, parts[0], request), *_about_plugins(parts)]
    out = (
        f"Options: {', or '.join(ways)}."
        if ways
        else "Let one of them match with a different rank."
    )
    space, rank = request.space_for(slot).describe(), best[0][1].rank
    assert rank is not None  # these parts match
    return AmbiguousChoiceError(f"{slot}: {names} match {space} equally well ({rank.name}). {out}")


def _in_config(slot: str, part: Part, request: Request) -> list[str]:
    """Return how to resolve a tie in the config; parts for subspaces have no config key."""
    name, key, path = part.address, KEYS[slot], request.space_for(slot).path
    if slot == "action_dist" and path != "action":
        return [f"name one in the config ({key}={{{path!r}: {name!r}}})"]
    if slot != "action_dist" and (path != "obs" or request.config.get(key) is not None):
        return []
    return [f"name one in the config ({key}={name!r})"]


def _about_plugins(best: Sequence[Part]) -> list[str]:
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
