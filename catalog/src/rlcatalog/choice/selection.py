"""Selection rule: which part fills a slot. The first step that finds a part decides.

1. The part that the config names, by its name or by a switch that is on. If it does not fit, this
  is an error: no other part takes its place. Two keys that choose different parts are an error.
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

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from rlcatalog.errors import (
    AmbiguousChoiceError,
    CatalogError,
    NoMatchError,
    UnsupportedSpaceError,
    reason,
    shown,
)
from rlcatalog.plugins import Match, Part, Rank, Request
from rlcatalog.spaces.action_codecs import package_of

#: Slots of the model that can stay empty.
OPTIONAL = ("memory", "head")
#: Slot → the config key that names its part.
KEYS = {
    "preprocessor": "custom_preprocessor",
    "filter": "observation_filter",
    "action_dist": "custom_action_dist",
    "memory": "memory",
    **dict.fromkeys(("trunk", "head"), "custom_model"),
}
#: The reason for a choice that the config makes by name.
_NAMED = "named in the config"
#: What messages call a slot, if not by its name.
_NOUNS = {"action_dist": "action distribution"}


class Verdict(NamedTuple):
    """A candidate and its answer to a request, or the reason why it was not considered."""

    part: Part
    match: Match


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
        if not self.verdicts:
            return none
        return "; ".join(f"{part.name}: {match.why}" for part, match in self.verdicts)


def choose(
    slot: str,
    parts: Iterable[Part],
    request: Request,
    *,
    named: Part | None = None,
    named_by: str | None = None,
    prefer: Sequence[str] = (),
) -> Choice:
    """Choose a part for one slot, by this module's selection rule.

    Args:
        slot: Name of the slot.
        parts: The candidates.
        request: The request.
        named: The part that the config names.
        named_by: The config key that names it. If None, it may be named beside the switch of
            another part.
        prefer: Distributions that count as listed and win ties, most preferred first.

    Raises:
        AmbiguousChoiceError: Two candidates match equally well, two of a slot's switches are on, or
            a switch selects another part than the named one.
        NoMatchError: The part that the config names, or whose switch is on, does not fit.
        UnsupportedSpaceError: The same, for a preprocessor or a distribution that is named.
        PartError: A candidate's match function raises, or does not return a Match.
    """
    candidates = list(parts)
    switched_on = [part for part in candidates if part.declaration.is_on(request.config)]
    if named is not None:
        if named_by is not None:
            _refuse_other_switches(slot, named, named_by, switched_on, request)
        answer = _answer_of_named(slot, named, request)
        return _choice(slot, named, _NAMED, [answer], candidates, request)
    if switched_on:
        best = _match_of_switch(slot, switched_on, request)
        return _choice(slot, best.part, best.match.why, [best], candidates, request)
    verdicts = []
    for group in _groups(slot, candidates, request, prefer):
        answers = [Verdict(part, match_of(part, request)) for part in group]
        verdicts += answers
        matches = [answer for answer in answers if answer.match.rank is not None]
        if matches:
            best = _best(slot, matches, request, prefer)
            return _choice(slot, best.part, best.match.why, verdicts, candidates, request)
    return _choice(
        slot,
        part=None,
        why="nothing matches",
        verdicts=verdicts,
        candidates=candidates,
        request=request,
    )


def _choice(
    slot: str,
    part: Part | None,
    why: str,
    verdicts: list[Verdict],
    candidates: Iterable[Part],
    request: Request,
) -> Choice:
    """Return the choice of a part: its answer comes first, then the others that were considered by
    their rank, then the candidates that were not.
    """

    def place(answer: Verdict) -> tuple[bool, int]:
        rank = answer.match.rank or 0
        return answer.part is not part, -rank

    verdicts.sort(key=place)
    others = _not_considered(slot, part, candidates, verdicts, request)
    return Choice(part, why, (*verdicts, *others))


def _groups(
    slot: str, candidates: Sequence[Part], request: Request, prefer: Sequence[str]
) -> list[list[Part]]:
    """Return the candidates in the order in which they are asked: registered ones, listed ones, and
    all others if the slot cannot stay empty.
    """
    registered = []
    listed = []
    others = []
    for part in candidates:
        if _needs_name_or_switch(part):
            continue
        if part.in_process:  # by the running program
            registered.append(part)
        elif (
            part.is_indexed
            or part.distribution in prefer
            or _is_from_package_of_space(part, request)
        ):
            listed.append(part)
        else:
            others.append(part)
    if slot in OPTIONAL:
        return [registered, listed]
    return [registered, listed, others]


def _needs_name_or_switch(part: Part) -> bool:
    """Return whether a part is only chosen by its name or its switch."""
    return part.declaration.match is None and not part.declaration.kinds


def _best(
    slot: str, matches: Sequence[Verdict], request: Request, prefer: Sequence[str]
) -> Verdict:
    """Return the best match: by the nearest space class, then by rank, then by preference."""
    if len(matches) == 1:
        return matches[0]
    distances = [_distance(answer.part, request) for answer in matches]
    nearest = min(distances)
    best_rank = Rank.FALLBACK  # the lowest
    for answer, distance in zip(matches, distances, strict=True):
        if distance == nearest and answer.match.rank is not None:
            best_rank = max(best_rank, answer.match.rank)
    best = []
    for answer, distance in zip(matches, distances, strict=True):
        if distance == nearest and answer.match.rank == best_rank:
            best.append(answer)
    for distribution in prefer:
        preferred = [answer for answer in best if answer.part.distribution == distribution]
        if preferred:
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
    if distance is None:
        return len(space.classes)
    return distance


def _is_from_package_of_space(part: Part, request: Request) -> bool:
    """Return whether a part is for a space class that the same package defines."""
    space = request.space_for(part.kind)
    packages = {package_of(target) for target in part.declaration.targets.values()}
    kinds = part.declaration.kinds
    return any(name in kinds and package_of(name) in packages for name in space.classes)


def _answer_of_named(slot: str, part: Part, request: Request) -> Verdict:
    """Return the answer of the part that the config names.

    Raises:
        UnsupportedSpaceError: It is a preprocessor or a distribution, and does not fit the space.
        NoMatchError: It is another part, and does not fit.
    """
    if request.is_repeated:
        return chosen_before(part)
    match = match_if_named(part, request)
    if not refuses(part, match, request):
        return Verdict(part, match)
    space = request.space_for(part.kind)
    noun = _NOUNS.get(slot, slot)
    # The errors that a lookup raises if no part fits the slot.
    error_class: type[CatalogError] = NoMatchError
    if slot in ("preprocessor", "action_dist"):
        error_class = UnsupportedSpaceError
    raise error_class(
        f"{space.path}: the config names the {noun} {part.name!r} ({part.provider}), which does not"
        f" fit {space.describe()}: {match.why}. Name another {noun}, or remove the name, so that"
        " rlcatalog chooses one that fits."
    )


def match_if_named(part: Part, request: Request) -> Match:
    """Return a part's answer to a request whose config names it; see `Request.is_named`.

    Raises:
        PartError: The part's match function raises, or does not return a Match.
    """
    named_request = request.replace(is_named=True)
    switch = part.switch
    is_on = part.declaration.is_on(request.config)
    if switch is None or is_on or _needs_name_or_switch(part):
        return match_of(part, named_request)
    # Its name alone selects the part, so its switch must not decide.
    named_request = named_request.replace(config={**request.config, switch: True})
    match = match_of(part, named_request)
    if match.rank is None:
        return match
    return Match(match.rank, _NAMED)


def refuses(part: Part, match: Match, request: Request) -> bool:
    """Return whether the answer of a part that the config names says that it does not fit.

    A part that says nothing about what it fits is only chosen by its name or its switch.
    """
    if _needs_name_or_switch(part) or not _has_code(part, request):
        return False  # the lookup reports missing code, together with the frameworks that have it
    return match.rank is None


def chosen_before(part: Part) -> Verdict:
    """Return the verdict on a part that an earlier lookup chose; it is not asked again."""
    why = "chosen before, when the policy was saved or its run began"
    return Verdict(part, Match(rank=None, why=why))


def _match_of_switch(slot: str, parts: Sequence[Part], request: Request) -> Verdict:
    """Return the part whose switch is on, and its match."""
    if len(parts) > 1:
        raise _several_switched_on(slot, parts)
    part = parts[0]
    match = match_of(part, request)
    if match.rank is None:
        switch = str(part.switch)
        raise NoMatchError(
            f"{slot}: {switch}={shown(request.config.get(switch))} selects {part.name!r}"
            f" ({part.provider}), which does not fit: {match.why}. Remove {switch} from the"
            " config."
        )
    return Verdict(part, match)


def _not_considered(
    slot: str,
    chosen: Part | None,
    candidates: Iterable[Part],
    verdicts: Sequence[Verdict],
    request: Request,
) -> Iterator[Verdict]:
    """Yield a verdict for each other candidate: why it was not considered, and how to choose it."""
    considered = {id(answer.part) for answer in verdicts}  # a part has no hash
    for part in candidates:
        if id(part) in considered:
            continue
        if chosen is not None and part.declaration.is_on(request.config):
            # A switch decides unless the config names another part.
            why = f"{part.switch} is set, but the config names {chosen.name!r}"
            yield Verdict(part, Match(rank=None, why=why))
            continue
        if _needs_name_or_switch(part):
            why = "only chosen by name"
            if part.switch is not None:
                why = f"{part.switch} is not set"
        elif chosen is None or slot in OPTIONAL:  # unlisted, in a slot that may stay empty
            why = "is only selected by name or switch"
        else:
            why = f"not considered: {chosen.name!r} comes first"
        if part.is_third_party:
            why += f"; to choose it: {_way_to_choose(slot, part)}"
        yield Verdict(part, Match(rank=None, why=why))


def _way_to_choose(slot: str, part: Part) -> str:
    """Return the config key or the environment variable that makes a lookup choose a part."""
    way = f"{KEYS[slot]}={part.address!r}"
    if part.switch is not None:
        way = f"{part.switch}=True"
    if not _needs_name_or_switch(part):
        way += f" or RLCATALOG_PREFER_PLUGINS={part.distribution}"
    return way


def match_of(part: Part, request: Request) -> Match:
    """Return one candidate's answer.

    Raises:
        PartError: The part's match function raises, or does not return a Match.
    """
    if not _has_code(part, request):
        return Match(rank=None, why=f"has no code for framework {request.framework!r}")
    try:
        match: Any = part.declaration.judge(request)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # of any type, because a plugin may even call sys.exit()
        raise part.fault(f"its match function raised {reason(error)}.") from error
    if type(match) is Match and type(match.why) is str:
        if match.rank is None or type(match.rank) is Rank:
            return match
        if isinstance(match.rank, int) and match.rank in [*Rank]:  # a number in place of a Rank
            return Match(Rank(match.rank), match.why)
    raise part.fault(f"its match function returned {shown(match)} instead of a Match.")


def _has_code(part: Part, request: Request) -> bool:
    """Return whether a part has code for a request's framework."""
    framework = request.framework
    declaration = part.declaration
    return (
        framework is None
        or declaration.targets_allowed is not None  # it needs no framework
        or framework in declaration.targets
        or framework in part.extensions
    )


