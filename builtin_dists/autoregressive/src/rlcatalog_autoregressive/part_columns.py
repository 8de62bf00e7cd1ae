"""Columns of an action's parts in flat tensors, and the masks for the hidden units (MADE)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionCodec, ActionMasks, action_codec, unbind
from rlcatalog.config import KernelConfig, read_config
from rlcatalog_autoregressive.config import AutoregressiveConfig, hidden_widths, ordered

Array = np.ndarray[Any, Any]


class Column(NamedTuple):
    """One input of the conditionals, computed from one raw value.

    Attributes:
        raw: The raw value's column.
        value: The value that this input indicates (its index in a one-hot vector), or -1 for a
            number.
        shift: Offset to subtract from a number.
        scale: Factor to apply afterwards.
    """

    raw: int
    value: int = -1
    shift: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True, eq=False)
class ActionPart:
    """Columns, distribution and position of one part of an action.

    Attributes:
        path: Path of the part, such as `action['arm'][0]`.
        dist: Factory for the part's distribution, called with `(inputs, model)`.
        draw: Factory for the distribution used in sampling, with the same arguments.
        params: Columns of its parameters.
        raw: Columns that hold the part's raw values.
        encoded: Encoded columns that show this part to later parts.
        single: Whether the raw values are integers `[B]`, which later parts see as one-hot vectors.
        counts: Number of choices for each raw value; empty unless all raw values are choices.
        masks: Mapping from the columns of a mask to choices.
        bits: Whether each parameter has two mask columns: one says whether the bit may be 0, one
            whether it may be 1.
        rank: Position of the part in the sampling order.
        place: Position of the part in the space's order.
        units: The part's units in each hidden layer, which only see earlier parts.
    """

    path: str
    dist: Any
    draw: Callable[[Any, Any], Any]
    params: slice
    raw: slice
    encoded: slice
    single: bool
    counts: tuple[int, ...]
    masks: ActionMasks
    bits: bool
    rank: int
    place: int
    units: tuple[slice, ...]


class PartColumns:
    """Layout of an action space's parts.

    Args:
        action: The action space.
        config: The model config.
        plain: Factory for the underlying distribution of independent parts.
        size: Number of inputs that `plain` takes.

    Attributes:
        action: The action space.
        plain: See above.
        parts: The parts, in sampling order.
        in_space: The parts in the space's order.
        params: Total number of parameters of all parts.
        raw: Number of raw values.
        hiddens: Widths of the hidden layers.
        activation: Activation of the hidden layers.
        mask: The user's mask function, or None.
        columns: The inputs of the conditionals; like parameters and raw values, they are in the
            space's order.
        param_widths: Number of parameters of each part, in the space's order.
        encoded_widths: Number of encoded columns of each part, in the space's order.
        unit_widths: Number of units that each part has in each hidden layer, in sampling order.
        prefixes: All combinations of values of all parts except the last, as raw actions
            `[P, raw]` with zeros for the last; None if there are too many combinations, or if a
            part is not discrete.
        is_exact: Whether entropies are computed as exact sums.
    """

    def __init__(self, action: SpaceInfo, config: Mapping[str, Any], plain: Any, size: int) -> None:
        own = read_config(config, AutoregressiveConfig)
        cls, options = unbind(plain)
        dists = (
            cls.parts(action, size, options) if hasattr(cls, "parts") else [(action, plain, size)]
        )
        self.action, self.plain, self.params = action, plain, size
        self.hiddens = hidden_widths(action, config)
        self.activation, self.mask = own.autoregressive_activation, own.autoregressive_mask
        ranks = np.argsort(
            ordered(own.autoregressive_order, [info.path for info, _, _ in dists])
        ).tolist()
        self.columns: list[Column] = []
        self.in_space: list[ActionPart] = []
        ends = [
            [width * rank // len(dists) for rank in range(len(dists) + 1)] for width in self.hiddens
        ]
        rule = read_config(config, KernelConfig).action_bounds
        params = raw = 0
        for (info, dist, inputs), rank in zip(dists, ranks, strict=True):
            kind = getattr(unbind(dist)[0], "raw_kind", "values")
            codec = action_codec(info, rule, {info.path: kind})
            start = len(self.columns)
            self.columns += _columns(codec, raw)
            self.in_space.append(
                ActionPart(
                    info.path,
                    dist,
                    _drawing(dist),
                    slice(params, params + inputs),
                    slice(raw, raw + codec.width),
                    slice(start, len(self.columns)),
                    codec.scalar,
                    (codec.counts or ()) if codec.whole else (),
                    ActionMasks(info),
                    info.kind == "multi_binary",
                    rank,
                    len(self.in_space),
                    tuple(slice(*layer[rank : rank + 2]) for layer in ends),
                )
            )
            params, raw = params + inputs, raw + codec.width
        self.raw = raw
        self.parts = sorted(self.in_space, key=lambda part: part.rank)
        self.param_widths = [inputs for _, _, inputs in dists]
        self.encoded_widths = [part.encoded.stop - part.encoded.start for part in self.in_space]
        self.unit_widths = [
            [later - earlier for earlier, later in pairwise(layer)] for layer in ends
        ]
        self.prefixes = self._prefixes(own.autoregressive_exact)
        kinds = [getattr(unbind(part.dist)[0], "entropy_kind", "exact") for part in self.parts]
        self.is_exact = self.prefixes is not None and all(kind == "exact" for kind in kinds)

    @property
    def size(self) -> int:
        """Number of model outputs: the parameters of independent parts plus the context for the
        first hidden layer.
        """
        return self.params + self.hiddens[0]

    @cached_property
    def masks(self) -> tuple[Array, list[Array], Array]:
        """The weight masks (Germain et al. 2015, equations 13 and 14), with a 1 for each
        connection.

        Returns:
            Masks from the encoded action to the first hidden layer `[hidden, encoded]`, between
            hidden layers, and from the last hidden layer to the parameters `[params, hidden]`.
        """
        ranks = [np.repeat(np.arange(len(widths)), widths) for widths in self.unit_widths]
        own = [part.rank for part in self.in_space]
        seen, made = np.repeat(own, self.encoded_widths), np.repeat(own, self.param_widths)
        first, last = ranks[0][:, None] > seen, made[:, None] >= ranks[-1]
        between = [later[:, None] >= earlier for earlier, later in pairwise(ranks)]
        return (
            first.astype(np.float32),
            [mask.astype(np.float32) for mask in between],
            last.astype(np.float32),
        )

    @cached_property
    def encoding(self) -> tuple[Array, Array, Array, Array, Array]:
        """For each encoded column: the raw value that it encodes, the choice that it indicates, a
        shift and a scale.
        """
        raw, value, shift, scale = (
            np.array(numbers) for numbers in zip(*self.columns, strict=True)
        )
        return raw, value >= 0, value, shift.astype(np.float32), scale.astype(np.float32)

    def _prefixes(self, most: int) -> Array | None:
        """Return `prefixes`, or None if there are more than `most`."""
        *earlier, _ = self.parts
        counts = [count for part in earlier for count in part.counts]
        if not all(part.counts for part in earlier) or math.prod(counts) > most:
            return None
        prefixes = np.zeros((math.prod(counts), self.raw), np.float32)
        prefixes[:, np.r_[tuple(part.raw for part in earlier)]] = list(np.ndindex(*counts))
        return prefixes


def _drawing(dist: Any) -> Callable[[Any, Any], Any]:
    cls, options = unbind(dist)
    if not hasattr(cls, "draw"):  # a different kind of class
        return lambda inputs, model: dist(inputs, model).sample()
    return partial(cls.draw, **options) if options else cls.draw


def _columns(codec: ActionCodec, raw: int) -> Iterator[Column]:
    """Yield a part's encoding for later parts: one-hot vectors for choices, and numbers scaled to
    [-1, 1].
    """
    if codec.children:  # a composite that is not split
        for child in codec.children:
            yield from _columns(child, raw)
            raw += child.width
        return
    if codec.whole and codec.info.kind != "multi_binary":
        for offset, count in enumerate(codec.counts or ()):
            yield from (Column(raw + offset, value) for value in range(count))
        return
    low, high = codec.limits
    shifts, scales = np.zeros(codec.width), np.ones(codec.width)
    if codec.counts is not None:  # they start at 0
        scales = 1.0 / np.maximum(high, 1.0)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            middle, half = low / 2 + high / 2, high / 2 - low / 2
        finite = np.isfinite(middle) & np.isfinite(half) & (half > 0)
        shifts, scales = np.where(finite, middle, 0.0), 1.0 / np.where(finite, half, 1.0)
    yield from (Column(raw + i, -1, float(shifts[i]), float(scales[i])) for i in range(codec.width))
