"""Selection for a slot: the highest rank wins, of a tie the listed part, a name in the config wins over ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlcatalog.choice.faults import left_out, say
from rlcatalog.errors import AmbiguousChoiceError, OutrankedWarning, PartError, reason, shown
from rlcatalog.plugins import Component, Match, ModelSpec, NoMatch, Rank, Request
from rlcatalog.reporting import tell_once


@dataclass(frozen=True)
class Verdict:
    """What one candidate said to a request; `rank` is None where it does not match."""

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
        verdicts: Every candidate, the chosen one first.
    """

    slot: str
    component: Component | None
    why: str
    verdicts: tuple[Verdict, ...] = field(default=())


def choose(
    slot: str,
    components: Iterable[Component],
    request: Request,
    *,
    named: Component | None = None,
    prefer: Sequence[str] = (),
) -> Choice:
    """Choose for one slot.

    Args:
        slot: Name of the slot, for messages.
        components: The candidates.
        request: What is asked.
        named: The component that the config names; it wins whatever its rank.
        prefer: Distributions that win a tie, the most preferred first.

    Raises:
        AmbiguousChoiceError: Two candidates match equally well, and the public index lists neither or both; or the
            config turns on two opt-in parts.
    """
    verdicts = [verdict(component, request) for component in components]
    verdicts.sort(key=lambda v: (-(v.rank or 0), v.component.name, v.component.distribution))
    if named is not None:
        rest = tuple(v for v in verdicts if v.component is not named)
        own = next((v for v in verdicts if v.component is named), None)
        why = "named in the config"
        return Choice(slot, named, why, (Verdict(named, own.rank if own else None, why), *rest))
    matching = [v for v in verdicts if v.rank is not None]
    if not matching:
        return Choice(slot, None, "nothing matches", tuple(verdicts))
    refuse_two_switched_on(slot, matching, request)
    best = [v for v in matching if v.rank == matching[0].rank]
    if len(best) > 1:
        best = _preferred(best, prefer) or best
    listed = [v for v in best if v.component.is_listed]
    if len(listed) == 1 and not any(v.component.in_process for v in best):  # what a program registered, it meant
        best = listed
    if len(best) > 1:
        assert best[0].rank is not None
        raise tie(slot, best, request, best[0].rank)
    chosen = best[0]
    _say_outranked(slot, chosen, matching, prefer)
    return Choice(slot, chosen.component, chosen.why, (chosen, *(v for v in verdicts if v is not chosen)))


def _say_outranked(slot: str, chosen: Verdict, matching: Sequence[Verdict], prefer: Sequence[str]) -> None:
    """Warn, once, of a stranger's part that is chosen before a listed one; whoever prefers its plugin knows."""
    winner = chosen.component
    if not winner.is_strange or winner.distribution in prefer:
        return
    beaten = next((v.component for v in matching if v.component.is_listed), None)
    if beaten is not None:
        key = {"trunk": "custom_model", "action_dist": "custom_action_dist"}.get(slot)
        back = f"Write {key}={beaten.name!r} into the config, or disable" if key else "Disable"
        say(
            f"{slot}: {winner.name!r} ({winner.provider}: {chosen.why}) is chosen before {beaten.name!r}"
            f" ({beaten.provider}), for it ranks higher. {back} it with"
            f" RLCATALOG_DISABLE_PLUGINS={winner.distribution}; RLCATALOG_PREFER_PLUGINS={winner.distribution} keeps it"
            " without this warning.",
            (slot, winner.address, beaten.address),
            OutrankedWarning,
        )


def repeat(slot: str, component: Component) -> Choice:
    """Return the choice of an earlier lookup again; no candidate is asked."""
    why = "chosen before, when the policy was saved or its run began"
    return Choice(slot, component, why, (Verdict(component, None, why),))


def _preferred(tied: list[Verdict], prefer: Sequence[str]) -> list[Verdict] | None:
    for distribution in prefer:
        found = [v for v in tied if v.component.distribution == distribution]
        if found:
            return found
    return None