# --- errors ---------------------------------------------------------------------------------------


def _refuse_other_switches(
    slot: str, named: Part, named_by: str, switched_on: Sequence[Part], request: Request
) -> None:
    """Raise an error if a switch selects another part than the one that the config names, unless
    that part does not fit.

    A saved policy keeps the part that its config names.
    """
    if request.is_repeated:
        return
    switches = []
    for part in switched_on:
        if part.address != named.address and match_of(part, request).rank is not None:
            switches.append(str(part.switch))
    if switches:
        raise keys_that_choose_one_slot(slot, [named_by, *switches], request)


def keys_that_choose_one_slot(
    slot: str, keys: Sequence[str], request: Request
) -> AmbiguousChoiceError:
    """Return the error for several config keys that each choose a part for the same slot; the
    first one may stay, so it is the last to remove.
    """
    noun = _NOUNS.get(slot, slot)
    article = "an" if noun.startswith("a") else "a"
    first_key, *others = keys
    settings = [f"{key}={shown(request.config.get(key))}" for key in keys]
    return AmbiguousChoiceError(
        f"{slot}: {' and '.join(settings)} each choose {article} {noun}, but there is only one."
        f" Remove {' or '.join(others)} from the config, or {first_key}."
    )


def _several_switched_on(slot: str, parts: Sequence[Part]) -> AmbiguousChoiceError:
    switches = list(dict.fromkeys(str(part.switch) for part in parts))
    names = [f"{part.name!r} ({part.provider}: {part.switch} is set)" for part in parts]
    distributions = {part.distribution for part in parts}
    third_party = [part.distribution for part in parts if part.is_third_party]
    if len(switches) > 1:
        way = f"Remove one of {' and '.join(switches)} from the config"
    elif third_party and len(distributions) > 1:
        last_third_party = list(dict.fromkeys(third_party))[-1]
        way = f"Disable one with RLCATALOG_DISABLE_PLUGINS={last_third_party}"
    else:
        way = "Give each a separate switch"
    return AmbiguousChoiceError(
        f"{slot}: {' and '.join(names)} are switched on together, but there is only one {slot}."
        f" {way}."
    )


