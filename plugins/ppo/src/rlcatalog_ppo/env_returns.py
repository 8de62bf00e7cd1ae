"""Checks for the return values of an environment's `reset` and `step`.

Nearly all values pass a quick test of types and shapes; only the others are checked in detail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np

from rlcatalog import SpaceInfo
from rlcatalog.errors import shown

#: Types of rewards and flags that need no further check.
NUMBERS = frozenset({float, np.float64, np.float32})
FLAGS = frozenset({bool, np.bool_})
#: Kinds of spaces whose observations are stored in arrays of their dtype and shape; preprocessors
#: handle the others.
_ARRAYS = frozenset({"box", "discrete", "multi_discrete", "multi_binary"})


#: Return values of `reset` and `step`.
RESET, STEP = ("observation", "info"), ("observation", "reward", "terminated", "truncated", "info")


class ReturnChecker:
    """Checker for one environment's return values.

    Args:
        space: The environment's observation space.

    Attributes:
        fits: A quick test that observations in the usual format pass; other observations are
            checked in detail.
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self._info = SpaceInfo.read(space, "observation")
        self.fits = _matcher(self._info)

    def fault(self, returned: Any, names: tuple[str, ...]) -> str | None:
        """Return what is wrong with a returned value and what was expected; None if it is valid.

        Args:
            returned: The returned value.
            names: `RESET` or `STEP`.
        """
        try:
            obs, *between, info = returned
            numbers = dict(zip(names[1:-1], between, strict=True))
        except (TypeError, ValueError):
            old = names is STEP and isinstance(returned, tuple) and len(returned) == 4
            hint = (
                ". Gym's older interface had a single done; return terminated and truncated instead"
                if old
                else ""
            )
            return f"returned {_described(returned)}; expected ({', '.join(names)}){hint}"
        for name, number in numbers.items():
            if fault := _reward_fault(number) if name == "reward" else _flag_fault(name, number):
                return fault
        if not self.fits(obs) and (fault := _explained(self._info, obs)) is not None:
            return fault
        return (
            None
            if isinstance(info, Mapping)
            else f"returned info={shown(info, 80)}; expected a dict"
        )


def _reward_fault(reward: Any) -> str | None:
    if type(reward) in NUMBERS:
        return None
    with suppress(TypeError, ValueError, OverflowError):
        if isinstance(reward, int) or (
            not isinstance(reward, str | bytes) and np.ndim(reward) == 0
        ):
            float(reward)
            return None
    return f"returned the reward {shown(reward, 80)}; expected a number"


def _flag_fault(name: str, flag: Any) -> str | None:
    """Return the problem with a flag, which must be a scalar True, False, 0 or 1."""
    if type(flag) in FLAGS:
        return None
    with suppress(TypeError, ValueError):
        array = np.asarray(flag)
        if array.ndim == 0 and array.dtype.kind in "biu" and array.item() in (0, 1):
            return None
    return f"returned {name}={shown(flag, 80)}; expected True or False"


# --- observations ---------------------------------------------------------------------------------


def _matcher(info: SpaceInfo) -> Callable[[Any], bool]:
    """Return the quick test for observations from a space."""
    if info.kind == "dict":
        parts = {name: _matcher(part) for name, part in zip(info.keys, info.children, strict=True)}
        return lambda obs: (
            isinstance(obs, dict)
            and obs.keys() == parts.keys()
            and all(fits(obs[name]) for name, fits in parts.items())
        )
    if info.kind == "tuple":
        matchers = [_matcher(part) for part in info.children]
        return lambda obs: (
            isinstance(obs, tuple)
            and len(obs) == len(matchers)
            and all(fits(part) for fits, part in zip(matchers, obs, strict=True))
        )
    if info.kind not in _ARRAYS:
        return lambda obs: True
    shape, dtype = info.shape, np.dtype(info.dtype)
    if shape == ():
        scalars = frozenset({dtype.type, int} if dtype.kind in "iu" else {dtype.type})
        return lambda obs: type(obs) in scalars
    return lambda obs: type(obs) is np.ndarray and obs.dtype is dtype and obs.shape == shape


def _explained(info: SpaceInfo, obs: Any) -> str | None:
    """Return the problem with an observation; None if it can be written into an array of the
    space's dtype.
    """
    if info.kind == "dict":
        if not isinstance(obs, Mapping) or set(obs) != set(info.keys):
            found = (
                f"the keys {shown(list(obs), 80)}" if isinstance(obs, Mapping) else _described(obs)
            )
            return _observed(info, f"a dict with the keys {shown(list(info.keys), 80)}", found)
        parts: Any = [obs[key] for key in info.keys]
    elif info.kind == "tuple":
        if not isinstance(obs, tuple | list) or len(obs) != len(info.children):
            return _observed(info, f"a tuple of {len(info.children)}", _described(obs))
        parts = obs
    else:
        return _leaf_fault(info, obs)
    faults = (_explained(child, part) for child, part in zip(info.children, parts, strict=True))
    return next((fault for fault in faults if fault is not None), None)


def _leaf_fault(info: SpaceInfo, obs: Any) -> str | None:
    if info.kind not in _ARRAYS:
        return None
    expected = f"{info.dtype} of shape {info.shape}"
    try:
        array = np.asarray(obs)
    except (TypeError, ValueError):  # lists of different lengths
        return _observed(info, expected, _described(obs))
    if array.shape == info.shape and np.can_cast(array.dtype, np.dtype(info.dtype), "same_kind"):
        return None
    found = (
        f"{array.dtype} of shape {array.shape}" if array.dtype.kind in "biufc" else _described(obs)
    )
    return _observed(info, expected, found)


def _observed(info: SpaceInfo, expected: str, found: str) -> str:
    return f"returned {info.path} that does not match its space: expected {expected}; found {found}"


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return (
        f"{len(value)} values: {shown(value, 80)}"
        if isinstance(value, tuple | list)
        else shown(value, 80)
    )
