"""Codecs for the composite spaces Dict, Tuple and OneOf."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from types import CodeType, FunctionType
from typing import Any, NoReturn

import numpy as np
from gymnasium import Space

from rlcatalog.frameworks import Tensor, TensorOps, TensorTree
from rlcatalog.observations import Array, Leaf, Preprocessor, Writer, check_parts
from rlcatalog.spaces import OneOfValues
from rlcatalog_preprocessors.arrays import as_array

#: Number of children that are written by one function.
_LONGEST = 64


class Flattening(Preprocessor):
    """Concatenated children in one float32 vector."""

    structured = True

    def _init_shape(self, obs_space: Space[Any], options: dict[str, Any]) -> tuple[int, ...]:
        """Create the children's codecs; return the shape of the whole vector."""
        self.children = tuple(self.child(info) for info in self.info.children)
        #: Where each child begins in the vector.
        self._starts: list[int] = []
        size = 0
        for child in self.children:
            self._starts.append(size)
            size += child.size
        return (size,)

    def writer(self, start: int) -> Writer:
        writers = [child.writer(start + at) for child, at in self._with_starts()]
        return self._in_line(writers)

    def batch_writer(self, start: int) -> Writer:
        writers = [child.batch_writer(start + at) for child, at in self._with_starts()]
        return self._in_line(writers)

    def side_by_side(self) -> list[tuple[str | int, Preprocessor]]:
        raise NotImplementedError("keys or places of the children, with their codecs")

    def _mismatch(self) -> str:
        """Return the condition, as Python source, under which `values` have the wrong structure.

        A wrong key needs no condition, because looking it up fails.
        """
        return f"len(values) != {len(self.children)}"

    def _with_starts(self) -> Iterator[tuple[Preprocessor, int]]:
        """Yield each child with the index of its first value in the vector."""
        return zip(self.children, self._starts, strict=True)

    def _in_line(self, writers: Sequence[Writer]) -> Writer:
        """Return the writer for the whole observation: functions with one line for each look-up and
        call of a child's writer, without loops.

        Loops over the children take a third longer: Python specialises each line for the function
        that it calls, and in a loop, this function changes every time.

        Args:
            writers: The children's writers, for one observation or for a batch.
        """
        keys = [key for key, _ in self.side_by_side()]
        lines = list(zip(keys, writers, strict=True))
        check = f"if {self._mismatch()}: refuse(values, {len(lines)})"
        write_first = _compile(lines[:_LONGEST], check)
        if len(lines) <= _LONGEST:
            return write_first
        functions = [write_first]
        for first in range(_LONGEST, len(lines), _LONGEST):
            functions.append(_compile(lines[first : first + _LONGEST], check="pass"))

        def write(values: TensorTree, out: Array) -> None:
            for function in functions:
                function(values, out)

        return write

    def _restore_children(self, flat: Tensor, ops: TensorOps) -> list[Any]:
        values = []
        for child, at in self._with_starts():
            values.append(child.restore(flat[..., at : at + child.size], ops))
        return values

    def leaves(self, start: int = 0) -> list[Leaf]:
        leaves: list[Leaf] = []
        for child, at in self._with_starts():
            leaves += child.leaves(start + at)
        return leaves

    def bounds(self) -> tuple[Array, Array]:
        # NumPy concatenates at least one array, and there may be no children.
        lows = [np.zeros(0, np.float32)]
        highs = [np.zeros(0, np.float32)]
        for child in self.children:
            low, high = child.bounds()
            lows.append(low)
            highs.append(high)
        return np.concatenate(lows), np.concatenate(highs)

    def integer_ranges(self) -> Array:
        return np.concatenate([np.zeros(0), *(child.integer_ranges() for child in self.children)])


class DictFlatteningPreprocessor(Flattening):
    """Dict: children matched by key, in the space's order."""

    def side_by_side(self) -> list[tuple[str | int, Preprocessor]]:
        return list(zip(self.info.keys, self.children, strict=True))

    def restore(self, flat: Tensor, ops: TensorOps) -> dict[str, Any]:
        """Return a dict of the children's values."""
        return dict(zip(self.info.keys, self._restore_children(flat, ops), strict=True))

    def check(self, obs: Mapping[str, Any]) -> None:
        """Raise an error that says what is wrong, if an observation is not in the space."""
        keys = self.info.keys
        expected = f"a dict with the keys {list(keys)}"
        if not isinstance(obs, Mapping):
            self.refuse(expected, obs)
        known_keys = frozenset(keys)
        missing = [key for key in keys if key not in obs]
        extra = [key for key in obs if key not in known_keys]
        differences = []
        if missing:
            differences.append(f"without {missing}")
        if extra:
            differences.append(f"with the unknown {extra}")
        if differences:
            self.refuse(expected, f"one {' and '.join(differences)}")
        check_parts(
            partial(child.check, obs[key]) for key, child in zip(keys, self.children, strict=True)
        )


