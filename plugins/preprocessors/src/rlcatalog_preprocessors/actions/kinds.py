"""Codecs for Gymnasium's action spaces that consist of choices or numbers."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from rlcatalog import SpaceInfo, one_hot
from rlcatalog.actions import ActionCodec, Actions, LoweredActions, Mask, is_scaled
from rlcatalog.errors import shown
from rlcatalog.frameworks import Array
from rlcatalog_preprocessors.actions import lowering

_INT64_MAX = np.iinfo(np.int64).max


class _EntryByEntry(ActionCodec):
    """Base class for codecs that check actions entry by entry."""

    def _check_inside(self, inside: Array, values: Array, expected: str) -> None:
        """Raise an error unless all values of a batch are allowed (True in `inside`)."""
        if inside.all():
            return
        first_wrong = np.argwhere(~inside)[0].tolist()
        row, *place = first_wrong
        where = f"row {row}"
        if place:
            where += f", at {place}"
        value = values[(row, *place)]
        if isinstance(value, np.generic):
            value = value.item()  # the message shows the number without NumPy's type
        raise self._no_action(expected, f"{shown(value)} in {where}")


class DiscreteCodec(_EntryByEntry):
    """Codec for one of n values; raw values count from 0, and the codec adds the
    space's `start`.
    """

    scalar = True
    whole = True
    lowered = lowering.LoweredDiscrete

    def __init__(self, info: SpaceInfo, *args: Any) -> None:
        super().__init__(info, *args)
        self.n = int(info.n or 0)
        self.input_width = self.n
        self.counts = (self.n,)
        self.choices = [(info.path, self.n)]
        self._dtype = np.dtype(info.dtype or "int64")
        #: Whether raw values are the environment's actions already.
        self._is_raw = info.start == 0 and self._dtype == np.int64

    @classmethod
    def of(cls, info: SpaceInfo, raw_kind: str, *args: Any) -> ActionCodec:
        if raw_kind == "onehot":
            return OneHotCodec(info, raw_kind, *args)
        return cls(info, raw_kind, *args)

    def adapt(self, raw: Array) -> Any:
        values = raw[:, 0]
        if self._is_raw:
            return values.copy() if raw.dtype is self._dtype else values.astype(self._dtype)
        return values.astype(self._dtype) + self._dtype.type(self.info.start)

    def invert(self, action: Actions) -> Array:
        """Return raw actions `[B, 1]` for environment actions, counted from 0."""
        values = self._to_numbers(action)
        with np.errstate(invalid="ignore"):  # NaN and infinities differ from any integer below
            integers = values.astype(np.int64)
            raw: Array = integers - self.info.start
        inside = (integers == values) & (raw >= 0) & (raw < self.n)
        self._check_inside(
            inside, values, f"integers from {self.info.start} to {self.info.start + self.n - 1}"
        )
        return raw[:, None]

    def inputs(self, raw: Array) -> Array:
        return one_hot(raw[:, 0], self.n)

    def _mask_rows(self, array: Array) -> Array:
        # Not flattened: the caller reports a mask with more axes, which is a mistake.
        return array


class OneHotCodec(DiscreteCodec):
    """Codec for one of n values, sampled as an exact or relaxed one-hot vector whose largest entry
    gives the value.
    """

    scalar = False
    whole = False
    clips = True
    lowered = lowering.LoweredOneHot

    def __init__(self, info: SpaceInfo, *args: Any) -> None:
        super().__init__(info, *args)
        self.width = self.n
        self.counts = None  # raw values are the vector's numbers, not choices

    def adapt(self, raw: Array) -> Any:
        return raw.argmax(axis=1).astype(self._dtype) + self._dtype.type(self.info.start)

    def invert(self, action: Actions) -> Array:
        values = super().invert(action)[:, 0]
        return one_hot(values, self.n)

    def inputs(self, raw: Array) -> Array:
        return raw.astype(np.float32, copy=False)

    def shown(self, raw: Array) -> Array:
        return raw

    def mask_taken(self, raw: Array) -> Array:
        return np.expand_dims(raw.argmax(axis=1), 1)


class _IntegersCodec(_EntryByEntry):
    """Codec for integers between two bounds, exact for every integer dtype; raw values count from
    0.
    """

    lowered: ClassVar[type[LoweredActions] | None] = lowering.LoweredIntegers

    def _set_range(self, low: Array, span: Array) -> None:
        """Set the lowest values, and their distances to the highest values.

        uint64 represents the distance between any two integers; sums are modulo 2^64, as for all
        integer dtypes.
        """
        self.low = low
        self.span = span
        #: The lowest values modulo 2^64.
        self._first = low.astype(np.uint64)

    @property
    def paths(self) -> list[str]:
        return _paths(self.info)

    @cached_property
    def counts(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(int(span) + 1 for span in self.span.reshape(-1))

    def adapt(self, raw: Array) -> Array:
        distances = np.minimum(_whole(raw.reshape(len(raw), *self.low.shape)), self.span)
        return (self._first + distances).astype(self.low.dtype)

    def invert(self, action: Actions) -> Array:
        """Return raw actions `[B, width]` for environment actions: their distances from the lowest
        values.
        """
        values = self._exact(action)
        expected = f"integers of {self.info.space}"
        try:
            with np.errstate(invalid="ignore"):
                integers = values.astype(self.low.dtype)
        except (OverflowError, ValueError):
            # NumPy raises them for Python numbers, such as 2**70 or NaN in an object array.
            raise self._no_action(expected, "others") from None
        distances: Array = integers.astype(np.uint64) - self._first
        # Below the lowest value, the difference wraps around to a number above the span.
        inside = (integers == values) & (distances <= self.span)
        self._check_inside(inside.astype(np.bool_), values, expected)
        raw = distances.reshape(len(distances), self.width)
        fits_into_int64 = self.span.max(initial=0) <= _INT64_MAX
        return raw.astype(np.int64) if fits_into_int64 else raw

    def _exact(self, action: Actions) -> Array:
        """Return a batch in the same form as `_given`; numbers without a common dtype stay Python
        numbers.
        """
        values = self._to_numbers(action)
        # The user's array or tensor. Of a list with large integers, NumPy would make floats.
        if hasattr(action, "dtype"):
            return values
        return np.asarray(action, object).reshape(values.shape)


class MultiDiscreteCodec(_IntegersCodec):
    """Codec for several choices, in C order; each raw value counts from 0."""

    whole = True
    lowered = lowering.LoweredChoices

    def __init__(self, info: SpaceInfo, *args: Any) -> None:
        super().__init__(info, *args)
        low = np.asarray(info.start, info.dtype or "int64")
        span = info.nvec.astype(np.uint64) - np.uint64(1)  # from the lowest to the highest value
        self._set_range(low, span)
        self.choices = list(zip(self.paths, self.counts, strict=True))
        self.input_width = self.mask_width
        #: Where the one-hot vector of each choice begins.
        self._starts = np.cumsum(self.counts, dtype=np.int64) - np.array(self.counts, np.int64)

    def inputs(self, raw: Array) -> Array:
        onehots = np.zeros((len(raw), self.input_width), np.float32)
        np.put_along_axis(onehots, raw.astype(np.int64) + self._starts, 1.0, axis=1)
        return onehots

    def _join_masks(self, masks: Mask, rows: int | None) -> Array:
        """Concatenate the masks of all choices into one array."""
        arrays = [np.asarray(part) for part in lowering.mask_leaves(masks)]
        shapes = [array.shape for array in arrays]
        # -1 for an array without batch axis, which differs from every count.
        widths = [shape[-1] if len(shape) == 2 else -1 for shape in shapes]
        counts = list(self.counts)
        if widths != counts:
            raise self._bad_mask(f"arrays of shape [B, n] with n = {counts}", str(shapes))
        return np.concatenate(arrays, axis=1)


class MultiBinaryCodec(_EntryByEntry):
    """Codec for bits; a mask has two columns per bit, which say whether it may be 0 and whether it
    may be 1.

    In Gymnasium's format, a mask has one value per bit: 0 or 1 requires this value, and 2 allows
    both.
    """

    whole = True
    lowered = lowering.LoweredBits

    def __init__(self, info: SpaceInfo, *args: Any) -> None:
        super().__init__(info, *args)
        self.counts = (2,) * self.width
        self.choices = [(path, 2) for path in _paths(info)]

    def invert(self, action: Actions) -> Array:
        values = self._to_numbers(action)
        self._check_inside((values == 0) | (values == 1), values, "0 or 1")
        return values.reshape(len(values), self.width).astype(np.int64)

    @property
    def mask_places(self) -> list[tuple[int, int]]:
        places = []
        for bit in range(self.width):
            # The columns of 0 and of 1: a mask value of 1 forbids 0, and a mask value of 0
            # forbids 1.
            places += [(bit, 1), (bit, 0)]
        return places

    def _mask_rows(self, array: Array) -> Array:
        """Turn a mask with a number for each bit into two columns for each bit."""
        if not array.ndim or array.shape[1:] != self.info.shape:
            return super()._mask_rows(array)
        bits = array.reshape(len(array), -1)
        is_valid = (bits == 0) | (bits == 1) | (bits == 2)
        if not is_valid.all():
            raise self._bad_mask("values 0, 1 or 2, where 2 means either", bits[~is_valid][0])
        may_be_0 = bits != 1
        may_be_1 = bits != 0
        return np.stack([may_be_0, may_be_1], axis=2).reshape(len(array), -1)


class BoxCodec(_EntryByEntry):
    """Codec for numbers between bounds; `bounds` selects how values are brought within them.

    Attributes:
        affine: Whether raw values are scaled before they are clipped.
        scale: Factors of the scaling, in the space's shape; 1 for values that are only clipped.
        middle: What is added then; 0 for values that are only clipped.
    """

    clips = True
    lowered = lowering.LoweredBox

    def __init__(self, info: SpaceInfo, *args: Any) -> None:
        super().__init__(info, *args)
        self._dtype = np.dtype(info.dtype or "float32")
        # The config's rule for reaching the bounds; a bounded distribution draws values within them
        # already.
        rule = "clip" if self.raw_kind == "bounded" else self.bounds
        self._is_scaled = is_scaled(info.low, info.high, rule)
        low = np.where(self._is_scaled, info.low, -1).astype(np.float64)
        high = np.where(self._is_scaled, info.high, 1).astype(np.float64)
        self.scale = high / 2 - low / 2
        self.middle = high / 2 + low / 2
        # Scaling from [-1, 1] to [-1, 1] changes nothing.
        self.affine = bool((self.scale != 1).any() or self.middle.any())
        # Without bounds, the dtype's range bounds the value; clip before casting.
        limits = np.finfo(self._dtype)
        self.lowest = np.maximum(info.low, limits.min)
        self.highest = np.minimum(info.high, limits.max)

    @classmethod
    def of(cls, info: SpaceInfo, *args: Any) -> ActionCodec:
        if info.is_integer_box:
            return IntegerBoxCodec(info, *args)
        return cls(info, *args)

    def adapt(self, raw: Array) -> Array:
        value = raw.reshape(len(raw), *self.lowest.shape)
        if self.affine:
            value = value * self.scale + self.middle
        inside: Array = np.minimum(np.maximum(value, self.lowest), self.highest)
        return inside.astype(self._dtype, copy=False)

    def invert(self, action: Actions) -> Array:
        """Return raw actions `[B, width]` for environment actions."""
        values = self._to_numbers(action)
        with np.errstate(over="ignore"):  # infinities are outside the bounds
            value = values.astype(self._dtype, copy=False)
        inside = (value >= self.lowest) & (value <= self.highest)
        self._check_inside(
            inside,
            values,
            f"values within the bounds of {self.info.space}",
        )
        if self.affine:
            # Between equal bounds there is one value, and its scale is 0.
            divisor = np.where(self.scale > 0, self.scale, 1.0)
            value = (value.astype(np.float64) - self.middle) / divisor
        elif self._dtype == np.float16:
            value = value.astype(np.float32)  # raw actions are at least float32
        return value.reshape(len(value), self.width)

    @property
    def limits(self) -> tuple[Array, Array]:
        low: Array = self.info.low.reshape(-1).astype(np.float64)
        high: Array = self.info.high.reshape(-1).astype(np.float64)
        if self.affine:
            is_scaled_entry = self._is_scaled.reshape(-1)
            low = np.where(is_scaled_entry, -1.0, low)
            high = np.where(is_scaled_entry, 1.0, high)
        return low, high

    @property
    def stored_form(self) -> tuple[np.dtype[Any], tuple[int | None, ...]]:
        return np.dtype(np.float32), (None, *(self.info.shape or ()))


class IntegerBoxCodec(_IntegersCodec):
    """Integers between bounds."""

    clips = True
    lowered = lowering.LoweredIntegerBox

    def __init__(self, info: SpaceInfo, *args: Any) -> None:
        super().__init__(info, *args)
        span = info.high.astype(np.uint64) - info.low.astype(np.uint64)
        self._set_range(info.low, span)
        self._spread = np.maximum(self.span.astype(np.float64), 1.0).reshape(-1)

    def inputs(self, raw: Array) -> Array:
        """Return raw values as fractions of the range between the bounds."""
        return (raw / self._spread).astype(np.float32)

    @property
    def stored_form(self) -> tuple[np.dtype[Any], tuple[int | None, ...]]:
        is_integer = self.low.dtype.kind in "iu"
        dtype = np.dtype(np.int32 if is_integer else np.float32)
        return dtype, (None, *(self.info.shape or ()))


class SimplexCodec(_EntryByEntry):
    """Codec for probability vectors, which distributions sample directly."""

    lowered = LoweredActions
    stored_form = BoxCodec.stored_form

    def invert(self, action: Actions) -> Array:
        values = self._to_numbers(action)
        sums = np.broadcast_to(values.sum(-1, keepdims=True), values.shape)
        # The tolerance of `Simplex.contains`.
        inside = (values >= 0) & np.isclose(sums, 1.0, rtol=0, atol=1e-3)
        self._check_inside(inside, values, "parts from 0 to 1 that add up to 1 along the last axis")
        return values.reshape(len(values), self.width)


#: The highest float64 that is a uint64.
_BELOW_2_64 = np.nextafter(2.0**64, 0)


def _whole(raw: Array) -> Array:
    """Return raw values as uint64 integers that count from 0; round floats, which mixed actions
    store.
    """
    if raw.dtype.kind == "f":
        raw = np.minimum(np.rint(raw.astype(np.float64)), _BELOW_2_64)
    may_be_negative = raw.dtype.kind not in "ub"
    if may_be_negative:
        raw = np.maximum(raw, 0)
    return raw.astype(np.uint64)


def _paths(info: SpaceInfo) -> list[str]:
    """Return the paths of a space's entries, in C order."""
    paths = []
    for place in np.ndindex(info.shape or ()):
        indices = ", ".join(map(str, place))
        paths.append(f"{info.path}[{indices}]")
    return paths
