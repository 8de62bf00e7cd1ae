"""Checks for the return values of an environment's `reset` and `step`.

Nearly all values pass a quick test of types and shapes; only the others are checked in detail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
_KINDS_IN_ARRAYS = frozenset({"box", "discrete", "multi_discrete", "multi_binary"})


#: Names of the values that `reset` and `step` return.
RESET = ("observation", "info")
STEP = ("observation", "reward", "terminated", "truncated", "info")


class ReturnChecker:
    """Checker for one environment's return values.

    Args:
        space: The environment's observation space.

    Attributes:
        has_usual_format: A quick test that observations in the usual format pass; other
            observations are checked in detail.
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self._info = SpaceInfo.read(space, "observation")
        self.has_usual_format = _quick_test(self._info)

    def fault(self, returned: Any, names: tuple[str, ...]) -> str | None:
        """Return what is wrong with a returned value and what was expected; None if it is valid.

        Args:
            returned: The returned value.
            names: `RESET` or `STEP`.
        """
        is_sequence = isinstance(returned, tuple | list)
        if not is_sequence or len(returned) != len(names):
            return _wrong_number_of_values(returned, names)
        # Between observation and info, `step` returns numbers; `reset` returns nothing.
        obs, *values, info = returned
        numbers = dict(zip(names[1:-1], values, strict=True))
        for name, number in numbers.items():
            if name == "reward":
                number_fault = _reward_fault(number)
            else:
                number_fault = _flag_fault(name, number)
            if number_fault is not None:
                return number_fault
        if not self.has_usual_format(obs):
            obs_fault = _obs_fault(self._info, obs)
            if obs_fault is not None:
                return obs_fault
        if not isinstance(info, Mapping):
            return f"returned info={shown(info, length=80)}; expected a dict"
        return None


def _wrong_number_of_values(returned: Any, names: tuple[str, ...]) -> str:
    """Return what is wrong with a returned value that has not one value for each name."""
    fault = f"returned {_describe(returned)}; expected ({', '.join(names)})"
    if names is RESET and not isinstance(returned, tuple):
        return (
            f"{fault}. In gym's older interface, reset returned only an observation; return"
            " observation, {} instead"
        )
    if names is STEP and isinstance(returned, tuple) and len(returned) == 4:
        return (
            f"{fault}. In gym's older interface, step returned a single done; return terminated and"
            " truncated instead"
        )
    return fault


def _reward_fault(reward: Any) -> str | None:
    if type(reward) in NUMBERS or _is_number(reward):
        return None
    return f"returned the reward {shown(reward, length=80)}; expected a number"


def _is_number(value: Any) -> bool:
    """Return whether a value is a scalar that float() can convert."""
    if isinstance(value, str | bytes):  # float() would accept "1.5"
        return False
    try:
        if not isinstance(value, int) and np.ndim(value) > 0:
            return False
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _flag_fault(name: str, flag: Any) -> str | None:
    """Return the problem with a flag, which must be a scalar True, False, 0 or 1."""
    if type(flag) in FLAGS:
        return None
    with suppress(TypeError, ValueError):
        array = np.asarray(flag)
        if array.ndim == 0 and array.dtype.kind in "biu" and array.item() in (0, 1):
            return None
    return f"returned {name}={shown(flag, length=80)}; expected True or False"


# --- observations ---------------------------------------------------------------------------------


def _quick_test(info: SpaceInfo) -> Callable[[Any], bool]:
    """Return the quick test for observations from a space."""
    if info.kind == "dict":
        tests_by_key = {
            key: _quick_test(child) for key, child in zip(info.keys, info.children, strict=True)
        }

        def is_usual_dict(obs: Any) -> bool:
            if not isinstance(obs, dict) or obs.keys() != tests_by_key.keys():
                return False
            return all(is_usual(obs[key]) for key, is_usual in tests_by_key.items())

        return is_usual_dict
    if info.kind == "tuple":
        tests = [_quick_test(child) for child in info.children]

        def is_usual_tuple(obs: Any) -> bool:
            if not isinstance(obs, tuple) or len(obs) != len(tests):
                return False
            return all(is_usual(part) for is_usual, part in zip(tests, obs, strict=True))

        return is_usual_tuple
    if info.kind not in _KINDS_IN_ARRAYS:  # preprocessors check these observations
        return _accept
    shape = info.shape
    dtype = np.dtype(info.dtype)
    if shape == ():  # a Discrete, whose observations are scalars
        scalar_types = {dtype.type}
        if dtype.kind in "iu":
            scalar_types.add(int)

        def is_usual_scalar(obs: Any) -> bool:
            return type(obs) in scalar_types

        return is_usual_scalar

    def is_usual_array(obs: Any) -> bool:
        return type(obs) is np.ndarray and obs.dtype is dtype and obs.shape == shape

    return is_usual_array


def _accept(_obs: Any) -> bool:
    """Accept any observation, of a kind of space that preprocessors check."""
    return True


def _obs_fault(info: SpaceInfo, obs: Any) -> str | None:
    """Return the problem with an observation; None if it can be written into an array of the
    space's dtype.
    """
    if info.kind == "dict":
        if not isinstance(obs, Mapping):
            return _mismatch(info, expected=_describe_keys(info.keys), found=_describe(obs))
        if set(obs) != set(info.keys):
            found = f"the keys {shown(list(obs), length=80)}"
            return _mismatch(info, expected=_describe_keys(info.keys), found=found)
        parts = [obs[key] for key in info.keys]
    elif info.kind == "tuple":
        if not isinstance(obs, tuple | list) or len(obs) != len(info.children):
            expected = f"a tuple of {len(info.children)}"
            return _mismatch(info, expected=expected, found=_describe(obs))
        parts = list(obs)
    else:
        return _leaf_fault(info, obs)
    for child, part in zip(info.children, parts, strict=True):
        fault = _obs_fault(child, part)
        if fault is not None:
            return fault
    return None


def _leaf_fault(info: SpaceInfo, obs: Any) -> str | None:
    if info.kind not in _KINDS_IN_ARRAYS:  # preprocessors check these observations
        return None
    expected = f"{info.dtype} of shape {info.shape}"
    try:
        array = np.asarray(obs)
    except (TypeError, ValueError):  # lists of different lengths
        return _mismatch(info, expected=expected, found=_describe(obs))
    if array.shape == info.shape and np.can_cast(array.dtype, np.dtype(info.dtype), "same_kind"):
        return None
    is_numeric = array.dtype.kind in "biufc"  # booleans, integers, floats, complex numbers
    found = f"{array.dtype} of shape {array.shape}" if is_numeric else _describe(obs)
    return _mismatch(info, expected=expected, found=found)


def _mismatch(info: SpaceInfo, *, expected: str, found: str) -> str:
    return f"returned {info.path} that does not match its space: expected {expected}; found {found}"


def _describe_keys(keys: Sequence[str]) -> str:
    return f"a dict with the keys {shown(list(keys), length=80)}"


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, tuple | list):
        return f"{len(value)} values: {shown(value, length=80)}"
    return shown(value, length=80)
