"""One codec per kind of space; see `rlcatalog.preprocessing` for the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlcatalog.errors import ObservationError
from rlcatalog.preprocessing import ENCODING_ERRORS, Array, Leaf, Preprocessor, Writer

#: Kind of a Box's dtype → the kinds of values it takes: nothing is cut off or made up by casting.
_TAKES = {"f": "biuf", "i": "biu", "u": "biu", "b": "b"}


class NoPreprocessor(Preprocessor):
    """Box: the array itself, in its own shape and dtype; inside a Dict or Tuple a float32 slice."""

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        self._dtype = np.dtype(obs_space.dtype)
        return tuple(obs_space.shape)

    @property
    def observation_space(self) -> Any:
        """The space itself."""
        return self._obs_space

    def transform(self, observation: Any) -> Array:
        """Return a fresh array of the space's dtype."""
        self.check_shape(observation)
        try:
            return _exact(np.array(observation, self._dtype), self.shape)
        except (TypeError, ValueError) as error:
            self._explain(observation, error)

    def transform_batch(self, batch: Any) -> Array:
        """Return a fresh array `[B, *shape]` of the space's dtype."""
        return np.array(self.encode_batch(batch))

    def encode_batch(self, batch: Any) -> Array:
        """Return the batch itself where it is an array of the space's dtype."""
        try:
            if self._unchecked:
                self._check_rows(batch)
            array = np.asarray(batch, self._dtype)
            if array.shape[1:] != self.shape:
                raise ValueError(f"rows of shape {array.shape[1:]} instead of {self.shape}")
            return array
        except ObservationError:
            raise
        except ENCODING_ERRORS as error:
            self._explain_batch(batch, error)

    def writer(self, start: int) -> Writer:
        stop, shape = start + self.size, self.shape

        def write(obs: Any, out: Array) -> None:
            # A wrong shape must not be broadcast into the slice.
            out[start:stop] = _exact(np.asarray(obs), shape).ravel()

        return write

    def batch_writer(self, start: int) -> Writer:
        stop, shape, size = start + self.size, self.shape, self.size

        def write(batch: Any, out: Array) -> None:
            rows = len(out)
            out[:, start:stop] = _exact(np.asarray(batch), (rows, *shape)).reshape(rows, size)

        return write

    def bounds(self) -> tuple[Array, Array]:
        space = self._obs_space
        with np.errstate(over="ignore"):  # what float32 cannot hold is as good as unbounded
            return space.low.ravel().astype(np.float32), space.high.ravel().astype(np.float32)

    def check(self, obs: Any) -> None:
        array = np.asarray(obs)
        expected = f"{self.info.describe()}"
        if array.dtype.kind not in _TAKES[self._dtype.kind]:  # the values themselves are checked below
            self.refuse(f"{expected}: values that can be cast to {self._dtype}", obs)
        if array.shape != self.shape:
            self.refuse(f"{expected}: shape {self.shape}", obs)
        low, high = self._obs_space.low, self._obs_space.high
        inside = (array >= low) & (array <= high)  # false for NaN
        if not inside.all():
            index = tuple(int(i) for i in np.argwhere(~inside)[0])
            at = f"[{', '.join(map(str, index))}]" if index else ""
            self.refuse(f"{expected}: values within [{low[index]}, {high[index]}]{f' at {at}' if at else ''}",
                        array[index])  # fmt: skip


def _exact(array: Array, shape: tuple[int, ...]) -> Array:
    if array.shape != shape:
        raise ValueError(f"shape {array.shape} instead of {shape}")
    return array


class OneHotPreprocessor(Preprocessor):
    """Discrete: a vector with a 1 where the value stands; `start` is honoured."""

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        self._n, self._first = int(obs_space.n), int(obs_space.start)
        return (self._n,)

    def writer(self, start: int) -> Writer:
        n, first = self._n, self._first

        def write(obs: Any, out: Array) -> None:
            index = int(obs) - first
            if not 0 <= index < n:  # a negative index would hit another slot
                raise ValueError(f"{obs} is not in [{first}, {first + n})")
            out[start + index] = 1.0

        return write

    def batch_writer(self, start: int) -> Writer:
        n, first = self._n, self._first

        def write(batch: Any, out: Array) -> None:
            index = np.asarray(batch, np.int64).reshape(len(out)) - first
            if len(index) and not (index.min() >= 0 and index.max() < n):
                raise ValueError(f"values outside [{first}, {first + n})")
            out[np.arange(len(out)), index + start] = 1.0

        return write

    def bounds(self) -> tuple[Array, Array]:
        return np.zeros(self._n, np.float32), np.ones(self._n, np.float32)

    def check(self, obs: Any) -> None:
        array = np.asarray(obs)
        expected = f"{self.info.describe()}: an integer from {self._first} to {self._first + self._n - 1}"
        if array.dtype.kind not in "iu" or array.shape != ():
            self.refuse(expected, obs)
        if not self._first <= int(array) < self._first + self._n:
            self.refuse(expected, obs)


