"""Codecs for Discrete and MultiDiscrete: one-hot vectors, or the integers themselves."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import lru_cache
from operator import index as integer
from typing import Any, SupportsIndex

import numpy as np
from gymnasium import Space
from numpy import asarray, ndarray
from numpy.typing import ArrayLike

from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog.frameworks import Tensor, TensorOps
from rlcatalog.observations import Array, Ids, Preprocessor, Writer
from rlcatalog.spaces import embedding_size
from rlcatalog_preprocessors.arrays import NoPreprocessor, as_array, as_it_is

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

    def _init_shape(self, obs_space: Space[Any], options: dict[str, Any]) -> tuple[int, ...]:
        self._first, self._counts = _values(obs_space)
        ends = self._counts.cumsum()
        # Where the one-hot of each entry begins, minus its smallest value: value + offset is the
        # position of its 1.
        self._offset = ends - self._counts - self._first
        size = int(ends[-1]) if len(ends) else 0
        return (size,)

    # A writer runs for each observation, so it reads local variables, which are faster than
    # attributes.

    def writer(self, start: int) -> Writer:
        if self.info.shape == ():
            return self._integer_writer(start)
        if self.size > _LARGE:
            return self._batch_of_one_writer(start)
        return self._entries_writer(start)

    def _integer_writer(self, start: int) -> Writer:
        """Return the function that writes one integer as a one-hot vector."""
        offset = start + int(self._offset[0])
        stop = start + self.size

        def write(obs: SupportsIndex, out: Array) -> None:
            place = integer(obs) + offset
            if not start <= place < stop:  # the 1 would hit another entry's columns
                raise ValueError(f"{obs} is not in [{start - offset}, {stop - offset})")
            out[place] = 1.0

        return write

    def _batch_of_one_writer(self, start: int) -> Writer:
        write_rows = self.batch_writer(start)

        def write(obs: ArrayLike, out: Array) -> None:
            write_rows(asarray(obs)[None], out[None])

        return write

    def _entries_writer(self, start: int) -> Writer:
        """Return the function that writes each entry as a one-hot vector."""
        shape = self.info.shape or ()
        is_vector = len(shape) == 1
        # For each entry: value → the column that is 1 for it.
        columns_of_values: list[dict[int, int]] = []
        first_column = start
        for lowest, count in zip(self._first.tolist(), self._counts.tolist(), strict=True):
            values = range(lowest, lowest + count)
            columns = range(first_column, first_column + count)
            columns_of_values.append(dict(zip(values, columns, strict=True)))
            first_column += count

        def write(obs: Array, out: Array) -> None:
            if type(obs) is not ndarray:
                obs = asarray(obs)
            if obs.shape != shape or obs.dtype.kind not in "iub":
                raise ValueError(f"{obs.dtype} values of shape {obs.shape} instead of {shape}")
            values = (obs if is_vector else obs.ravel()).tolist()
            for value, column_of in zip(values, columns_of_values):  # noqa: B905  (`strict=` alone takes 0.1 µs; the shape is right)
                out[column_of[value]] = 1.0

        return write

    def batch_writer(self, start: int) -> Writer:
        shape = self.info.shape or ()
        is_discrete = shape == ()
        # Without a needless axis, Discrete takes half the time.
        entries = () if is_discrete else (len(self._counts),)
        first = self._first.reshape(entries)
        counts = self._counts.astype(np.uint64).reshape(entries)
        begins_at_0 = not self._first.any()
        # Where the one-hot of each entry begins in an observation's vector.
        slots = (self._offset + self._first).reshape(entries)

        # Cached, because batches of a run usually have the same size.
        @lru_cache(maxsize=2)
        def slot_starts(rows: int, width: int) -> Array:
            """Return the index at which each entry's one-hot begins among a matrix's values."""
            places: Array = _row_starts(rows, width)[:, None] + slots
            return places

        starts = _row_starts if is_discrete else slot_starts

        def write(batch: ArrayLike, out: Array) -> None:
            rows, width = out.shape
            values = asarray(batch)
            if values.shape != (rows, *shape) or values.dtype.kind not in "iub":
                raise ValueError(
                    f"{values.dtype} values of shape {values.shape} instead of {(rows, *shape)}"
                )
            if values.dtype.kind == "u":  # the largest unsigned integers would turn negative
                values = np.minimum(values, np.uint64(2**63 - 1))
            values = values.astype(np.int64, copy=False)
            if len(shape) > 1:
                values = values.reshape(rows, *entries)
            index = values if begins_at_0 else values - first
            # One comparison is enough, because negative integers are large as unsigned ones.
            if np.count_nonzero(index.view(np.uint64) < counts) != index.size:
                raise ValueError(f"values outside their range {first.tolist()} + {counts.tolist()}")
            if out.flags.c_contiguous:
                # A flat index takes half the time of an index by row and column.
                out.reshape(-1)[start:][index + starts(rows, width)] = 1.0
            else:  # reshaping might copy it
                own_rows = np.arange(rows)
                if not is_discrete:
                    own_rows = own_rows[:, None]
                out[own_rows, start + slots + index] = 1.0

        return write

    def lowered(self) -> Callable[[Tensor, TensorOps], Any]:
        """Return the function that computes the one-hot vectors of a batch with tensors."""
        # For each column, its entry and the value that it encodes.
        entries = np.repeat(np.arange(len(self._counts)), self._counts)
        values = np.arange(self.size) - self._offset[entries]
        has_one_entry = len(self._counts) <= 1

        def encode(x: Tensor, ops: TensorOps) -> Any:
            entry_values = ops.flat(x)
            if not has_one_entry:
                entry_values = ops.columns_at(entry_values, entries)
            is_value = entry_values == ops.constant(values, entry_values)
            return ops.as_type(is_value, "float32")

        return encode

    def bounds(self) -> tuple[Array, Array]:
        return np.zeros(self.size, np.float32), np.ones(self.size, np.float32)

    def check(self, obs: ArrayLike) -> None:
        check_integers(self, obs, self._first, self._counts)


class IndexPreprocessor(NoPreprocessor):
    """Codec that leaves Discrete and MultiDiscrete as integers: for `_disable_preprocessor_api`, or
    for a net that embeds them.
    """

    @property
    def observation_space(self) -> Space[Any]:
        """The space itself. If a net embeds the integers, it is a copy that knows this codec, in
        which the net looks up their range.
        """
        if embedding_size(self._options.get("embeddings"), self.info) is None:
            return self._obs_space
        space: Any = copy(self._obs_space)
        space.preprocessor = self
        return space  # type: ignore[no-any-return]

    def ids(self) -> Ids:
        first, counts = _values(self._obs_space)
        return Ids(first, counts)

    def limits(self) -> tuple[Array, Array]:
        first, counts = _values(self._obs_space)
        return first.reshape(self.shape), (first + counts - 1).reshape(self.shape)

    def writer(self, start: int) -> Writer:
        self._refuse_large()
        return super().writer(start)

    def batch_writer(self, start: int) -> Writer:
        self._refuse_large()
        return super().batch_writer(start)

    def lowered(self) -> Callable[[Tensor, TensorOps], Any]:
        return as_it_is

    def restore(self, flat: Tensor, ops: TensorOps) -> Any:
        """Return int64 values in the space's own shape."""
        return ops.integers(ops.reshape(flat, self.shape))

    def check(self, obs: ArrayLike) -> None:
        first, counts = _values(self._obs_space)
        check_integers(self, obs, first, counts)

    def _refuse_large(self) -> None:
        """Raise an error if float32 does not represent all values.

        Raises:
            UnsupportedSpaceError: It does not.
        """
        if not self.size:
            return
        low, high = self.limits()
        largest = max(-int(low.min()), int(high.max()))
        if largest > _EXACT_IN_FLOAT32:
            raise UnsupportedSpaceError(
                f"{self.info.path}: {self.info.describe()} has integers beyond 2**24, which"
                " float32 cannot represent. Wrap the environment to number its values from 0."
            )


