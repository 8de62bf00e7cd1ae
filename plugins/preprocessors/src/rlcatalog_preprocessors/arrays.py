"""Codecs for spaces whose observations are arrays of numbers: Box, MultiBinary, Simplex."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import Space
from numpy import asarray, ndarray
from numpy.typing import ArrayLike

from rlcatalog.errors import ObservationError
from rlcatalog.frameworks import Tensor, TensorOps
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
_ACCEPTED_KINDS = {"f": "biuf", "i": "biu", "u": "biu", "b": "b"}


class ArrayPreprocessor(Preprocessor):
    """Base class for the codecs below: the values of an array as float32."""

    def _init_shape(self, obs_space: Space[Any], options: dict[str, Any]) -> tuple[int, ...]:
        space: Any = obs_space
        self._dtype = np.dtype(space.dtype)
        return tuple(space.shape)

    # A writer runs for each observation, so it reads local variables, which are faster than
    # attributes. It never lets NumPy broadcast an array of a wrong shape into the slice.

    def writer(self, start: int) -> Writer:
        if self.shape == ():
            return self._number_writer(start)
        if len(self.shape) == 1 and self.size > 1:
            return self._vector_writer(start)
        return self._array_writer(start)

    def _number_writer(self, start: int) -> Writer:
        """Return the function that writes a number into an encoded vector."""
        own_dtype = self._dtype
        readable = self._readable

        def write(obs: Array, out: Array) -> None:
            # The user's observation may be a Python number.
            if getattr(obs, "dtype", None) is not own_dtype:
                obs = readable(obs)
            # Before NumPy 2.4, an array of one value could be assigned to one number.
            if obs.ndim != 0:
                raise ValueError(f"shape {obs.shape} instead of ()")
            out[start] = obs

        return write

    def _vector_writer(self, start: int) -> Writer:
        """Return the function that writes a vector into an encoded vector."""
        length = self.size
        place = slice(start, start + length)
        own_dtype = self._dtype
        readable = self._readable

        def write(obs: Array, out: Array) -> None:
            # The user's observation may be a list.
            if getattr(obs, "dtype", None) is not own_dtype:
                obs = readable(obs)
            # The length is enough: NumPy refuses to assign an array with more axes to the slice.
            if len(obs) != length:
                raise ValueError(f"shape {obs.shape} instead of {(length,)}")
            out[place] = obs

        return write

    def _array_writer(self, start: int) -> Writer:
        """Return the function that writes an array into an encoded vector."""
        place = slice(start, start + self.size)
        shape = self.shape
        own_dtype = self._dtype
        readable = self._readable

        def write(obs: Array, out: Array) -> None:
            if type(obs) is not ndarray or obs.dtype is not own_dtype:
                obs = readable(obs)
            if obs.shape != shape:
                raise ValueError(f"shape {obs.shape} instead of {shape}")
            out[place] = obs.ravel()

        return write

    def batch_writer(self, start: int) -> Writer:
        """Return the function that writes a batch into the columns of encoded vectors."""
        shape = self.shape
        size = self.size
        is_vector = len(shape) == 1
        columns = (slice(None), slice(start, start + size))
        own_dtype = self._dtype
        readable = self._readable

        def write(batch: Array | tuple[()], out: Array) -> None:
            is_empty_tuple = isinstance(batch, tuple) and not batch
            if is_empty_tuple and not len(out):
                # A stacked Sequence without items; an empty tuple has no item shape to check.
                return
            if type(batch) is not ndarray or batch.dtype is not own_dtype:
                batch = readable(batch)
            if batch.shape != (len(out), *shape):
                raise ValueError(f"shape {batch.shape} instead of {(len(out), *shape)}")
            out[columns] = batch if is_vector else batch.reshape(len(out), size)

        return write

    def _readable(self, values: ArrayLike) -> Array:
        """Return values as an array of a kind that the space accepts: text is never read as a
        number.

        Raises:
            ValueError: The values are of a different kind.
        """
        array = asarray(values)
        if array.dtype is self._dtype:
            return array
        # An empty list becomes floats, but it holds no value of a wrong kind.
        if array.size and array.dtype.kind not in _ACCEPTED_KINDS[self._dtype.kind]:
            raise ValueError(f"dtype {array.dtype} instead of {self._dtype}")
        return array

    def lowered(self) -> Callable[[Tensor, TensorOps], Any]:
        return _as_float32

    def check(self, obs: ArrayLike) -> None:
        """Raise an error that says what is wrong, if an observation is not in the space."""
        expected = self.info.describe()
        array = as_array(self, obs, f"{expected}: shape {self.shape}")
        # The values themselves are checked below.
        if array.dtype.kind not in _ACCEPTED_KINDS[self._dtype.kind]:
            self.refuse(f"{expected}: values that can be cast to {self._dtype}", obs)
        if array.shape != self.shape:
            self.refuse(f"{expected}: shape {self.shape}", obs)
        if self._dtype.kind == "f" and array.dtype is not self._dtype:
            # The bounds are compared with values in the space's dtype, in which they are stored.
            with np.errstate(over="ignore"):
                array = array.astype(self._dtype, copy=False)
        self.check_values(array, expected)

    def check_values(self, array: Array, expected: str) -> None:
        """Raise an error unless the values are in the space; the shape and the kind have already
        been checked.
        """
        low, high = self.limits()
        check_values(self, array, expected, low, high)

    def limits(self) -> tuple[Array, Array]:
        """Return the space's lowest and highest values, as arrays of shape `shape`."""
        return np.zeros(self.shape, self._dtype), np.ones(self.shape, self._dtype)

    def bounds(self) -> tuple[Array, Array]:
        low, high = self.limits()
        with np.errstate(over="ignore"):  # bounds outside float32's range count as infinite
            return low.ravel().astype(np.float32), high.ravel().astype(np.float32)


