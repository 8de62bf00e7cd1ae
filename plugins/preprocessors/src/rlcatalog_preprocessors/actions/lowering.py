"""Action codecs as operations in any tensor library, for tensors and for exported policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlcatalog.actions import ActionCodec, LoweredActions
from rlcatalog.frameworks import Array, Tensor, TensorOps


class LoweredDiscrete(LoweredActions):
    """One of n values."""

    codec: Any

    def leaf(self, raw: Tensor) -> Any:
        return self._with_start(raw[:, 0])

    def inputs(self, raw: Tensor) -> Any:
        return self.ops.one_hot(self.ops.as_type(raw[:, 0], "int64"), self.codec.n)

    def mask_rows(self, mask: Tensor, rows: int, valid: list[Any]) -> Any:
        # Not flattened: a mask with more axes is a mistake.
        return self.columns_as_they_are(mask, rows, valid)

    def _with_start(self, values: Tensor) -> Any:
        """Return values that count from 0 as values of the space."""
        start = int(self.codec.info.start)
        integers = self.ops.as_type(values, "int64")
        if start:
            integers = integers + start
        return self.typed(integers)


class LoweredOneHot(LoweredDiscrete):
    """One of n values, sampled as a one-hot vector."""

    def leaf(self, raw: Tensor) -> Any:
        return self._with_start(self.ops.argmax(raw))

    def inputs(self, raw: Tensor) -> Any:
        return self.ops.as_type(raw, "float32")

    def shown(self, raw: Tensor) -> Any:
        return raw

    def mask_taken(self, raw: Tensor) -> Any:
        return self.ops.argmax(raw)[:, None]


class LoweredIntegers(LoweredActions):
    """Integers between two bounds."""

    codec: Any

    def leaf(self, raw: Tensor) -> Any:
        """Compute the environment's integers from raw actions, as the codec's `adapt` does."""
        ops = self.ops
        low = self.codec.low
        rounded = ops.as_type(ops.whole(raw), "int64")
        distances = ops.rows(ops.maximum(rounded, 0), low.shape)
        # Raw values are int64, and never exceed a span above int64.
        largest = np.uint64(np.iinfo(np.int64).max)
        span = np.minimum(self.codec.span.astype(np.uint64), largest).astype(np.int64)
        distances = ops.minimum(distances, self.constant(span, distances))
        # Sums are modulo 2^64, as in the codec.
        first = low.astype(np.uint64).view(np.int64)
        if not first.any():
            return self.typed(distances)
        return self.typed(distances + self.constant(first, distances))


class LoweredChoices(LoweredIntegers):
    """Several choices."""

    def inputs(self, raw: Tensor) -> Any:
        """Compute one-hot vectors of raw actions, as the codec's `inputs` does."""
        counts = np.array(self.codec.counts, np.int64)
        # For each column of the one-hot vectors, its choice and the value that it stands for.
        choices = np.repeat(np.arange(len(counts)), counts)
        starts = np.cumsum(counts) - counts
        values = np.arange(len(choices)) - starts[choices]
        raw_of_columns = self.ops.columns_at(self.ops.as_type(raw, "int64"), choices)
        is_value = raw_of_columns == self.constant(values, raw_of_columns)
        return self.ops.as_type(is_value, "float32")

    def join_masks(self, masks: Any, rows: int, valid: list[Any]) -> Any:
        """Concatenate the masks of all choices, nested like the space's `nvec`."""
        parts = list(mask_leaves(masks))
        shapes = [tuple(part.shape) for part in parts]
        expected_shapes = [(rows, count) for count in self.codec.counts]
        if shapes != expected_shapes:
            counts = list(self.codec.counts)
            raise self.bad_mask(f"tensors of shape [B, n] with n = {counts}", str(shapes))
        same_dtype = [self.ops.as_type(part, self.ops.dtype_name(parts[0])) for part in parts]
        return self.columns_as_they_are(self.ops.concat(same_dtype, axis=1), rows, valid)


class LoweredBits(LoweredActions):
    """Bits, whose masks have a number for each bit, or two columns."""

    codec: Any

    def mask_rows(self, mask: Tensor, rows: int, valid: list[Any]) -> Any:
        """Turn a mask with a number for each bit into two columns for each bit."""
        ops = self.ops
        if tuple(mask.shape[1:]) != self.codec.info.shape:
            return super().mask_rows(mask, rows, valid)
        if mask.shape[0] != rows:
            shape = tuple(mask.shape)
            raise self.bad_mask(f"{rows} rows", f"shape {shape}")
        bits = ops.as_type(ops.flat(mask), "float32")
        valid.append(ops.all((bits == 0) | (bits == 1) | (bits == 2)))
        may_be_0 = bits != 1
        may_be_1 = bits != 0
        both = ops.concat([may_be_0[:, :, None], may_be_1[:, :, None]], axis=2)
        return ops.flat(both)


class LoweredIntegerBox(LoweredIntegers):
    """Integers in a Box."""

    def inputs(self, raw: Tensor) -> Any:
        spread = np.maximum(self.codec.span.astype(np.float64), 1.0).reshape(-1)
        wide = self.ops.as_type(raw, "float64")
        return self.ops.as_type(wide / self.constant(spread, wide), "float32")


