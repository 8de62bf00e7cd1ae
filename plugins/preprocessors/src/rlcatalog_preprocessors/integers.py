"""Codecs for Discrete and MultiDiscrete: one-hot vectors, or the integers themselves."""

from __future__ import annotations

from functools import lru_cache
from operator import index as integer
from typing import Any

import numpy as np
from numpy import asarray, ndarray

from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog.frameworks import TensorOps
from rlcatalog.observations import Array, Preprocessor, Writer
from rlcatalog_preprocessors.arrays import NoPreprocessor, as_array

#: float32 represents every integer up to this one.
_EXACT_IN_FLOAT32 = 2**24
#: Size beyond which one MultiDiscrete observation is encoded as a batch of one; for few entries,
#: going entry by entry is faster.
_LARGE = 256


@lru_cache(maxsize=8)
def _row_starts(rows: int, width: int) -> Array:
    """Return the index at which each row of a matrix begins among its values."""
    return np.arange(rows) * width


class OneHotPreprocessor(Preprocessor):
    """Discrete: a one-hot vector of the value.

    MultiDiscrete: one one-hot vector per entry, in C order.
    """

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        self._first, self._counts = _values(obs_space)
        # Where the one-hot of each entry begins, minus its smallest value: value + offset is the
        # position of its 1.
        ends = self._counts.cumsum()
        self._offset = ends - self._counts - self._first
        return (int(ends[-1]) if len(ends) else 0,)

    def writer(self, start: int) -> Writer:
        shape, size = self.info.shape, self.size
        if shape == ():
            offset, stop = start + int(self._offset[0]), start + size

            def write_one(obs: Any, out: Array) -> None:
                place = integer(obs) + offset
                if not start <= place < stop:  # it would hit another slot
                    raise ValueError(f"{obs} is not in [{start - offset}, {stop - offset})")
                out[place] = 1.0

            return write_one
        if size > _LARGE:
            write_rows = self.batch_writer(start)
            return lambda obs, out: write_rows(asarray(obs)[None], out[None])
        # For each entry, the column of the 1 for each of its values.
        tables, at = [], start
        for first, count in zip(self._first.tolist(), self._counts.tolist(), strict=True):
            tables.append({first + i: at + i for i in range(count)})
            at += count
        is_vector = len(self.info.shape or ()) == 1

        def write(obs: Any, out: Array) -> None:
            if type(obs) is not ndarray:
                obs = asarray(obs)
            if obs.shape != shape or obs.dtype.kind not in "iub":
                raise ValueError(f"{obs.dtype} values of shape {obs.shape} instead of {shape}")
            values = (obs if is_vector else obs.ravel()).tolist()
            for value, table in zip(values, tables):  # noqa: B905  (`strict=` alone takes 0.1 µs; the shape is right)
                out[table[value]] = 1.0

        return write

    def batch_writer(self, start: int) -> Writer:
        shape = self.info.shape or ()
        # Without a needless axis, Discrete takes half the time.
        entries = (len(self._counts),) if shape else ()
        first, counts = (
            self._first.reshape(entries),
            self._counts.astype(np.uint64).reshape(entries),
        )
        slots, from_zero = (self._offset + self._first).reshape(entries), not self._first.any()

        def slot_starts(rows: int, width: int) -> Array:
            places: Array = _row_starts(rows, width)[:, None] + slots
            return places

        starts = lru_cache(maxsize=2)(slot_starts) if shape else _row_starts

        def write(batch: Any, out: Array) -> None:
            rows, width = out.shape
            values = asarray(batch)
            if values.shape != (rows, *shape) or values.dtype.kind not in "iub":
                raise ValueError(
                    f"{values.dtype} values of shape {values.shape} instead of {(rows, *shape)}"
                )
            if values.dtype.kind == "u":  # the largest would turn negative
                values = np.minimum(values, np.uint64(2**63 - 1))
            values = values.astype(np.int64, copy=False)
            if len(shape) > 1:
                values = values.reshape(rows, *entries)
            index = values if from_zero else values - first
            # As unsigned integers, negative ones are large.
            if np.count_nonzero(index.view(np.uint64) < counts) != index.size:
                raise ValueError(f"values outside their range {first.tolist()} + {counts.tolist()}")
            if out.flags.c_contiguous:
                out.reshape(-1)[start:][index + starts(rows, width)] = 1.0
            else:  # reshaping might copy it
                out[np.arange(rows).reshape(rows, *[1] * len(entries)), start + slots + index] = 1.0

        return write

    def lowered(self) -> Any:
        entries = np.repeat(np.arange(len(self._counts)), self._counts)
        # For each column, the value that it encodes.
        values = np.arange(self.size) - self._offset[entries]

        def encode(x: Any, ops: TensorOps) -> Any:
            flat = ops.flat(x)
            own = ops.columns_at(flat, entries) if len(self._counts) > 1 else flat
            return ops.as_type(own == ops.tensor(values, own), "float32")

        return encode

    def bounds(self) -> tuple[Array, Array]:
        return np.zeros(self.size, np.float32), np.ones(self.size, np.float32)

    def check(self, obs: Any) -> None:
        check_integers(self, obs, self._first, self._counts)


