"""Errors of a choice between candidates of which none is better, with the ways out that exist."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rlcatalog.errors import AmbiguousChoiceError
from rlcatalog.plugins import Component, ModelSpec, Rank, Request

if TYPE_CHECKING:
    from rlcatalog.choice.selection import Verdict


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
