"""Codecs of Discrete and MultiDiscrete: one-hots, or the integers themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog.preprocessing import Array, Leaf, Preprocessor, Writer
from rlcatalog_preprocessors.arrays import NoPreprocessor

if TYPE_CHECKING:
    from rlcatalog.restoring import TensorOps

#: The largest integer up to which float32 holds every one.
_EXACT_IN_FLOAT32 = 2**24


class OneHotPreprocessor(Preprocessor):
    """Discrete: a vector with a 1 where the value stands. MultiDiscrete: one such vector per entry, in C order."""

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        self._first, self._counts = _values(obs_space)
        # Where the one-hot of each entry begins, less its smallest value: value + offset is the place of its 1.
        ends = np.cumsum(self._counts)
        self._offset = ends - self._counts - self._first
        return (int(ends[-1]) if len(ends) else 0,)

    def writer(self, start: int) -> Writer:
        if self.info.shape == ():
            n, offset = int(self._counts[0]), int(self._offset[0])

            def write_one(obs: Any, out: Array) -> None:
                place = int(obs) + offset
                if not 0 <= place < n:  # a negative place would hit another slot
                    raise ValueError(f"{obs} is not in [{-offset}, {n - offset})")
                out[start + place] = 1.0

            return write_one
        write_rows, size = self.batch_writer(start), start + self.size

        def write(obs: Any, out: Array) -> None:
            write_rows(np.asarray(obs)[None], out[None, :size])

        return write

    def batch_writer(self, start: int) -> Writer:
        shape, first, counts = self.info.shape or (), self._first, self._counts
        places = self._offset + start

        def write(batch: Any, out: Array) -> None:
            rows = len(out)
            values = np.asarray(batch)
            if values.shape != (rows, *shape) or values.dtype.kind not in "iub":
                raise ValueError(f"{values.dtype} values of shape {values.shape} instead of {(rows, *shape)}")
            values = values.reshape(rows, len(counts))
            if rows and not ((values >= first) & (values < first + counts)).all():
                raise ValueError(f"values outside their range {first.tolist()} + {counts.tolist()}")
            values = values.astype(np.int64, copy=False)
            out[np.arange(rows)[:, None], values + places] = 1.0

        return write

    def bounds(self) -> tuple[Array, Array]:
        return np.zeros(self.size, np.float32), np.ones(self.size, np.float32)

    def check(self, obs: Any) -> None:
        check_integers(self, obs, self._first, self._counts)


class IndexPreprocessor(NoPreprocessor):
    """Discrete and MultiDiscrete as the integers they are, for `_disable_preprocessor_api`."""

    def limits(self) -> tuple[Array, Array]:
        first, counts = _values(self._obs_space)
        return first.reshape(self.shape), (first + counts - 1).reshape(self.shape)

    def writer(self, start: int) -> Writer:
        self._refuse_large()
        return super().writer(start)

    def batch_writer(self, start: int) -> Writer:
        self._refuse_large()
        return super().batch_writer(start)

    def restore(self, flat: Any, ops: TensorOps) -> Any:
        """Return int64 values of the space's own shape."""
        return ops.integers(ops.reshape(flat, self.shape))

    def leaves(self, start: int = 0) -> list[Leaf]:
        return [Leaf(self.info.path, self.info.kind, start, start + self.size, self.shape)]

    def check(self, obs: Any) -> None:
        check_integers(self, obs, *_values(self._obs_space))

    def _refuse_large(self) -> None:
        low, high = self.limits()
        if self.size and max(-int(low.min()), int(high.max())) > _EXACT_IN_FLOAT32:
            raise UnsupportedSpaceError(
                f"{self.info.path}: {self.info.describe()} has integers beyond 2**24, which a float32 vector cannot"
                " hold. Wrap the environment to number its values from 0."
            )


def check_integers(preprocessor: Preprocessor, obs: Any, first: Array, counts: Array) -> None:
    """Raise unless an observation holds integers `first <= value < first + counts`, in the space's shape.

    Raises:
        ObservationError: It does not.
    """
    info = preprocessor.info
    one = info.shape == ()
    expected = f"{info.describe()}: {'an integer' if one else f'integers of shape {info.shape}'}"
    if one:
        expected += f" from {int(first[0])} to {int(first[0] + counts[0]) - 1}"
    array = preprocessor.as_array(obs, expected)
    if array.dtype.kind not in "iu" or array.shape != info.shape:
        preprocessor.refuse(expected, obs)
    values = array.ravel()  # compared before they are cast: the largest unsigned ones would turn negative
    wrong = np.flatnonzero((values < first) | (values > first + counts - 1))
    if len(wrong):
        at = int(wrong[0])
        if not one:
            place = ", ".join(str(int(i)) for i in np.unravel_index(at, info.shape or ()))
            expected += f", at [{place}] from {int(first[at])} to {int(first[at] + counts[at]) - 1}"
        preprocessor.refuse(expected, array.ravel()[at])


def _values(space: Any) -> tuple[Array, Array]:
    """Return the smallest value and the number of values of each entry, int64 vectors in C order."""
    counts = getattr(space, "nvec", None)
    if counts is None:
        counts = [space.n]
    counts = np.asarray(counts, np.int64).ravel()
    return np.broadcast_to(np.asarray(space.start, np.int64).ravel(), counts.shape), counts
