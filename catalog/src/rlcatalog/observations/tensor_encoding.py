"""Observations as tensors: their parts, and the tensor operations that encode them.

A codec defines its tensor form with `lowered`. Parts without one have varying sizes, are texts, or
belong to plugins' codecs without `lowered`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlcatalog.frameworks.ops import TensorOps
from rlcatalog.observations.preprocessor import Preprocessor
from rlcatalog.spaces.overrides import is_up_to_date

#: Attributes that determine how a codec encodes.
_ENCODING = ("transform", "transform_batch", "encode_batch", "writer", "batch_writer")


@dataclass(frozen=True)
class ObservationInput:
    """Part of an observation that is one tensor, such as an input of an exported policy.

    Attributes:
        codec: The part's codec.
        steps: The keys and positions that lead to the part.
        lowered: Encoder for the part in tensor operations; None if it has none. Its input is then
            already encoded, `[B, size]`.
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
    # A subclass may change the encoding and inherit a method that describes the former one.
    children = None
    if is_up_to_date(codec, "side_by_side", _ENCODING):
        children = codec.side_by_side()
    if children is not None:
        for step, child in children:
            yield from observation_inputs(child, (*steps, step))
        return
    lowered = None
    if is_up_to_date(codec, "lowered", _ENCODING):
        lowered = codec.lowered()
    yield ObservationInput(codec, steps, lowered)


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
    encoded = []
    for observation_input, value in zip(inputs, values, strict=True):
        if observation_input.lowered is None:
            encoded.append(value)
        else:
            encoded.append(observation_input.lowered(value, ops))
    # A single input without steps is the whole observation, not a part of it.
    is_whole = len(inputs) == 1 and not inputs[0].steps
    if is_whole:
        is_flat_input = inputs[0].lowered is None
        if is_flat_input and len(root.shape) != 1:
            return ops.rows(encoded[0], root.shape)
        return encoded[0]
    columns = [ops.as_type(ops.flat(tensor), "float32") for tensor in encoded]
    if len(columns) == 1:
        return columns[0]
    return ops.concat(columns, axis=1)
