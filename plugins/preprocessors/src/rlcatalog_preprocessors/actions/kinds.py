"""Codecs for Gymnasium's action spaces that consist of choices or numbers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from rlcatalog import SpaceInfo, one_hot
from rlcatalog.actions import ActionCodec, LoweredActions, is_scaled
from rlcatalog.errors import shown
from rlcatalog_preprocessors.actions import lowering

Array = np.ndarray[Any, Any]

_INT64_MAX = np.iinfo(np.int64).max


class _EntryByEntry(ActionCodec):
    """Base class for codecs that check actions entry by entry."""

    def _check_inside(self, inside: Array, given: Array, expected: str) -> None:
        """Raise an error unless all values of a batch are allowed (True in `inside`)."""
        if not inside.all():
            row, *place = (int(i) for i in np.argwhere(~inside)[0])
            where = f"row {row}{f', at {place}' if place else ''}"
            value = given[(row, *place)]
            raise self._no_action(
                expected, f"{shown(getattr(value, 'item', lambda: value)())} in {where}"
            )


class DiscreteCodec(_EntryByEntry):
    """Codec for one of n values; raw values count from 0, and the codec adds the
    space's `start`.
    """

    scalar = whole = True
    lowered = lowering.LoweredDiscrete

    def __init__(self, info: SpaceInfo, *others: Any) -> None:
        super().__init__(info, *others)
        self.n = self.input_width = int(info.n or 0)
        self.counts = (self.n,)
        self.choices = [(info.path, self.n)]
        self._dtype = np.dtype(info.dtype or "int64")
        self._as_drawn = info.start == 0 and self._dtype == np.int64

    @classmethod
    def of(cls, info: SpaceInfo, raw_kind: str, *others: Any) -> ActionCodec:
        return (OneHotCodec if raw_kind == "onehot" else cls)(info, raw_kind, *others)

    def adapt(self, raw: Array) -> Any:
        values = raw[:, 0]
        if self._as_drawn:
            return values.copy() if raw.dtype is self._dtype else values.astype(self._dtype)
        return values.astype(self._dtype) + self._dtype.type(self.info.start)

    def invert(self, action: Any) -> Array:
        given = self._given(action)
        with np.errstate(invalid="ignore"):
            whole = given.astype(np.int64)
            counted: Array = whole - self.info.start
        inside = (whole == given) & (counted >= 0) & (counted < self.n)
        self._check_inside(
            inside, given, f"integers from {self.info.start} to {self.info.start + self.n - 1}"
        )
        return counted[:, None]

    def inputs(self, raw: Array) -> Array:
        return one_hot(raw[:, 0], self.n)

    def _mask_rows(self, array: Array) -> Array:
        return array  # one with more axes is a mistake


class OneHotCodec(DiscreteCodec):
    """Codec for one of n values, sampled as an exact or relaxed one-hot vector whose largest entry
    gives the value.
    """

    scalar = whole = False
    clips = True
    lowered = lowering.LoweredOneHot

    def __init__(self, info: SpaceInfo, *others: Any) -> None:
        super().__init__(info, *others)
        self.width, self.counts = self.n, None

    def adapt(self, raw: Array) -> Any:
        return raw.argmax(axis=1).astype(self._dtype) + self._dtype.type(self.info.start)

    def invert(self, action: Any) -> Array:
        return one_hot(super().invert(action)[:, 0], self.n)

    def inputs(self, raw: Array) -> Array:
        return raw.astype(np.float32, copy=False)

    def shown(self, raw: Array) -> Array:
        return raw

    def mask_taken(self, raw: Array) -> Array:
        return np.expand_dims(raw.argmax(axis=1), 1)


class _CountedCodec(_EntryByEntry):
    """Codec for integers between two bounds, exact for every integer dtype; raw values count from
    0.
    """

    lowered: ClassVar[type[LoweredActions] | None] = lowering.LoweredCounted

    def _count(self, low: Array, span: Array) -> None:
        """Set the lowest values, and their distances to the highest values.

        uint64 represents the distance between any two integers; sums are modulo 2^64, as for all
        integer dtypes.
        """
        self.low, self.span = low, span
        self._first = low.astype(np.uint64)

    @property
    def paths(self) -> list[str]:
        return _paths(self.info)

    @cached_property
    def counts(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(int(most) + 1 for most in self.span.reshape(-1))

    def adapt(self, raw: Array) -> Array:
        counted = _whole(raw.reshape(len(raw), *self.low.shape))
        return (self._first + np.minimum(counted, self.span)).astype(self.low.dtype)

    def invert(self, action: Any) -> Array:
        given, expected = self._exact(action), f"integers of {self.info.space}"
        try:
            with np.errstate(invalid="ignore"):
                whole = given.astype(self.low.dtype)
        except (OverflowError, ValueError):  # of Python numbers
            raise self._no_action(expected, "others") from None
        counted: Array = whole.astype(np.uint64) - self._first
        # Below the lowest bound, the result is too high.
        inside = (whole == given) & (counted <= self.span)
        self._check_inside(inside.astype(np.bool_), given, expected)
        flat = counted.reshape(len(counted), self.width)
        return flat if self.span.max(initial=0) > _INT64_MAX else flat.astype(np.int64)

    def _exact(self, action: Any) -> Array:
        """Return a batch in the same form as `_given`; numbers without a common dtype stay Python
        numbers.
        """
        given = self._given(action)
        return (
            given if hasattr(action, "dtype") else np.asarray(action, object).reshape(given.shape)
        )


class MultiDiscreteCodec(_CountedCodec):
    """Codec for several choices, in C order; each raw value counts from 0."""

    whole = True
    lowered = lowering.LoweredChoices

    def __init__(self, info: SpaceInfo, *others: Any) -> None:
        super().__init__(info, *others)
        self._count(
            np.asarray(info.start, info.dtype or "int64"),
            info.nvec.astype(np.uint64) - np.uint64(1),
        )
        self.choices = list(zip(self.paths, self.counts, strict=True))
        self.input_width = self.mask_width
        self._starts = np.cumsum(self.counts, dtype=np.int64) - np.array(self.counts, np.int64)

    def inputs(self, raw: Array) -> Array:
        found = np.zeros((len(raw), self.input_width), np.float32)
        np.put_along_axis(found, raw.astype(np.int64) + self._starts, 1.0, axis=1)
        return found

    def _join_masks(self, masks: Any, rows: int | None) -> Array:
        arrays = [np.asarray(part) for part in _leaves(masks)]
        counts = list(self.counts)
        if [array.shape[-1] if array.ndim == 2 else -1 for array in arrays] != counts:
            raise self._bad_mask(
                f"arrays of shape [B, n] with n = {counts}", [array.shape for array in arrays]
            )
        return np.concatenate(arrays, axis=1)


class MultiBinaryCodec(_EntryByEntry):
    """Codec for bits; a mask has two columns per bit, which say whether it may be 0 and whether it
    may be 1.

    In Gymnasium's format, a mask has one value per bit: 0 or 1 requires this value, and 2 allows
    both.
    """

    whole = True
    lowered = LoweredActions

    def __init__(self, info: SpaceInfo, *others: Any) -> None:
        super().__init__(info, *others)
        self.counts = (2,) * self.width
        self.choices = [(path, 2) for path in _paths(info)]

    def invert(self, action: Any) -> Array:
        given = self._given(action)
        self._check_inside((given == 0) | (given == 1), given, "0 or 1")
        return given.reshape(len(given), self.width).astype(np.int64)

    @property
    def mask_places(self) -> list[tuple[int, int]]:
        return [(bit, forbidding) for bit in range(self.width) for forbidding in (1, 0)]

    def _mask_rows(self, array: Array) -> Array:
        if not array.ndim or array.shape[1:] != self.info.shape:
            return super()._mask_rows(array)
        bits = array.reshape(len(array), -1)
        known = (bits == 0) | (bits == 1) | (bits == 2)
        if not known.all():
            raise self._bad_mask("values 0, 1 or 2, where 2 means either", bits[~known][0])
        return np.stack([bits != 1, bits != 0], axis=2).reshape(len(array), -1)


class BoxCodec(_EntryByEntry):
    """Codec for numbers between bounds; `bounds` selects how values are brought within them.

    Attributes:
        affine: Whether raw values are scaled before they are clipped.
        scale: Factors of the scaling, in the space's shape; 1 for values that are only clipped.
        middle: What is added then; 0 for values that are only clipped.
    """

    clips = True
    lowered = lowering.LoweredBox

    def __init__(self, info: SpaceInfo, *others: Any) -> None:
        super().__init__(info, *others)
        self._dtype = np.dtype(info.dtype or "float32")
        # A bounded distribution draws values within the bounds already.
        rule = "clip" if self.raw_kind == "bounded" else self.bounds
        self._scaled = is_scaled(info.low, info.high, rule)
        low = np.where(self._scaled, info.low, -1).astype(np.float64)
        high = np.where(self._scaled, info.high, 1).astype(np.float64)
        self.scale, self.middle = high / 2 - low / 2, high / 2 + low / 2
        # Scaling from [-1, 1] to [-1, 1] changes nothing.
        self.affine = bool((self.scale != 1).any() or self.middle.any())
        # Without bounds, the dtype's range bounds the value; clip before casting.
        limits = np.finfo(self._dtype)
        self.lowest, self.highest = (
            np.maximum(info.low, limits.min),
            np.minimum(info.high, limits.max),
        )

    @classmethod
    def of(cls, info: SpaceInfo, *others: Any) -> ActionCodec:
        return (IntegerBoxCodec if info.is_integer_box else cls)(info, *others)

    def adapt(self, raw: Array) -> Array:
        value = raw.reshape(len(raw), *self.lowest.shape)
        if self.affine:
            value = value * self.scale + self.middle
        inside: Array = np.minimum(np.maximum(value, self.lowest), self.highest)
        return inside.astype(self._dtype, copy=False)

    def invert(self, action: Any) -> Array:
        given = self._given(action)
        with np.errstate(over="ignore"):
            value = given.astype(self._dtype, copy=False)
        inside = (value >= self.lowest) & (value <= self.highest)
        self._check_inside(
            inside,
            given,
            f"values within the bounds of {self.info.space} (numpy.clip brings them there)",
        )
        if self.affine:
            # Between equal bounds there is one value.
            scaled = np.where(self.scale > 0, self.scale, 1.0)
            value = (value.astype(np.float64) - self.middle) / scaled
        elif self._dtype.itemsize < 4:
            value = value.astype(np.float32)
        return value.reshape(len(value), self.width)

    @property
    def limits(self) -> tuple[Array, Array]:
        low, high = (
            bound.reshape(-1).astype(np.float64) for bound in (self.info.low, self.info.high)
        )
        if self.affine:
            scaled = self._scaled.reshape(-1)
            low, high = np.where(scaled, -1.0, low), np.where(scaled, 1.0, high)
        return low, high

    @property
    def stored_form(self) -> tuple[np.dtype[Any], tuple[int | None, ...]]:
        return np.dtype(np.float32), (None, *(self.info.shape or ()))


class IntegerBoxCodec(_CountedCodec):
    """Integers between bounds."""

    clips = True
    lowered = lowering.LoweredIntegerBox

    def __init__(self, info: SpaceInfo, *others: Any) -> None:
        super().__init__(info, *others)
        self._count(info.low, info.high.astype(np.uint64) - info.low.astype(np.uint64))
        self._spread = np.maximum(self.span.astype(np.float64), 1.0).reshape(-1)

    def inputs(self, raw: Array) -> Array:
        """Return raw values as fractions of the range between the bounds."""
        return (raw / self._spread).astype(np.float32)

    @property
    def stored_form(self) -> tuple[np.dtype[Any], tuple[int | None, ...]]:
        whole = self.low.dtype.kind in "iu"
        return np.dtype(np.int32 if whole else np.float32), (None, *(self.info.shape or ()))


class SimplexCodec(_EntryByEntry):
    """Codec for probability vectors, which distributions sample directly."""

    lowered = LoweredActions
    stored_form = BoxCodec.stored_form

    def invert(self, action: Any) -> Array:
        given = self._given(action)
        sums = np.broadcast_to(given.sum(-1, keepdims=True), given.shape)
        inside = (given >= 0) & np.isclose(sums, 1.0, rtol=0, atol=1e-3)  # as in the space itself
        self._check_inside(inside, given, "parts from 0 to 1 that add up to 1 along the last axis")
        return given.reshape(len(given), self.width)


#: The highest float64 that is a uint64.
_BELOW_2_64 = np.nextafter(2.0**64, 0)


def _whole(raw: Array) -> Array:
    """Return raw values as uint64 integers that count from 0; round floats, which mixed actions
    store.
    """
    if raw.dtype.kind == "f":
        raw = np.minimum(np.rint(raw.astype(np.float64)), _BELOW_2_64)
    return raw.astype(np.uint64) if raw.dtype.kind in "ub" else np.maximum(raw, 0).astype(np.uint64)


def _paths(info: SpaceInfo) -> list[str]:
    """Return the paths of a space's entries, in C order."""
    return [f"{info.path}[{', '.join(map(str, place))}]" for place in np.ndindex(info.shape or ())]


def _leaves(mask: Any) -> Iterator[Any]:
    for part in mask:
        yield from _leaves(part) if isinstance(part, tuple) else [part]