class LoweredBox(LoweredActions):
    """Numbers between bounds."""

    codec: Any

    def __init__(self, codec: ActionCodec, ops: TensorOps) -> None:
        super().__init__(codec, ops)
        info = self.codec.info
        # The codec's NumPy code computes in float64 in these cases too.
        is_wide = self.codec.affine or info.dtype == "float64"
        #: The dtype that values are computed in.
        self._dtype = "float64" if is_wide else "float32"
        #: The lowest and highest values, or None without bounds.
        self._bounds: tuple[Array, Array] | None = None
        has_bounds = np.isfinite(info.low).any() or np.isfinite(info.high).any()
        # The range of float16 bounds values too.
        if has_bounds or info.dtype == "float16":
            low = self.codec.lowest.astype(self._dtype)
            self._bounds = low, self.codec.highest.astype(self._dtype)

    def leaf(self, raw: Tensor) -> Any:
        """Compute the environment's numbers from raw actions, as the codec's `adapt` does."""
        ops = self.ops
        codec = self.codec
        value = ops.rows(raw, codec.lowest.shape)
        if self._dtype == "float64":
            value = ops.as_type(value, "float64")
        if codec.affine:  # raw values are scaled to the bounds
            value = value * self.constant(codec.scale, value) + self.constant(codec.middle, value)
        if self._bounds is not None:
            low, high = self._bounds
            value = ops.clip(value, self.constant(low, value), self.constant(high, value))
        return self.typed(value)


class LoweredComposite(LoweredActions):
    """The concatenated children of a Tuple or Dict."""

    def __init__(self, codec: ActionCodec, ops: TensorOps) -> None:
        super().__init__(codec, ops)
        #: Each child with its columns of raw actions.
        self.parts: list[tuple[LoweredActions, slice]] = []
        start = 0
        for child in codec.children:
            assert child.lowered is not None, "an export asks whether all children have it"
            stop = start + child.width
            self.parts.append((child.lowered(child, ops), slice(start, stop)))
            start = stop

    def adapt(self, raw: Tensor) -> Iterator[tuple[ActionCodec, Any]]:
        for child, span in self.parts:
            yield from child.adapt(raw[:, span])

    def inputs(self, raw: Tensor) -> Any:
        inputs = [child.inputs(raw[:, span]) for child, span in self.parts]
        return self.ops.concat(inputs, axis=1)

    def shown(self, raw: Tensor) -> Any:
        parts = [child.shown(raw[..., span]) for child, span in self.parts]
        return self.codec.info.join(parts)

    def join_masks(self, masks: Any, rows: int, valid: list[Any]) -> Any:
        """Concatenate the children's masks."""
        columns = []
        like = None
        for (child, _), mask in zip(self.parts, self._mask_parts(masks), strict=True):
            child_columns = child.mask_columns(mask, rows, valid)
            if child_columns is not None:
                like = child_columns
            columns.append((child.codec.mask_width, child_columns))
        if like is None:
            return None
        pieces = []
        for width, child_columns in columns:
            if child_columns is None:
                # Without a mask, everything is allowed.
                ones = self.constant(np.ones(width, np.bool_), like)
                child_columns = self.ops.expand(ones, rows)
            pieces.append(child_columns)
        return self.ops.concat(pieces, axis=1)

    def _mask_parts(self, masks: Any) -> list[Any]:
        """Return each child's mask, or None for a child without one.

        Raises:
            ActionMaskError: The masks do not have the space's structure.
        """
        info = self.codec.info
        if info.keys:  # a Dict; otherwise a Tuple
            if not isinstance(masks, Mapping) or set(masks) - set(info.keys):
                raise self.bad_mask(f"a dict with keys of {list(info.keys)}", f"{masks}"[:80])
            return [masks.get(key) for key in info.keys]
        if not isinstance(masks, tuple) or len(masks) != len(self.parts):
            raise self.bad_mask(f"a tuple of {len(self.parts)} masks", type(masks).__name__)
        return list(masks)

    def mask_taken(self, raw: Tensor) -> Any:
        columns = []
        start = 0  # the child's first mask column
        for child, span in self.parts:
            if child.codec.mask_width:
                taken = child.mask_taken(raw[:, span])
                if taken is None:
                    return None
                columns.append(taken + start)
            start += child.codec.mask_width
        return self.ops.concat(columns, axis=1) if columns else None


class LoweredOneOf(LoweredComposite):
    """The choice of a part, followed by every part; only the chosen part counts."""

    def inputs(self, raw: Tensor) -> Any:
        """Compute the model inputs of raw actions, as the codec's `inputs` does."""
        choice, span_of_choice = self.parts[0]
        raw_choices = raw[:, span_of_choice]
        chosen_places = choice.leaf(raw_choices)
        inputs = [choice.inputs(raw_choices)]
        for place, (part, span) in enumerate(self.parts[1:]):
            is_chosen = chosen_places == place
            inputs.append(self.ops.only(is_chosen, part.inputs(raw[:, span])))
        return self.ops.concat(inputs, axis=1)

    def shown(self, raw: Tensor) -> Any:
        return self.ops.as_type(raw, "int64" if self.codec.whole else "float32")


def mask_leaves(masks: Any) -> Iterator[Any]:
    """Yield the masks in tuples of masks, nested to any depth."""
    for part in masks:
        if isinstance(part, tuple):
            yield from mask_leaves(part)
        else:
            yield part
