"""Columns of the parts of an action in flat tensors, and which hidden units may see which parts (MADE's masks)."""

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
from rlcatalog.config import read_config
from rlcatalog_autoregressive.config import AutoregressiveConfig, hidden_widths, ordered

Array = np.ndarray[Any, Any]


class Span(NamedTuple):
    """Columns of a tensor: the first, and one past the last."""

    start: int
    stop: int


class Column(NamedTuple):
    """One input of the conditionals, made from one raw value.

    Attributes:
        raw: The raw value's column.
        value: The value it is the indicator of (a one-hot's place), or None for a number.
        shift: What is taken off a number.
        scale: What it is multiplied by then.
    """

    raw: int
    value: int | None = None
    shift: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True, eq=False)
class ActionPart:
    """One part of an action.

    Attributes:
        path: Where it stands, such as `action['arm'][0]`.
        dist: Makes its distribution, called with `(inputs, model)`.
        draw: Draws from it, called with the same.
        params: Columns of its parameters.
        raw: Columns of its raw values.
        encoded: Columns of what later parts see of it.
        single: Whether its distribution takes raw values as `[B]`.
        onehot: Whether what later parts see of it is the one-hot of one whole number.
        counts: Number of values of each raw value, where all are choices; else empty.
        masks: Says which columns of a mask stand for which choice.
        bits: Whether a parameter stands for two of them: that a bit may be 0, and that it may be 1.
        rank: Its place in the order of drawing.
        place: Its place in the space's order.
        units: Of each hidden layer, the units computed for it: they see the parts before it, and no more.
    """

    path: str
    dist: Any
    draw: Callable[[Any, Any], Any]
    params: Span
    raw: Span
    encoded: Span
    single: bool
    onehot: bool
    counts: tuple[int, ...]
    masks: ActionMasks
    bits: bool
    rank: int
    place: int
    units: tuple[Span, ...]