def _as_float32(x: Tensor, ops: TensorOps) -> Any:
    return ops.as_type(x, "float32")


def as_it_is(x: Tensor, ops: TensorOps) -> Any:  # noqa: ARG001  (a lowered codec gets both)
    """Return a tensor unchanged: the lowered form of a codec that changes nothing."""
    return x


def as_array(codec: Preprocessor, obs: ArrayLike | None, expected: str) -> Array:
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
    def observation_space(self) -> Space[Any]:
        """The space itself."""
        return self._obs_space

    def transform(self, observation: ArrayLike) -> Array:
        """Return a new array with the space's dtype."""
        if self._checks_next:
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
            self._refuse_observation(observation, error)

    def transform_batch(self, batch: ArrayLike) -> Array:
        """Return a new array `[B, *shape]` with the space's dtype."""
        array = self.encode_batch(batch)
        may_share_memory = array is batch or array.base is not None
        if may_share_memory:
            return array.copy()
        return array

    def encode_batch(self, batch: ArrayLike) -> Array:
        """Return the batch unchanged if it is an array with the space's dtype."""
        try:
            if self._checks_next:
                self._check_rows(batch)
            if type(batch) is ndarray and batch.dtype is self._dtype:
                array = batch
            else:
                array = self._cast(batch, copy=False)
            if isinstance(batch, list) and not batch:
                array = array.reshape(0, *self.shape)
            if not array.ndim or array.shape[1:] != self.shape:
                raise ValueError(f"rows of shape {array.shape[1:]} instead of {self.shape}")
            return array
        except ObservationError:
            raise
        except ENCODING_ERRORS as error:
            self._refuse_batch(batch, error)

    def lowered(self) -> Callable[[Tensor, TensorOps], Any]:
        return as_it_is

    def _cast(self, values: ArrayLike, copy: bool) -> Array:
        """Convert numbers to an array with the space's dtype, without rounding integers.

        Raises:
            ValueError: The values are of a different kind, or too large for the dtype.
        """
        array = self._readable(values)
        dtype = self._dtype
        if array.dtype is dtype:
            return array.copy() if copy else array
        with np.errstate(over="ignore"):  # a policy detects infinities
            result: Array = array.astype(dtype)
        are_integers = dtype.kind in "iu" and array.dtype.kind in "iu"
        # An integer out of range has become another one.
        if are_integers and not (result == array).all():
            raise ValueError(f"values that do not fit into {dtype}")
        return result

    def limits(self) -> tuple[Array, Array]:
        space: Any = self._obs_space
        return space.low, space.high

    def integer_ranges(self) -> Array:
        return np.full(self.size, float(largest_range(self.info)))
