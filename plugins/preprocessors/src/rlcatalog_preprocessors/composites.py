"""Codecs for the composite spaces Dict, Tuple and OneOf."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from types import CodeType, FunctionType
from typing import Any, NoReturn

import numpy as np

from rlcatalog.frameworks import TensorOps
from rlcatalog.observations import Array, Leaf, Preprocessor, Writer, check_parts
from rlcatalog.spaces import OneOfValues
from rlcatalog_preprocessors.arrays import as_array

#: Number of children that are written by one function.
_LONGEST = 64


class Flattening(Preprocessor):
    """Concatenated children in one float32 vector."""

    structured = True
    #: Whether children are ordered by position: a set is unordered, and a dict is ordered by its
    #: keys.
    in_order = False

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        self.children = tuple(self.child(info) for info in self.info.children)
        *starts, size = itertools.accumulate((child.size for child in self.children), initial=0)
        self._placed = list(zip(self.children, starts, strict=True))
        return (size,)

    def writer(self, start: int) -> Writer:
        return _in_line(self, "writer", start)

    def batch_writer(self, start: int) -> Writer:
        return _in_line(self, "batch_writer", start)

    def side_by_side(self) -> list[tuple[str | int, Preprocessor]]:
        raise NotImplementedError("keys or places of the children, with their codecs")

    def _restored(self, flat: Any, ops: TensorOps) -> list[Any]:
        return [child.restore(flat[..., at : at + child.size], ops) for child, at in self._placed]

    def leaves(self, start: int = 0) -> list[Leaf]:
        return [leaf for child, at in self._placed for leaf in child.leaves(start + at)]

    def bounds(self) -> tuple[Array, Array]:
        lows, highs = (
            zip(*(child.bounds() for child in self.children), strict=True)
            if self.children
            else ((), ())
        )
        empty = np.zeros(0, np.float32)
        return np.concatenate([empty, *lows]), np.concatenate([empty, *highs])

    def integer_ranges(self) -> Array:
        return np.concatenate([np.zeros(0), *(child.integer_ranges() for child in self.children)])


class DictFlatteningPreprocessor(Flattening):
    """Dict: children matched by key, in the space's order."""

    def side_by_side(self) -> list[tuple[str | int, Preprocessor]]:
        return list(zip(self.info.keys, self.children, strict=True))

    def restore(self, flat: Any, ops: TensorOps) -> dict[str, Any]:
        """Return a dict of the children's values."""
        return dict(zip(self.info.keys, self._restored(flat, ops), strict=True))

    def check(self, obs: Any) -> None:
        if not isinstance(obs, Mapping):
            self.refuse(f"a dict with the keys {list(self.info.keys)}", obs)
        missing = [key for key in self.info.keys if key not in obs]
        known = frozenset(self.info.keys)
        extra = [key for key in obs if key not in known]
        if missing or extra:
            wrong = [f"without {missing}"] * bool(missing) + [f"with the unknown {extra}"] * bool(
                extra
            )
            self.refuse(
                f"a dict with the keys {list(self.info.keys)}", f"one {' and '.join(wrong)}"
            )
        check_parts(
            partial(child.check, obs[key])
            for key, child in zip(self.info.keys, self.children, strict=True)
        )


class TupleFlatteningPreprocessor(Flattening):
    """Tuple: children by position."""

    in_order = True

    def side_by_side(self) -> list[tuple[str | int, Preprocessor]]:
        return list(enumerate(self.children))

    def restore(self, flat: Any, ops: TensorOps) -> tuple[Any, ...]:
        """Return a tuple of the children's values."""
        return tuple(self._restored(flat, ops))

    def check(self, obs: Any) -> None:
        if not isinstance(obs, tuple | list) or len(obs) != len(self.children):
            self.refuse(f"a tuple of {len(self.children)} values", obs)
        check_parts(
            partial(child.check, value) for value, child in zip(obs, self.children, strict=True)
        )