class _Flattening(Preprocessor):
    """Children side by side in one float32 vector."""

    structured = True

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        self.children = tuple(self.child(info) for info in self.info.children)
        sizes = [child.size for child in self.children]
        self._starts = [sum(sizes[:i]) for i in range(len(sizes))]
        return (sum(sizes),)

    def _parts(self, writer: Callable[[Preprocessor], Callable[[int], Writer]], start: int) -> list[Writer]:
        return [writer(child)(start + at) for child, at in zip(self.children, self._starts, strict=True)]

    def _restored(self, flat: Any, reshape: Any) -> list[Any]:
        return [
            child.restore(flat[..., at : at + child.size], reshape)
            for child, at in zip(self.children, self._starts, strict=True)
        ]

    def leaves(self, start: int = 0) -> list[Leaf]:
        return [
            leaf for child, at in zip(self.children, self._starts, strict=True) for leaf in child.leaves(start + at)
        ]

    def bounds(self) -> tuple[Array, Array]:
        lows, highs = zip(*(child.bounds() for child in self.children), strict=True) if self.children else ((), ())
        empty = np.zeros(0, np.float32)
        return np.concatenate([empty, *lows]), np.concatenate([empty, *highs])


class DictFlatteningPreprocessor(_Flattening):
    """Dict: children matched by key, in the space's order."""

    def writer(self, start: int) -> Writer:
        parts = list(zip(self.info.keys, self._parts(lambda c: c.writer, start), strict=True))

        def write(obs: Any, out: Array) -> None:
            for key, write_child in parts:
                write_child(obs[key], out)

        return write

    def batch_writer(self, start: int) -> Writer:
        parts = list(zip(self.info.keys, self._parts(lambda c: c.batch_writer, start), strict=True))

        def write(batch: Any, out: Array) -> None:
            for key, write_child in parts:
                write_child(batch[key], out)

        return write

    def restore(self, flat: Any, reshape: Callable[[Any, tuple[int, ...]], Any]) -> dict[str, Any]:
        """Return a dict of the children's values."""
        return dict(zip(self.info.keys, self._restored(flat, reshape), strict=True))

    def check(self, obs: Any) -> None:
        if not isinstance(obs, Mapping):
            self.refuse(f"a dict with the keys {list(self.info.keys)}", obs)
        missing = [key for key in self.info.keys if key not in obs]
        extra = [key for key in obs if key not in self.info.keys]
        if missing or extra:
            wrong = [f"without {missing}"] * bool(missing) + [f"with the unknown {extra}"] * bool(extra)
            self.refuse(f"a dict with the keys {list(self.info.keys)}", f"one {' and '.join(wrong)}")
        for key, child in zip(self.info.keys, self.children, strict=True):
            child.check(obs[key])


class TupleFlatteningPreprocessor(_Flattening):
    """Tuple: children by position."""

    def writer(self, start: int) -> Writer:
        return _by_position(self._parts(lambda c: c.writer, start))

    def batch_writer(self, start: int) -> Writer:
        return _by_position(self._parts(lambda c: c.batch_writer, start))

    def restore(self, flat: Any, reshape: Callable[[Any, tuple[int, ...]], Any]) -> tuple[Any, ...]:
        """Return a tuple of the children's values."""
        return tuple(self._restored(flat, reshape))

    def check(self, obs: Any) -> None:
        if not isinstance(obs, tuple | list) or len(obs) != len(self.children):
            self.refuse(f"a tuple of {len(self.children)} values", obs)
        for value, child in zip(obs, self.children, strict=True):
            child.check(value)


def _by_position(parts: list[Writer]) -> Writer:
    def write(values: Any, out: Array) -> None:
        for value, write_child in zip(values, parts, strict=True):
            write_child(value, out)

    return write
