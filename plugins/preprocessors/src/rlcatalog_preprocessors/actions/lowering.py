"""Action codecs as operations in any tensor library, for exported policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlcatalog.actions import ActionCodec, LoweredActions
from rlcatalog.frameworks import TensorOps


class LoweredDiscrete(LoweredActions):
    """One of n values."""

    codec: Any

    def leaf(self, raw: Any) -> Any:
        return self._started(raw[:, 0])

    def inputs(self, raw: Any) -> Any:
        return self.ops.one_hot(self.ops.as_type(raw[:, 0], "int64"), self.codec.n)

    def _started(self, values: Any) -> Any:
        values, start = self.ops.as_type(values, "int64"), int(self.codec.info.start)
        return self.typed(values + start if start else values)


class LoweredOneHot(LoweredDiscrete):
    """One of n values, sampled as a one-hot vector."""

    def leaf(self, raw: Any) -> Any:
        return self._started(self.ops.argmax(raw))

    def inputs(self, raw: Any) -> Any:
        return self.ops.as_type(raw, "float32")

    def shown(self, raw: Any) -> Any:
        return raw


class LoweredCounted(LoweredActions):
    """Integers between two bounds."""

    codec: Any

    def leaf(self, raw: Any) -> Any:
        ops, low = self.ops, self.codec.low
        whole = ops.maximum(ops.as_type(ops.whole(raw), "int64"), 0)
        counted = ops.rows(whole, low.shape)
        # Sums are modulo 2^64, as in the codec; raw values never exceed a span above int64.
        span = np.minimum(
            self.codec.span.astype(np.uint64), np.uint64(np.iinfo(np.int64).max)
        ).astype(np.int64)
        counted = ops.minimum(counted, self.constant(span, counted))
        first = low.astype(np.uint64).view(np.int64)
        return self.typed(counted + self.constant(first, counted) if first.any() else counted)


class LoweredChoices(LoweredCounted):
    """Several choices."""

    def inputs(self, raw: Any) -> Any:
        counts = np.array(self.codec.counts, np.int64)
        entries = np.repeat(np.arange(len(counts)), counts)
        values = np.arange(len(entries)) - (np.cumsum(counts) - counts)[entries]
        own = self.ops.columns_at(self.ops.as_type(raw, "int64"), entries)
        return self.ops.as_type(own == self.constant(values, own), "float32")


class LoweredIntegerBox(LoweredCounted):
    """Integers in a Box."""

    def inputs(self, raw: Any) -> Any:
        spread = np.maximum(self.codec.span.astype(np.float64), 1.0).reshape(-1)
        wide = self.ops.as_type(raw, "float64")
        return self.ops.as_type(wide / self.constant(spread, wide), "float32")


class LoweredBox(LoweredActions):
    """Numbers between bounds."""

    codec: Any

    def leaf(self, raw: Any) -> Any:
        ops, codec = self.ops, self.codec
        low, high, dtype = codec.lowest, codec.highest, codec.info.dtype or "float32"
        value = ops.rows(raw, low.shape)
        if codec.affine or dtype == "float64":  # like NumPy's promotion
            value = ops.as_type(value, "float64")
        wide = "float64" if codec.affine or dtype == "float64" else "float32"
        if codec.affine:
            value = value * self.constant(codec.scale, value) + self.constant(codec.middle, value)
        if (
            np.isfinite(codec.info.low).any()
            or np.isfinite(codec.info.high).any()
            or dtype == "float16"
        ):
            low, high = (
                self.constant(low.astype(wide), value),
                self.constant(high.astype(wide), value),
            )
            value = ops.minimum(ops.maximum(value, low), high)
        return self.typed(value)


class LoweredComposite(LoweredActions):
    """The concatenated children of a Tuple or Dict."""

    def __init__(self, codec: Any, ops: TensorOps) -> None:
        super().__init__(codec, ops)
        self.parts = [(child.lowered(child, ops), span) for child, span in codec.parts]

    def adapt(self, raw: Any) -> Iterator[tuple[ActionCodec, Any]]:
        for child, span in self.parts:
            yield from child.adapt(raw[:, span])

    def inputs(self, raw: Any) -> Any:
        return self.ops.concat([child.inputs(raw[:, span]) for child, span in self.parts], 1)

    def shown(self, raw: Any) -> Any:
        return self.codec.info.join([child.shown(raw[..., span]) for child, span in self.parts])
