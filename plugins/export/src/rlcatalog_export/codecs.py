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
    # A subclass may change the encoding and inherit a method that describes the former one.
    children = None
    if _is_not_outdated(codec, "side_by_side", _ENCODING):
        children = codec.side_by_side()
    if children is not None:
        for step, child in children:
            yield from observation_inputs(child, (*steps, step))
        return
    lowered = None
    if _is_not_outdated(codec, "lowered", _ENCODING):
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


#: Attributes that determine how a codec encodes.
_ENCODING = ("transform", "transform_batch", "encode_batch", "writer", "batch_writer")


def _is_not_outdated(codec: Preprocessor | ActionCodec, method: str, others: Sequence[str]) -> bool:
    """Return whether every subclass that overrides one of `others` also overrides the method.

    Otherwise a subclass changed what the codec does, and an inherited tensor form is outdated.
    """
    place = _place_in_mro(codec, method)
    return all(place <= _place_in_mro(codec, other) for other in others)


def _place_in_mro(codec: Preprocessor | ActionCodec, name: str) -> int:
    """Return the place in the MRO of the class that defines an attribute."""
    classes = type(codec).__mro__
    for place, cls in enumerate(classes):
        if name in vars(cls):
            return place
    return len(classes)


def lowered_actions(codec: ActionCodec, ops: TensorOps) -> LoweredActions | None:
    """Return a codec's tensor form; None if the codec or one of its parts has no tensor form."""
    if codec.lowered is None or not _has_tensor_form(codec):
        return None
    return codec.lowered(codec, ops)


def _has_tensor_form(codec: ActionCodec) -> bool:
    """Return whether a codec and its parts have a tensor form that is as new as their code."""
    if codec.lowered is None:
        return False
    if not _is_not_outdated(codec, "lowered", ("adapt", "inputs", "shown")):
        return False
    return all(_has_tensor_form(child) for child in codec.children)