class OneOfPreprocessor(Preprocessor):
    """OneOf: a one-hot vector for the branch, then the branch's own encoding, padded with zeros to
    the longest one.
    """

    structured = True

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        self.children = tuple(self.child(info) for info in self.info.children)
        self._widest = max(child.size for child in self.children)
        return (len(self.children) + self._widest,)

    def writer(self, start: int) -> Writer:
        branches = [child.writer(start + len(self.children)) for child in self.children]

        def write(obs: Any, out: Array) -> None:
            # a set has no order, and a dict would return its keys.
            if not isinstance(obs, tuple | list):
                raise TypeError(f"{type(obs).__name__} instead of a tuple")
            tag, value = obs
            if not 0 <= tag < len(branches):
                raise ValueError(f"branch {tag} of {len(branches)}")
            out[start + tag] = 1.0
            branches[tag](value, out)

        return write

    def restore(self, flat: Any, ops: TensorOps) -> OneOfValues:
        """Return the one-hot tag, and the values as interpreted by each branch."""
        count = len(self.children)
        branches = [
            child.restore(flat[..., count : count + child.size], ops) for child in self.children
        ]
        return OneOfValues(flat[..., :count], tuple(branches))

    def leaves(self, start: int = 0) -> list[Leaf]:
        path, middle = self.info.path, start + len(self.children)
        stop = middle + self._widest
        return [
            Leaf(f"{path}.tag", "tag", start, middle, (len(self.children),)),
            Leaf(f"{path}.branches", self.info.kind, middle, stop, (self._widest,)),
        ]

    def bounds(self) -> tuple[Array, Array]:
        # Zero is the padding.
        low, high = np.zeros(self.size, np.float32), np.zeros(self.size, np.float32)
        high[: len(self.children)] = 1.0
        for child in self.children:
            lowest, highest = child.bounds()
            place = slice(len(self.children), len(self.children) + child.size)
            low[place] = np.minimum(low[place], lowest)
            high[place] = np.maximum(high[place], highest)
        return low, high

    def check(self, obs: Any) -> None:
        count = len(self.children)
        expected = f"{self.info.describe()}: a pair (branch from 0 to {count - 1}, value)"
        if not isinstance(obs, tuple) or len(obs) != 2:
            self.refuse(expected, obs)
        tag = as_array(self, obs[0], expected)
        if tag.dtype.kind not in "iu" or tag.shape != () or not 0 <= int(tag) < count:
            self.refuse(expected, obs[0])
        self.children[int(tag)].check(obs[1])


def _in_line(codec: Flattening, method: str, start: int) -> Writer:
    """Return the writer for a Dict or Tuple: functions with one line for each look-up and call,
    without loops.

    Loops over the children take a third longer: Python specialises each line for the function that
    it calls, and in a loop, this function changes every time.

    Args:
        codec: The codec of the Dict or Tuple.
        method: `"writer"` or `"batch_writer"`: the method to call on the children.
        start: Index of its first value in the flat vector.
    """
    lines = [
        (key, getattr(child, method)(start + at))
        for (key, _), (child, at) in zip(codec.side_by_side(), codec._placed, strict=True)
    ]
    wrong = f"len(values) != {len(lines)}"  # together with the look-up of each key: equal keys
    if codec.in_order:
        wrong = f"type(values) is not tuple and not isinstance(values, (tuple, list)) or {wrong}"
    runs = [_run(lines[:_LONGEST], f"if {wrong}: refuse(values, {len(lines)})")]
    if len(lines) <= _LONGEST:
        return runs[0]
    runs += [
        _run(lines[first : first + _LONGEST]) for first in range(_LONGEST, len(lines), _LONGEST)
    ]

    def write(values: Any, out: Array) -> None:
        for run in runs:
            run(values, out)

    return write


def _run(lines: Sequence[tuple[str | int, Writer]], check: str = "pass") -> Writer:
    """Return a function that checks the values, and then calls each child's writer with the value
    at its key.
    """
    names: dict[str, Any] = {"__name__": __name__, "__builtins__": builtins, "refuse": _refuse}
    for n, (key, write) in enumerate(lines):
        names[f"key{n}"], names[f"write{n}"] = key, write
    # a copy: it is the code that Python specialises.
    return FunctionType(_code(check, len(lines)).replace(), names)


@lru_cache(maxsize=256)
def _code(check: str, count: int) -> CodeType:
    """Return the code for a check and `count` children.

    Compiling takes long, so Dicts of the same size share it.

    The source consists only of numbers and of names that are defined here.
    """
    calls = "".join(f"    write{n}(values[key{n}], out)\n" for n in range(count))
    names: dict[str, Any] = {}
    exec(f"def write(values, out):\n    {check}\n{calls}", names)
    return names["write"].__code__  # type: ignore[no-any-return]


def _refuse(values: Any, count: int) -> NoReturn:
    # The full check finds the rest.
    raise ValueError(f"{type(values).__name__} instead of {count} values")
