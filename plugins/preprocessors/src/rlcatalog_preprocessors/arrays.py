"""Codecs for spaces whose observations are arrays of numbers: Box, MultiBinary, Simplex."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import asarray, ndarray

from rlcatalog.errors import ObservationError
from rlcatalog.observations import (
    ENCODING_ERRORS,
    Array,
    Preprocessor,
    Writer,
    check_values,
    largest_range,
)

#: Kind of a space's dtype → the kinds of values it takes: casting neither truncates nor invents
#: anything.
_TAKES = {"f": "biuf", "i": "biu", "u": "biu", "b": "b"}


class ArrayPreprocessor(Preprocessor):
    """Base class for the codecs below: the values of an array as float32."""

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        self._dtype = np.dtype(obs_space.dtype)
        return tuple(obs_space.shape)

    def writer(self, start: int) -> Writer:
        place, shape, length = slice(start, start + self.size), self.shape, self.size
        own, readable = self._dtype, self._readable

        # A wrong shape must not be broadcast into the slice. `getattr` finds most observations
        # right in one call.

        def write_scalar(obs: Any, out: Array) -> None:
            if getattr(obs, "dtype", None) is not own:
                obs = readable(obs)
            # NumPy rejects arrays with axes (before 2.4, arrays of one value only cause a warning).
            out[start] = obs

        def write_vector(obs: Any, out: Array) -> None:
            if getattr(obs, "dtype", None) is not own:
                obs = readable(obs)
            # Among shapes of this size, NumPy only assigns the right one to the slice.
            if len(obs) != length:
                raise ValueError(f"shape {obs.shape} instead of {shape}")
            out[place] = obs

        def write(obs: Any, out: Array) -> None:
            if type(obs) is not ndarray or obs.dtype is not own:
                obs = readable(obs)
            if obs.shape != shape:
                raise ValueError(f"shape {obs.shape} instead of {shape}")
            out[place] = obs.ravel()

        if shape == ():
            return write_scalar
        return write_vector if len(shape) == 1 and length > 1 else write

    def batch_writer(self, start: int) -> Writer:
        shape, size, is_vector = self.shape, self.size, len(self.shape) == 1
        own, readable = self._dtype, self._readable
        columns = (slice(None), slice(start, start + size))

        def write(batch: Any, out: Array) -> None:
            if isinstance(batch, tuple) and not batch and not len(out):
                return  # a stacked Sequence without items, because an empty tuple has no item shape
            array = batch if type(batch) is ndarray and batch.dtype is own else readable(batch)
            if array.shape != (len(out), *shape):
                raise ValueError(f"shape {array.shape} instead of {(len(out), *shape)}")
            out[columns] = array if is_vector else array.reshape(len(out), size)

        return write

    def _readable(self, values: Any) -> Array:
        """Return values as an array of a kind that the space accepts: text is never read as a
        number.

        Raises:
            ValueError: The values are of a different kind.
        """
        array = asarray(values)
        if (
            array.dtype is not self._dtype
            and array.dtype.kind not in _TAKES[self._dtype.kind]
            and array.size
        ):
            raise ValueError(f"dtype {array.dtype} instead of {self._dtype}")
        return array

    def lowered(self) -> Any:
        return lambda x, ops: ops.as_type(x, "float32")

    def check(self, obs: Any) -> None:
        expected = self.info.describe()
        array = as_array(self, obs, f"{expected}: shape {self.shape}")
        # The values themselves are checked below.
        if array.dtype.kind not in _TAKES[self._dtype.kind]:
            self.refuse(f"{expected}: values that can be cast to {self._dtype}", obs)
        if array.shape != self.shape:
            self.refuse(f"{expected}: shape {self.shape}", obs)
        if self._dtype.kind == "f" and array.dtype is not self._dtype:
            # As stored; the bounds are rounded to the space's dtype too.
            with np.errstate(over="ignore"):
                array = array.astype(self._dtype, copy=False)
        self.check_values(array, expected)

    def check_values(self, array: Array, expected: str) -> None:
        """Raise an error unless the values are in the space; the shape and the kind have already
        been checked.
        """
        check_values(self, array, expected, *self.limits())

    def limits(self) -> tuple[Array, Array]:
        """Return the space's lowest and highest values, as arrays of shape `shape`."""
        return np.zeros(self.shape, self._dtype), np.ones(self.shape, self._dtype)

    def bounds(self) -> tuple[Array, Array]:
        with np.errstate(over="ignore"):  # bounds outside float32's range count as infinite
            low, high = (limit.ravel().astype(np.float32) for limit in self.limits())
        return low, high


