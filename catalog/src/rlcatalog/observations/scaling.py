"""The rule for which integers in observations a net scales, and how."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlcatalog.config import KernelConfig, read_config
from rlcatalog.frameworks.ops import Array
from rlcatalog.observations.preprocessor import Leaf
from rlcatalog.observations.structure import preprocessor_of
from rlcatalog.spaces.info import Space, SpaceInfo

#: Largest difference between the bounds of an integer that is scaled: 8 bits in scalars and
#: vectors, 16 bits in images and other arrays. Wider integers are counters or identifiers, whose
#: typical values are far smaller than their bounds.
VECTOR_RANGE = 2**8 - 1
ARRAY_RANGE = 2**16 - 1


@dataclass(frozen=True, eq=False)
class Scaling:
    """How a net scales the numbers of an observation: it reads `(x - offset) * factor`.

    Attributes:
        offset: A number, or an array float32 in the shape of the observation.
        factor: The same.
    """

    offset: float | Array
    factor: float | Array

    def flat(self) -> Scaling:
        """Return the map for flattened observations."""
        return Scaling(_ravel(self.offset), _ravel(self.factor))


def scaling_of(space: Space, config: Mapping[str, Any]) -> Scaling | None:
    """Return how a net scales encoded observations; None if it reads them as they are.

    Integers of a Box are mapped by their own bounds to [0, 1], or to [-1, 1] if their lower bound
    is negative. Integers within [-1, 1], such as one-hot boards, stay as they are, and so do
    integers without bounds or with a wide range, all floats, and everything that a filter has
    changed.

    Args:
        space: The space of encoded observations that the net is built with.
        config: The model config; `scale_integers=False` disables the rule.
    """
    is_enabled = read_config(config, KernelConfig).scale_integers
    if not is_enabled or not _has_bounds(space):
        return None
    ranges = _integer_ranges(space)
    if not ranges.any():
        return None  # there are no integers
    low, high = _float64_bounds_of(space)
    offset, factor = scale_between(low, high, ranges)
    changes_nothing = not offset.any() and (factor == 1).all()
    if changes_nothing:
        return None
    shape = space.shape or ()
    return Scaling(_shorten(offset, shape), _shorten(factor, shape))


def scale_between(low: Array, high: Array, ranges: Array) -> tuple[Array, Array]:
    """Return the offset and the factor for each of several numbers.

    Args:
        low: Their lower bounds, float64 `[n]`.
        high: Their upper bounds.
        ranges: The largest difference between the bounds of an integer that is scaled; 0 for other
            numbers.
    """
    is_candidate = (ranges > 0) & np.isfinite(low) & np.isfinite(high)
    width = np.subtract(high, low, out=np.full(low.shape, np.inf), where=is_candidate)
    is_beyond_unit = (low < -1) | (high > 1)
    is_scaled = is_beyond_unit & (width <= ranges)
    lowest = low[is_scaled]
    width = width[is_scaled]
    is_signed = lowest < 0  # mapped to [-1, 1], others to [0, 1]
    offset = np.zeros(low.shape)
    factor = np.ones(low.shape)
    offset[is_scaled] = np.where(is_signed, lowest + width / 2, lowest)
    width_of_target = np.where(is_signed, 2.0, 1.0)
    # A constant has the width 0; it becomes 0 with any factor.
    factor[is_scaled] = width_of_target / np.where(width > 0, width, 1.0)
    return offset, factor


def describe_scalings(space: Space, leaves: Sequence[Leaf]) -> list[str]:
    """Return what a net does to the integers in each leaf of a preprocessor's plan, for `explain`.

    Args:
        space: The space of encoded observations that the net is built with.
        leaves: The leaves.

    Returns:
        For each leaf a text such as `"scaled to [0, 1]"`; empty if the leaf has no integers beyond
        [-1, 1].
    """
    if not _has_bounds(space):
        return ["" for _ in leaves]
    low, high = _float64_bounds_of(space)
    ranges = _integer_ranges(space)
    texts = []
    for leaf in leaves:
        columns = slice(leaf.start, leaf.stop)
        texts.append(_describe_scaling(low[columns], high[columns], ranges[columns]))
    return texts


def _describe_scaling(low: Array, high: Array, ranges: Array) -> str:
    """Return the text of `describe_scalings` for one leaf's numbers; see `scale_between`."""
    is_beyond = (ranges > 0) & ((low < -1) | (high > 1))
    if not is_beyond.any():
        return ""
    low = low[is_beyond]
    high = high[is_beyond]
    _, factor = scale_between(low, high, ranges[is_beyond])
    is_scaled = factor != 1
    if is_scaled.any():
        if low[is_scaled].min() < 0:
            return "scaled to [-1, 1]"
        return "scaled to [0, 1]"
    return f"not scaled: integers from {low.min():,.0f} to {high.max():,.0f}"


def largest_range(info: SpaceInfo) -> int:
    """Return the largest range of integers that nets scale in a space; 0 for other numbers."""
    if not info.is_integer_box or info.dtype == "bool":
        return 0
    return VECTOR_RANGE if len(info.shape or ()) < 2 else ARRAY_RANGE


def _has_bounds(space: Space) -> bool:
    """Return whether a space has bounds; without them, its numbers stand for categories."""
    return hasattr(space, "low")  # only Gymnasium's Box has the attribute


def bounds_of(space: Space) -> tuple[Array, Array]:
    """Return the lowest and the highest numbers of an encoded space, `[size]`."""
    box: Any = space
    return np.ravel(box.low), np.ravel(box.high)


def _float64_bounds_of(space: Space) -> tuple[Array, Array]:
    low, high = bounds_of(space)
    return low.astype(np.float64), high.astype(np.float64)


def _integer_ranges(space: Space) -> Array:
    """Return `Preprocessor.integer_ranges` for an encoded space, without what a filter changes."""
    codec = preprocessor_of(space)
    if codec is None or not codec.structured:
        # There is no encoding to ask, so the space's own dtype decides. A filter, or a preprocessor
        # that computes other numbers, returns floats.
        return np.full(math.prod(space.shape or ()), largest_range(SpaceInfo.read(space)))
    low, high = bounds_of(space)
    encoded_low, encoded_high = codec.bounds()
    is_filtered = (low != encoded_low) | (high != encoded_high)
    return np.where(is_filtered, 0, codec.integer_ranges())


def _shorten(values: Array, shape: tuple[int, ...]) -> float | Array:
    """Return one number if all values are equal, otherwise an array."""
    if (values == values[0]).all():
        return float(values[0])
    return values.astype(np.float32).reshape(shape)


def _ravel(values: float | Array) -> float | Array:
    if isinstance(values, float):
        return values
    return values.ravel()
