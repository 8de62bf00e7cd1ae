"""Columns of an action's parts in flat tensors, and the masks for the hidden units (MADE)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionCodec, ActionMasks, action_codec, unbind
from rlcatalog.config import KernelConfig, read_config
from rlcatalog_autoregressive.config import AutoregressiveConfig, hidden_widths, sampling_order

if TYPE_CHECKING:
    from rlcatalog.frameworks import Tensor
    from rlcatalog.models import ModelV2

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
        is_scalar: Whether a raw value is one integer, so that a batch has the shape `[B]`; later
            parts see it as a one-hot vector.
        counts: Number of choices for each raw value; empty unless all raw values are choices and
            different values are different actions, unlike in a OneOf.
        masks: Mapping from the columns of a mask to choices.
        is_bits: Whether each parameter has two mask columns: one says whether the bit may be 0,
            one whether it may be 1.
        rank: Position of the part in the sampling order.
        place_in_space: Position of the part in the space's order.
        units: The part's units in each hidden layer, which only see earlier parts.
    """

    path: str
    dist: Callable[..., Any]
    draw: Callable[[Any, Any], Any]
    params: slice
    raw: slice
    encoded: slice
    is_scalar: bool
    counts: tuple[int, ...]
    masks: ActionMasks
    is_bits: bool
    rank: int
    place_in_space: int
    units: tuple[slice, ...]


class WeightMasks(NamedTuple):
    """Masks for the weights of the conditionals, with a 1 for each connection.

    Attributes:
        first: From the encoded action to the first hidden layer, `[hidden, encoded]`.
        between: Between hidden layers.
        last: From the last hidden layer to the parameters, `[params, hidden]`.
    """

    first: Array
    between: list[Array]
    last: Array


class Encoding(NamedTuple):
    """How raw actions become encoded columns; each array has an entry for each encoded column.

    Attributes:
        source: The raw value's column.
        is_choice: Whether the column indicates a choice; otherwise it holds a number.
        value: The choice that it indicates.
        shift: Offset to subtract from a number.
        scale: Factor to apply afterwards.
    """

    source: Array
    is_choice: Array
    value: Array
    shift: Array
    scale: Array


class Factor(NamedTuple):
    """A part's space and distribution, before its columns are laid out.

    Attributes:
        info: The part's space.
        dist: Factory for its distribution.
        inputs: Number of its parameters.
    """

    info: SpaceInfo
    dist: Callable[..., Any]
    inputs: int


class PartColumns:
    """Layout of an action space's parts.

    Args:
        action: The action space.
        config: The model config.
        independent_dist: Factory for the underlying distribution of independent parts.
        size: Number of inputs that `independent_dist` takes.

    Attributes:
        action: The action space.
        independent_dist: See above.
        parts: The parts, in sampling order.
        in_space: The parts in the space's order.
        num_params: Total number of parameters of all parts.
        raw_width: Number of raw values.
        hidden_widths: Widths of the hidden layers.
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

    def __init__(
        self,
        action: SpaceInfo,
        config: Mapping[str, Any],
        independent_dist: Callable[..., Any],
        size: int,
    ) -> None:
        settings = read_config(config, AutoregressiveConfig)
        self.action = action
        self.independent_dist = independent_dist
        self.num_params = size
        self.hidden_widths = hidden_widths(action, config)
        self.activation = settings.autoregressive_activation
        self.mask = settings.autoregressive_mask
        factors = _split(action, independent_dist, size)
        # Part → position in the sampling order, the inverse of the order's list of parts.
        order = sampling_order(
            settings.autoregressive_order, [factor.info.path for factor in factors]
        )
        ranks = np.argsort(order).tolist()
        units_of_layers = [_divide(width, len(factors)) for width in self.hidden_widths]
        action_bounds = read_config(config, KernelConfig).action_bounds
        self.columns: list[Column] = []
        self.in_space: list[ActionPart] = []
        params_end = 0
        raw_end = 0
        for place, (factor, rank) in enumerate(zip(factors, ranks, strict=True)):
            info = factor.info
            codec = action_codec(info, action_bounds, {info.path: _raw_kind(factor.dist)})
            encoded_start = len(self.columns)
            self.columns += _columns(codec, raw_end)
            counts: tuple[int, ...] = ()
            has_free_choices = codec.whole and _counts_every_value(codec)
            if has_free_choices:
                counts = codec.counts or ()
            part = ActionPart(
                path=info.path,
                dist=factor.dist,
                draw=_draw_function(factor.dist),
                params=slice(params_end, params_end + factor.inputs),
                raw=slice(raw_end, raw_end + codec.width),
                encoded=slice(encoded_start, len(self.columns)),
                is_scalar=codec.scalar,
                counts=counts,
                masks=ActionMasks(info),
                is_bits=info.kind == "multi_binary",
                rank=rank,
                place_in_space=place,
                units=tuple(units[rank] for units in units_of_layers),
            )
            self.in_space.append(part)
            params_end = part.params.stop
            raw_end = part.raw.stop
        self.raw_width = raw_end
        self.parts = sorted(self.in_space, key=lambda part: part.rank)
        self.param_widths = [factor.inputs for factor in factors]
        self.encoded_widths = [_width(part.encoded) for part in self.in_space]
        self.unit_widths = [list(map(_width, units)) for units in units_of_layers]
        self.prefixes = self._prefixes(settings.autoregressive_exact)
        self.is_exact = self.prefixes is not None and all(map(_has_exact_entropy, factors))

    @property
    def size(self) -> int:
        """Number of model outputs: the parameters of independent parts plus the context for the
        first hidden layer.
        """
        return self.num_params + self.hidden_widths[0]

    @cached_property
    def masks(self) -> WeightMasks:
        """The weight masks (Germain et al. 2015, equations 13 and 14): no part sees a part that is
        sampled later.
        """
        # Inputs and parameters are in the space's order, hidden units in sampling order.
        ranks = [part.rank for part in self.in_space]
        ranks_of_inputs = np.repeat(ranks, self.encoded_widths)
        ranks_of_params = np.repeat(ranks, self.param_widths)
        ranks_of_layers = [np.repeat(np.arange(len(widths)), widths) for widths in self.unit_widths]
        # A part's units in the first layer see inputs of earlier parts only (>). Later layers may
        # therefore see units of the same part too (>=).
        first = ranks_of_layers[0][:, None] > ranks_of_inputs
        between = []
        for earlier, later in pairwise(ranks_of_layers):
            mask = later[:, None] >= earlier
            between.append(mask.astype(np.float32))
        last = ranks_of_params[:, None] >= ranks_of_layers[-1]
        return WeightMasks(first.astype(np.float32), between, last.astype(np.float32))

    @cached_property
    def encoding(self) -> Encoding:
        """How raw actions become encoded columns."""
        value = np.array([column.value for column in self.columns])
        return Encoding(
            source=np.array([column.raw for column in self.columns]),
            is_choice=value >= 0,
            value=value,
            shift=np.array([column.shift for column in self.columns], np.float32),
            scale=np.array([column.scale for column in self.columns], np.float32),
        )

    def _prefixes(self, limit: int) -> Array | None:
        """Return all combinations of values of all parts except the last, or None if there are more
        than `limit` or if a part is not discrete; see the attribute `prefixes`.
        """
        earlier = self.parts[:-1]
        counts: list[int] = []
        for part in earlier:
            if not part.counts:
                return None
            counts += part.counts
        num_prefixes = math.prod(counts)
        if num_prefixes > limit:
            return None
        prefixes = np.zeros((num_prefixes, self.raw_width), np.float32)
        # `r_` joins the parts' slices into one index.
        raw_columns = np.r_[tuple(part.raw for part in earlier)]
        prefixes[:, raw_columns] = list(np.ndindex(*counts))
        return prefixes


def _split(action: SpaceInfo, independent_dist: Callable[..., Any], size: int) -> list[Factor]:
    """Return the parts that an action's distribution of independent parts consists of."""
    cls, options = unbind(independent_dist)
    # A user's class need not have `parts`; then the whole action is one part.
    if not hasattr(cls, "parts"):
        return [Factor(action, independent_dist, size)]
    factors = []
    for info, dist, inputs in cls.parts(action, size, options):
        factors.append(Factor(info, dist, inputs))
    return factors