def as_array(codec: Preprocessor, obs: Any, expected: str) -> Array:
    """Return an observation as an array; reject anything else, such as lists of different lengths.

    Raises:
        ObservationError: The observation is not an array.
    """
    try:
        return np.asarray(obs)
    except RuntimeError:  # a PyTorch tensor that requires a gradient
        codec.refuse(f"{expected}, without gradient (tensor.detach())", obs)
    except (TypeError, ValueError):
        codec.refuse(expected, obs)


class MultiBinaryPreprocessor(ArrayPreprocessor):
    """Codec for MultiBinary: zeros and ones, as float32."""


class SimplexPreprocessor(ArrayPreprocessor):
    """Simplex: the probabilities, as float32."""

    def check_values(self, array: Array, expected: str) -> None:
        super().check_values(array, expected)
        if not self._obs_space.contains(array):
            self.refuse_value(
                f"{expected}: values that sum to 1 along the last axis", array.sum(-1)
            )


class NoPreprocessor(ArrayPreprocessor):
    """Box: the array itself, with its own shape and dtype; inside another space, a
    float32 slice.
    """

    @property
    def observation_space(self) -> Any:
        """The space itself."""
        return self._obs_space

    def transform(self, observation: Any) -> Array:
        """Return a new array with the space's dtype."""
        if self._unchecked:
            self.check_shape(observation)
        if (
            type(observation) is ndarray
            and observation.dtype is self._dtype
            and observation.shape == self.shape
        ):
            return observation.copy()
        try:
            array = self._cast(observation, copy=True)
            if array.shape != self.shape:
                raise ValueError(f"shape {array.shape} instead of {self.shape}")
            return array
        except ENCODING_ERRORS as error:
            self._explain(observation, error)

    def transform_batch(self, batch: Any) -> Array:
        """Return a new array `[B, *shape]` with the space's dtype."""
        array = self.encode_batch(batch)
        return array.copy() if array is batch or array.base is not None else array

    def encode_batch(self, batch: Any) -> Array:
        """Return the batch unchanged if it is an array with the space's dtype."""
        try:
            if self._unchecked:
                self._check_rows(batch)
            plain = type(batch) is ndarray and batch.dtype is self._dtype
            array = batch if plain else self._cast(batch, copy=False)
            if isinstance(batch, list) and not batch:
                array = array.reshape(0, *self.shape)
            if not array.ndim or array.shape[1:] != self.shape:
                raise ValueError(f"rows of shape {array.shape[1:]} instead of {self.shape}")
            return array
        except ObservationError:
            raise
        except ENCODING_ERRORS as error:
            self._explain_batch(batch, error)

    def lowered(self) -> Any:
        return lambda x, ops: x

    def _cast(self, values: Any, copy: bool) -> Array:
        """Convert numbers to an array with the space's dtype, without rounding integers.

        Raises:
            ValueError: The values are of a different kind, or too large for the dtype.
        """
        array, dtype = self._readable(values), self._dtype
        if array.dtype is dtype:
            return array.copy() if copy else array
        with np.errstate(over="ignore"):  # a policy detects infinities
            cast: Array = array.astype(dtype)
        if dtype.kind in "iu" and array.dtype.kind in "iu" and not (cast == array).all():
            raise ValueError(f"values that do not fit into {dtype}")
        return cast

    def limits(self) -> tuple[Array, Array]:
        space: Any = self._obs_space
        return space.low, space.high

    def integer_ranges(self) -> Array:
        return np.full(self.size, float(largest_range(self.info)))
