"""Codecs for the composite spaces Dict, Tuple and OneOf."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from rlcatalog.frameworks import TensorOps
from rlcatalog.observations import Array, Leaf, Preprocessor, Writer
from rlcatalog.spaces import OneOfValues
from rlcatalog_preprocessors.arrays import as_array


class Flattening(Preprocessor):
    """Concatenated children in one float32 vector."""

    structured = True
    #: Whether children are ordered by position: a set is unordered, and a dict is ordered by its keys.
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
        lows, highs = zip(*(child.bounds() for child in self.children), strict=True) if self.children else ((), ())
        empty = np.zeros(0, np.float32)
        return np.concatenate([empty, *lows]), np.concatenate([empty, *highs])


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
            wrong = [f"without {missing}"] * bool(missing) + [f"with the unknown {extra}"] * bool(extra)
            self.refuse(f"a dict with the keys {list(self.info.keys)}", f"one {' and '.join(wrong)}")
        for key, child in zip(self.info.keys, self.children, strict=True):
            child.check(obs[key])


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
        for value, child in zip(obs, self.children, strict=True):
            child.check(value)


class OneOfPreprocessor(Preprocessor):
    """OneOf: a one-hot vector for the branch, then the branch's own encoding, padded with zeros to the longest one."""

    structured = True

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        self.children = tuple(self.child(info) for info in self.info.children)
        self._widest = max(child.size for child in self.children)
        return (len(self.children) + self._widest,)

    def writer(self, start: int) -> Writer:
        branches = [child.writer(start + len(self.children)) for child in self.children]

        def write(obs: Any, out: Array) -> None:
            if not isinstance(obs, tuple | list):  # a set has no order, and a dict would return its keys
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
        branches = [child.restore(flat[..., count : count + child.size], ops) for child in self.children]
        return OneOfValues(flat[..., :count], tuple(branches))

    def leaves(self, start: int = 0) -> list[Leaf]:
        path, middle = self.info.path, start + len(self.children)
        stop = middle + self._widest
        return [
            Leaf(f"{path}.tag", "tag", start, middle, (len(self.children),)),
            Leaf(f"{path}.branches", self.info.kind, middle, stop, (self._widest,)),
        ]

    def bounds(self) -> tuple[Array, Array]:
        low, high = np.zeros(self.size, np.float32), np.zeros(self.size, np.float32)  # zero is the padding
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
    """Return the writer for nested Dicts and Tuples: a single function with one line for each look-up, check and call.

    Functions that are nested like the space and loop over their children take a third longer: Python specialises each
        line for the function that it calls, and in a loop, this function changes every time. The source consists only
        of numbers and of names defined here; the keys and the children's writers are its globals.

    Args:
        codec: The codec of the Dict or Tuple.
        method: `"writer"` or `"batch_writer"`: the method to call on codecs that are neither Dicts nor Tuples.
        start: Index of its first value in the flat vector.
    """
    lines, names = ["def write(v0, out):"], {"__name__": __name__, "refuse": _refuse}
    count = itertools.count(1)

    def add(codec: Flattening, values: str, start: int) -> None:
        check = f"len({values}) != {len(codec.children)}"  # together with the look-up of each key below: equal keys
        if codec.in_order:
            check = f"type({values}) is not tuple and not isinstance({values}, (tuple, list)) or {check}"
        lines.append(f"    if {check}: refuse({values}, {len(codec.children)})")
        for (key, _), (child, at) in zip(codec.side_by_side(), codec._placed, strict=True):
            n = next(count)
            names[f"k{n}"] = key
            if getattr(type(child), method) is getattr(Flattening, method):
                lines.append(f"    v{n} = {values}[k{n}]")
                add(child, f"v{n}", start + at)  # type: ignore[arg-type]
            else:
                names[f"write{n}"] = getattr(child, method)(start + at)
                lines.append(f"    write{n}({values}[k{n}], out)")

    add(codec, "v0", start)
    exec("\n".join(lines), names)
    return names["write"]  # type: ignore[return-value]


def _refuse(values: Any, count: int) -> NoReturn:
    raise ValueError(f"{type(values).__name__} instead of {count} values")  # the full check finds the rest