class IndexPreprocessor(NoPreprocessor):
    """Codec that leaves Discrete and MultiDiscrete as integers, for `_disable_preprocessor_api`."""

    def limits(self) -> tuple[Array, Array]:
        first, counts = _values(self._obs_space)
        return first.reshape(self.shape), (first + counts - 1).reshape(self.shape)

    def writer(self, start: int) -> Writer:
        self._refuse_large()
        return super().writer(start)

    def batch_writer(self, start: int) -> Writer:
        self._refuse_large()
        return super().batch_writer(start)

    def lowered(self) -> Any:
        return lambda x, ops: x

    def restore(self, flat: Any, ops: TensorOps) -> Any:
        """Return int64 values in the space's own shape."""
        return ops.integers(ops.reshape(flat, self.shape))

    def check(self, obs: Any) -> None:
        check_integers(self, obs, *_values(self._obs_space))

    def _refuse_large(self) -> None:
        low, high = self.limits()
        if self.size and max(-int(low.min()), int(high.max())) > _EXACT_IN_FLOAT32:
            raise UnsupportedSpaceError(
                f"{self.info.path}: {self.info.describe()} has integers beyond 2**24, which"
                " float32 cannot represent. Wrap the environment to number its values from 0."
            )


def check_integers(preprocessor: Preprocessor, obs: Any, first: Array, counts: Array) -> None:
    """Raise an error unless an observation has the space's shape and integers
    `first <= value < first + counts`.

    Raises:
        ObservationError: The observation does not.
    """
    info = preprocessor.info
    expected = (
        f"{info.describe()}:"
        f" {'integers of shape ' + str(info.shape) if info.shape else 'an integer'}"
    )
    array = as_array(preprocessor, obs, expected)
    if array.dtype.kind not in "iu" or array.shape != info.shape:
        preprocessor.refuse(f"{expected}{'' if info.shape else _range(first[0], counts[0])}", obs)
    # Compared before they are cast: the largest unsigned ones would turn negative.
    values = array.ravel()
    wrong = (values < first) | (values > first + counts - 1)
    if np.count_nonzero(wrong):  # faster than any()
        at = int(wrong.argmax())
        place = ", ".join(str(int(i)) for i in np.unravel_index(at, info.shape or ()))
        where = f", at [{place}]" if info.shape else ""
        preprocessor.refuse(f"{expected}{where}{_range(first[at], counts[at])}", values[at])


def _range(first: Any, count: Any) -> str:
    return f" from {int(first)} to {int(first + count) - 1}"


def _values(space: Any) -> tuple[Array, Array]:
    """Return the smallest value and the number of values for each entry, as int64 vectors in C
    order.
    """
    counts = np.asarray(space.nvec if hasattr(space, "nvec") else space.n, np.int64).ravel()
    return np.asarray(space.start, np.int64).ravel(), counts