def _tie(slot: str, best: Sequence[Verdict], request: Request) -> AmbiguousChoiceError:
    parts = [answer.part for answer in best]
    names = [f"{part.name!r} ({part.provider}: {match.why})" for part, match in best]
    first_part = parts[0]
    ways = [*_ways_in_config(slot, first_part, request), *_ways_with_plugins(parts)]
    advice = "Let one of them match with a different rank."
    if ways:
        advice = f"Options: {', or '.join(ways)}."
    space = request.space_for(slot).describe()
    rank = best[0].match.rank
    assert rank is not None  # these parts match
    return AmbiguousChoiceError(
        f"{slot}: {' and '.join(names)} match {space} equally well ({rank.name}). {advice}"
    )


def _ways_in_config(slot: str, part: Part, request: Request) -> list[str]:
    """Return how to resolve a tie in the config."""
    key = KEYS[slot]
    path = request.space_for(slot).path
    if slot == "action_dist" and path != "action":  # a part of the action space
        return [f"name one in the config ({key}={{{path!r}: {part.address!r}}})"]
    if slot != "action_dist":
        has_key = path == "obs"  # parts for subspaces of the observation have no config key
        if not has_key or request.config.get(key) is not None:
            return []
    return [f"name one in the config ({key}={part.address!r})"]


def _ways_with_plugins(parts: Sequence[Part]) -> list[str]:
    """Return how to resolve a tie by preferring or disabling a plugin; empty if one plugin provides
    all of the parts.
    """
    count = Counter(part.distribution for part in parts)
    # Preferring a distribution decides nothing if it has two of the parts. A registered part has no
    # distribution.
    with_one_part = [name for name in count if name and count[name] == 1]
    if not with_one_part:
        return []
    ways = [f"prefer one with RLCATALOG_PREFER_PLUGINS={with_one_part[0]}"]
    if len(parts) == 2:
        ways.append(f"disable one with RLCATALOG_DISABLE_PLUGINS={with_one_part[-1]}")
    return ways