class PartColumns:
    """The parts of an action space.

    Args:
        action: The action space.
        config: The model config.
        plain: Makes the distribution of independent parts that it is built around.
        size: Its number of inputs.

    Attributes:
        action: The action space.
        plain: See above.
        parts: The parts, in the order in which they are drawn.
        params: Number of parameters of all parts.
        raw: Number of raw values.
        hiddens: Widths of the hidden layers.
        activation: Their activation.
        mask: The user's function, or None.
        columns: The inputs of the conditionals; like parameters and raw values they stand in the space's order.
    """

    def __init__(self, action: SpaceInfo, config: Mapping[str, Any], plain: Any, size: int) -> None:
        own = read_config(config, AutoregressiveConfig)
        cls, options = unbind(plain)
        independent = cls.parts(action, size, options) if hasattr(cls, "parts") else [(action, plain, size)]
        self.action, self.plain, self.params = action, plain, size
        self.hiddens = hidden_widths(action, config)
        self.activation, self.mask = own.autoregressive_activation, own.autoregressive_mask
        ranks = np.argsort(ordered(own.autoregressive_order, [info.path for info, _, _ in independent])).tolist()
        self.columns: list[Column] = []
        parts: list[ActionPart] = []
        count, params, raw = len(independent), 0, 0
        for (info, dist, inputs), rank in zip(independent, ranks, strict=True):
            kind = getattr(unbind(dist)[0], "raw_kind", "values")
            codec = action_codec(info, config.get("action_bounds", "clip"), {info.path: kind})
            encoded = list(_columns(codec, raw))
            start = len(self.columns)
            parts.append(
                ActionPart(
                    info.path, dist, _drawing(dist), Span(params, params + inputs),
                    Span(raw, raw + codec.width),
                    Span(start, start + len(encoded)), codec.scalar, codec.scalar,
                    (codec.counts or ()) if codec.whole else (),
                    ActionMasks(info), info.kind == "multi_binary", rank,
                    len(parts),
                    tuple(Span(w * rank // count, w * (rank + 1) // count) for w in self.hiddens),
                )
            )  # fmt: skip
            self.columns += encoded
            params, raw = params + inputs, raw + codec.width
        self.raw = raw
        self.parts = sorted(parts, key=lambda part: part.rank)
        #: The parts in the space's order.
        self.in_space = parts
        self._exact = own.autoregressive_exact

    @property
    def size(self) -> int:
        """Number of model outputs: the parameters of independent parts, and the context of the first hidden layer."""
        return self.params + self.hiddens[0]

    @cached_property
    def param_widths(self) -> list[int]:
        """Number of parameters of each part, in the space's order."""
        return [part.params.stop - part.params.start for part in self.in_space]

    @cached_property
    def encoded_widths(self) -> list[int]:
        """Number of encoded columns of each part, in the space's order."""
        return [part.encoded.stop - part.encoded.start for part in self.in_space]

    @cached_property
    def unit_widths(self) -> list[list[int]]:
        """Number of units of each hidden layer for each part, in the order of drawing."""
        layers = range(len(self.hiddens))
        return [[part.units[layer].stop - part.units[layer].start for part in self.parts] for layer in layers]

    @cached_property
    def masks(self) -> tuple[Array, list[Array], Array]:
        """The masks of the weights (Germain et al. 2015, equations 13 and 14), 1 where there is a connection.

        Returns:
            From the encoded action to the first hidden layer `[hidden, encoded]`, between hidden layers, and from the
            last one to the parameters `[params, hidden]`.
        """
        ranks = [part.rank for part in self.in_space]
        seen, made = np.repeat(ranks, self.encoded_widths), np.repeat(ranks, self.param_widths)
        units = [np.repeat(np.arange(len(self.parts)), widths) for widths in self.unit_widths]
        first = units[0][:, None] > seen
        between = [later[:, None] >= earlier for earlier, later in pairwise(units)]
        last = made[:, None] >= units[-1]
        return first.astype(np.float32), [mask.astype(np.float32) for mask in between], last.astype(np.float32)

    @cached_property
    def encoding(self) -> tuple[Array, Array, Array, Array, Array]:
        """Of each encoded column: the raw value it reads, whether it is an indicator, of what, and shift and scale."""
        columns = self.columns
        return (
            np.array([c.raw for c in columns], np.int64),
            np.array([c.value is not None for c in columns], np.bool_),
            np.array([-1 if c.value is None else c.value for c in columns], np.int64),
            np.array([c.shift for c in columns], np.float32),
            np.array([c.scale for c in columns], np.float32),
        )

    @cached_property
    def prefixes(self) -> Array | None:
        """Every combination of values of all parts but the last, as raw actions `[P, raw]`, the last part zeros.

        None where there are too many, or a part is no choice.
        """
        *earlier, _ = self.parts
        counts = [count for part in earlier for count in part.counts]
        if not all(part.counts for part in earlier) or math.prod(counts) > self._exact:
            return None
        places = [column for part in earlier for column in range(*part.raw)]
        found = np.zeros((math.prod(counts), self.raw), np.float32)
        found[:, places] = np.array(list(np.ndindex(*counts)), np.float32)
        return found

    @cached_property
    def is_exact(self) -> bool:
        """Whether entropies are summed exactly."""
        kinds = [getattr(unbind(part.dist)[0], "entropy_kind", "exact") for part in self.parts]
        return self.prefixes is not None and all(kind == "exact" for kind in kinds)


def _drawing(dist: Any) -> Callable[[Any, Any], Any]:
    cls, options = unbind(dist)
    if not hasattr(cls, "draw"):  # a class of its own kind
        return lambda inputs, model: dist(inputs, model).sample()
    return partial(cls.draw, **options) if options else cls.draw


def _columns(codec: ActionCodec, raw: int) -> Iterator[Column]:
    """Yield what later parts see of a part: one-hots of choices, numbers brought into [-1, 1] by their limits."""
    if codec.children:  # a composite that its distribution leaves whole
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
    if codec.counts is not None:  # they count from 0
        scales = 1.0 / np.maximum(high, 1.0)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            middle, half = low / 2 + high / 2, high / 2 - low / 2
        finite = np.isfinite(middle) & np.isfinite(half) & (half > 0)
        shifts, scales = np.where(finite, middle, 0.0), 1.0 / np.where(finite, half, 1.0)
    yield from (Column(raw + i, None, float(shifts[i]), float(scales[i])) for i in range(codec.width))


def columns_of(action_dist: Any) -> PartColumns | None:
    """Return the layout of an autoregressive distribution, or None for another one."""
    found = unbind(action_dist)[1].get("layout")
    return found if isinstance(found, PartColumns) else None


def itself(x: Any) -> Any:
    """Return what is given, in place of a function that changes it."""
    return x