class TupleFlatteningPreprocessor(Flattening):
    """Tuple: children by position."""

    def side_by_side(self) -> list[tuple[str | int, Preprocessor]]:
        return list(enumerate(self.children))

    def _mismatch(self) -> str:
        # A set has no order, and a dict is ordered by its keys. Most observations are tuples, and
        # asking for the type is faster than `isinstance`.
        is_unordered = "type(values) is not tuple and not isinstance(values, (tuple, list))"
        return f"{is_unordered} or {super()._mismatch()}"

    def restore(self, flat: Tensor, ops: TensorOps) -> tuple[Any, ...]:
        """Return a tuple of the children's values."""
        return tuple(self._restore_children(flat, ops))

    def check(self, obs: Sequence[Any]) -> None:
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

    def _init_shape(self, obs_space: Space[Any], options: dict[str, Any]) -> tuple[int, ...]:
        self.children = tuple(self.child(info) for info in self.info.children)
        self._widest = max(child.size for child in self.children)
        return (len(self.children) + self._widest,)

    def writer(self, start: int) -> Writer:
        """Return the function that writes a pair (branch, value) into an encoded vector."""
        branches = [child.writer(start + len(self.children)) for child in self.children]

        def write(obs: tuple[int, Any], out: Array) -> None:
            # Unpacking would also accept a set, which has no order, and a dict's keys.
            if not isinstance(obs, tuple | list):
                raise TypeError(f"{type(obs).__name__} instead of a tuple")
            tag, value = obs
            if not 0 <= tag < len(branches):
                raise ValueError(f"branch {tag} of {len(branches)}")
            out[start + tag] = 1.0
            branches[tag](value, out)

        return write

    def restore(self, flat: Tensor, ops: TensorOps) -> OneOfValues:
        """Return the one-hot tag, and the values as interpreted by each branch."""
        count = len(self.children)
        branches = []
        for child in self.children:
            branches.append(child.restore(flat[..., count : count + child.size], ops))
        return OneOfValues(flat[..., :count], tuple(branches))

    def leaves(self, start: int = 0) -> list[Leaf]:
        path = self.info.path
        middle = start + len(self.children)
        stop = middle + self._widest
        return [
            Leaf(f"{path}.tag", "tag", start, middle, (len(self.children),)),
            Leaf(f"{path}.branches", self.info.kind, middle, stop, (self._widest,)),
        ]

    def bounds(self) -> tuple[Array, Array]:
        """Return the lowest and the highest encoded values."""
        # Zero is the padding behind short branches.
        low = np.zeros(self.size, np.float32)
        high = np.zeros(self.size, np.float32)
        num_branches = len(self.children)
        high[:num_branches] = 1.0  # the one-hot vector of the branch
        # All branches share the columns behind it.
        for child in self.children:
            lowest, highest = child.bounds()
            place = slice(num_branches, num_branches + child.size)
            low[place] = np.minimum(low[place], lowest)
            high[place] = np.maximum(high[place], highest)
        return low, high

    def check(self, obs: tuple[int, Any]) -> None:
        """Raise an error that says what is wrong, if an observation is not in the space."""
        count = len(self.children)
        expected = f"{self.info.describe()}: a pair (branch from 0 to {count - 1}, value)"
        if not isinstance(obs, tuple) or len(obs) != 2:
            self.refuse(expected, obs)
        branch, value = obs
        tag = as_array(self, branch, expected)
        is_integer = tag.dtype.kind in "iu" and tag.shape == ()
        if not is_integer or not 0 <= int(tag) < count:
            self.refuse(expected, branch)
        self.children[int(tag)].check(value)


def _compile(lines: Sequence[tuple[str | int, Writer]], check: str) -> Writer:
    """Return a function that checks the values, and then calls each child's writer with the value
    at its key.

    Args:
        lines: Each child's key and writer.
        check: A statement of Python that checks `values`.
    """
    names: dict[str, Any] = {"__name__": __name__, "__builtins__": builtins, "refuse": _refuse}
    for n, (key, write) in enumerate(lines):
        names[f"key{n}"] = key
        names[f"write{n}"] = write
    # A copy of the code, because Python specialises it for the functions that it calls.
    code = _code(check, len(lines)).replace()
    return FunctionType(code, names)


@lru_cache(maxsize=256)
def _code(check: str, count: int) -> CodeType:
    """Return the code for a check and `count` children.

    Compiling takes long, so Dicts of the same size share it.

    The source consists only of numbers and of names that are defined here.
    """
    source = f"def write(values, out):\n    {check}\n"
    for n in range(count):
        source += f"    write{n}(values[key{n}], out)\n"
    names: dict[str, Any] = {}
    exec(source, names)
    return names["write"].__code__  # type: ignore[no-any-return]


def _refuse(values: TensorTree, count: int) -> NoReturn:
    # The full check, which follows this error, says what is wrong.
    raise ValueError(f"{type(values).__name__} instead of {count} values")