def check_integers(preprocessor: Preprocessor, obs: ArrayLike, first: Array, counts: Array) -> None:
    """Raise an error unless an observation has the space's shape and integers
    `first <= value < first + counts`.

    Raises:
        ObservationError: The observation does not.
    """
    info = preprocessor.info
    shape = info.shape or ()
    if shape:
        expected = f"{info.describe()}: integers of shape {shape}"
        expected_value = expected
    else:
        expected = f"{info.describe()}: an integer"
        expected_value = f"{expected}{_range_text(first[0], counts[0])}"
    array = as_array(preprocessor, obs, expected)
    if array.dtype.kind not in "iu" or array.shape != info.shape:
        preprocessor.refuse(expected_value, obs)
    values = array.ravel()
    # Compared as they are: as int64, the largest unsigned integers would be negative.
    is_wrong = (values < first) | (values > first + counts - 1)
    if not np.count_nonzero(is_wrong):  # faster than any()
        return
    entry = int(is_wrong.argmax())
    if shape:
        place = ", ".join(str(int(i)) for i in np.unravel_index(entry, shape))
        expected = f"{expected}, at [{place}]"
    preprocessor.refuse(f"{expected}{_range_text(first[entry], counts[entry])}", values[entry])


def _range_text(first: np.int64, count: np.int64) -> str:
    return f" from {int(first)} to {int(first + count) - 1}"


def _values(space: Space[Any]) -> tuple[Array, Array]:
    """Return the smallest value and the number of values for each entry, as int64 vectors in C
    order.
    """
    discrete: Any = space
    # Gymnasium's MultiDiscrete has several numbers, its Discrete one.
    counts = discrete.nvec if hasattr(discrete, "nvec") else discrete.n
    first = np.asarray(discrete.start, np.int64).ravel()
    return first, np.asarray(counts, np.int64).ravel()