def _raw_kind(dist: Callable[..., Any]) -> str:
    """Return what a distribution's raw values are; see `ActionDistribution.raw_kind`."""
    cls, _ = unbind(dist)
    # A user's class need not say what its raw values are.
    return getattr(cls, "raw_kind", "values")


def _counts_every_value(codec: ActionCodec) -> bool:
    """Return whether all raw values of a codec's actions count, unlike in a OneOf."""
    any_raw = np.zeros((1, codec.width), np.int64)
    return codec.used(any_raw) is None


def _has_exact_entropy(factor: Factor) -> bool:
    """Return whether the entropy of a part's distribution has a closed form."""
    cls, _ = unbind(factor.dist)
    # A user's class need not say whether its entropy is exact.
    return bool(getattr(cls, "entropy_kind", "exact") == "exact")


def _divide(width: int, parts: int) -> list[slice]:
    """Return which units of a hidden layer each part has, in sampling order."""
    ends = [width * rank // parts for rank in range(parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(ends)]


def _width(columns: slice) -> int:
    width: int = columns.stop - columns.start
    return width


def _draw_function(dist: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return the function `(inputs, model)` that draws from a distribution."""
    cls, options = unbind(dist)
    # Our classes draw without building a distribution; a user's class may not.
    if hasattr(cls, "draw"):
        draw_of_class: Callable[..., Any] = cls.draw
        return partial(draw_of_class, **options) if options else draw_of_class

    def draw(inputs: Tensor, model: ModelV2 | None) -> Any:
        return dist(inputs, model).sample()

    return draw


def _columns(codec: ActionCodec, raw: int) -> Iterator[Column]:
    """Yield a part's encoding for later parts: one-hot vectors for choices, and numbers scaled to
    [-1, 1].

    Args:
        codec: The part's codec.
        raw: The part's first raw column.
    """
    if codec.children:  # a composite that is not split
        for child in codec.children:
            yield from _columns(child, raw)
            raw += child.width
        return
    # A bit is a number already: its one-hot vector would need two columns.
    has_one_hots = codec.whole and codec.info.kind != "multi_binary"
    if has_one_hots:
        for offset, count in enumerate(codec.counts or ()):
            for value in range(count):
                yield Column(raw + offset, value)
        return
    low, high = codec.limits
    if codec.counts is not None:
        # Raw integers begin at 0, so that only their scale changes.
        shifts = np.zeros(codec.width)
        scales = 1.0 / np.maximum(high, 1.0)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            middle = low / 2 + high / 2
            half = high / 2 - low / 2
        # A dimension without finite bounds keeps its numbers.
        is_finite = np.isfinite(middle) & np.isfinite(half) & (half > 0)
        shifts = np.where(is_finite, middle, 0.0)
        scales = 1.0 / np.where(is_finite, half, 1.0)
    for i in range(codec.width):
        yield Column(raw + i, shift=float(shifts[i]), scale=float(scales[i]))