def verdict(component: Component, request: Request) -> Verdict:
    """Ask one candidate; a match function that fails does not take the lookup with it, and is reported."""
    if (why := left_out(component)) is not None:
        switch = getattr(component.declaration, "switch", None)
        if switch is not None and request.config.get(switch):  # it was asked for; nothing else is what was asked
            raise PartError(why, component)
        return Verdict(component, None, why)
    by_framework = component.declaration.targets_allowed is None
    if request.framework is not None and by_framework and request.framework not in component.frameworks:
        return Verdict(component, None, f"has no code for framework {request.framework!r}")
    try:
        asked = request if component.is_listed else replace(request)  # a stranger's own: frozen is not sealed
        answer: Any = component.declaration.judge(asked)
        if type(answer) is Match and type(answer.why) is str and answer.rank in tuple(Rank):
            return Verdict(component, Rank(answer.rank), answer.why)
        if type(answer) is NoMatch and type(answer.why) is str:
            return Verdict(component, None, answer.why)
        fault = f"its match function returned {shown(answer)} instead of Match or NoMatch"
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        fault = f"its match function raised {reason(error)}"
    tell_once(
        f"{component.kind} {component.name!r} ({component.provider}): {fault}; it counts as not matching.",
        (component.kind, component.address, "match"),
    )
    return Verdict(component, None, fault)


def refuse_two_switched_on(slot: str, matching: Iterable[Verdict], request: Request) -> None:
    """Raise where the config turns on two opt-in parts of one slot: whichever were taken, the other was asked for, too.

    Raises:
        AmbiguousChoiceError: It does; the message names the switches.
    """
    found = [v for v in matching if _switch(v.component, request) is not None]
    if len(found) < 2:
        return
    switches = list(dict.fromkeys(str(_switch(v.component, request)) for v in found))
    names = " and ".join(f"{v.component.name!r} ({v.component.provider}: {v.why})" for v in found)
    if len(switches) > 1:
        way = f"Leave one of {' and '.join(switches)} out of the config"
    else:
        way = "; ".join(_about_plugins(found)) or "Give each a switch of its own"
    raise AmbiguousChoiceError(f"{slot}: {names} are switched on at once, and there is one {slot}. {way}.")


def tie(slot: str, best: Sequence[Verdict], request: Request, rank: Rank) -> AmbiguousChoiceError:
    """Return the error for candidates that match equally well.

    Args:
        slot: Name of the slot.
        best: The candidates.
        request: What was asked.
        rank: Their rank.
    """
    asked = request.action if slot == "action_dist" and request.action is not None else request.obs
    names = " and ".join(f"{v.component.name!r} ({v.component.provider}: {v.why})" for v in best)
    ways = [*_in_config(slot, best, request), *_about_plugins(best)]
    out = f"Ways out: {', or '.join(ways)}." if ways else "Let one of them match with another rank."
    return AmbiguousChoiceError(f"{slot}: {names} match {asked.describe()} equally well ({rank.name}). {out}")


def _switch(component: Component, request: Request) -> str | None:
    """Return the switch of an opt-in part that the config turns on, or None."""
    declaration = component.declaration
    on = isinstance(declaration, ModelSpec) and declaration.is_switched_on(request)
    return declaration.switch if on else None  # type: ignore[attr-defined]


def _in_config(slot: str, best: Sequence[Verdict], request: Request) -> list[str]:
    """Return the ways to settle it in the config."""
    name = best[0].component.address
    ways: list[str] = []
    if slot in ("trunk", "memory", "head"):
        # A part of an observation is named by whoever asks for its net.
        if request.obs.path == "obs" and request.config.get("custom_model") is None:
            ways.append(f"name one in the config (custom_model={name!r})")
        for switch in dict.fromkeys(_off(v.component, request) for v in best):
            if switch is not None:
                ways.append(f"set {switch}=False")
    elif slot == "action_dist" and request.action is not None:
        path = request.action.path
        value = repr(name) if path == "action" else f"{{{path!r}: {name!r}}}"
        ways.append(f"name one in the config (custom_action_dist={value})")
    elif slot == "preprocessor" and request.obs.path == "obs":
        ways.append(f"name one in the config (custom_preprocessor={name!r})")
    return ways


def _off(component: Component, request: Request) -> str | None:
    """Return the switch that would turn a part off which matches without it, or None."""
    switch = getattr(component.declaration, "switch", None)
    return switch if switch is not None and request.config.get(switch) is None else _switch(component, request)


def _about_plugins(best: Sequence[Verdict]) -> list[str]:
    """Return the ways to settle it by preferring or disabling a plugin; none where one plugin brings all of them."""
    distributions = [v.component.distribution for v in best]
    single = [name for name in dict.fromkeys(distributions) if name and distributions.count(name) == 1]
    ways = [f"prefer one with RLCATALOG_PREFER_PLUGINS={single[0]}"] if single else []
    if len(best) == 2 and single:
        ways.append(f"disable one with RLCATALOG_DISABLE_PLUGINS={single[-1]}")
    return ways
