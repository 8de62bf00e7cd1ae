"""Codecs as tensor operations, which encode observations and adapt raw actions in any tensor
library.

A codec defines its tensor form with `lowered`. Observation parts without a tensor form are separate
    inputs, which are passed encoded: varying sizes, texts, and plugins' codecs without `lowered`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlcatalog.actions import ActionCodec, LoweredActions
from rlcatalog.frameworks import TensorOps
from rlcatalog.observations import Preprocessor


@dataclass(frozen=True)
class ObservationInput:
    """Part of an observation that is a separate input of an exported policy.

    Attributes:
        codec: The part's codec.
        steps: The keys and positions that lead to the part.
        lowered: Encoder for the part in tensor operations; None if the input is already encoded,
            `[B, size]`.
    """

    codec: Preprocessor
    steps: tuple[str | int, ...]
    lowered: Callable[[Any, TensorOps], Any] | None


def observation_inputs(
    codec: Preprocessor, steps: tuple[str | int, ...] = ()
) -> Iterator[ObservationInput]:
    """Yield an observation's inputs, in the order of the flat vector.

    Args:
        codec: The codec for the observation, or for a part of it.
        steps: The keys and positions that lead to the part.
    """
    parts = codec.side_by_side() if _defines(codec, "side_by_side", _WRITERS) else None
    if parts is None:
        lowered = codec.lowered() if _defines(codec, "lowered", _WRITERS) else None
        yield ObservationInput(codec, steps, lowered)
        return
    for step, child in parts:
        yield from observation_inputs(child, (*steps, step))


def encode_inputs(
    inputs: Sequence[ObservationInput], values: Sequence[Any], root: Preprocessor, ops: TensorOps
) -> Any:
    """Compute `root.encode_batch` for the whole observation, `[B, *shape]`.

    Args:
        inputs: The results of `observation_inputs`.
        values: One tensor per input: `[B, *shape]`, or `[B, size]` if already encoded.
        root: The codec for the whole observation.
        ops: The tensor library's operations.
    """
    encoded = [
        x if one.lowered is None else one.lowered(x, ops)
        for one, x in zip(inputs, values, strict=True)
    ]
    if len(inputs) == 1 and not inputs[0].steps:
        return (
            ops.rows(encoded[0], root.shape)
            if inputs[0].lowered is None and len(root.shape) != 1
            else encoded[0]
        )
    columns = [ops.as_type(ops.flat(x), "float32") for x in encoded]
    return columns[0] if len(columns) == 1 else ops.concat(columns, 1)


#: Attributes that determine how a codec encodes.
_WRITERS = ("transform", "transform_batch", "encode_batch", "writer", "batch_writer")


def _defines(part: Any, method: str, others: Sequence[str]) -> bool:
    """Return whether every subclass that overrides one of `others` also overrides the method."""
    classes = type(part).__mro__

    def place(name: str) -> int:
        return next((i for i, cls in enumerate(classes) if name in vars(cls)), len(classes))

    return all(place(method) <= place(other) for other in others)


def lowered_actions(codec: ActionCodec, ops: TensorOps) -> LoweredActions | None:
    """Return a codec's tensor form; None if the codec or one of its parts has no tensor form."""
    return codec.lowered(codec, ops) if codec.lowered is not None and _is_lowered(codec) else None


def _is_lowered(codec: ActionCodec) -> bool:
    known = codec.lowered is not None and _defines(codec, "lowered", ("adapt", "inputs", "shown"))
    return known and all(map(_is_lowered, codec.children))
