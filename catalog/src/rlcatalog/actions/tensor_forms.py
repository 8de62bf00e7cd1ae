"""Which action codecs have a tensor form that does the same as their code for arrays."""

from __future__ import annotations

from rlcatalog.actions.codec import ActionCodec
from rlcatalog.actions.tensor_actions import LoweredActions
from rlcatalog.frameworks.ops import TensorOps
from rlcatalog.spaces.overrides import is_up_to_date


def lowered_actions(codec: ActionCodec, ops: TensorOps) -> LoweredActions | None:
    """Return a codec's tensor form; None if the codec or one of its parts has no tensor form."""
    if codec.lowered is None or not _has_tensor_form(codec):
        return None
    return codec.lowered(codec, ops)


def _has_tensor_form(codec: ActionCodec) -> bool:
    """Return whether a codec and its parts have a tensor form that is as new as their code."""
    if codec.lowered is None:
        return False
    if not is_up_to_date(codec, "lowered", ("adapt", "inputs", "shown")):
        return False
    return all(_has_tensor_form(child) for child in codec.children)


#: The methods of a codec that read masks → the methods of its tensor form that do the same.
_MASK_METHODS = {
    "mask_columns": "mask_columns",
    "_join_masks": "join_masks",
    "_mask_rows": "mask_rows",
    "mask_taken": "mask_taken",
}


def reads_masks(codec: ActionCodec) -> bool:
    """Return whether a codec's tensor form reads masks as the codec does: for each method that the
    codec overrides, its tensor form must override its own.
    """
    if not all(reads_masks(child) for child in codec.children):
        return False
    if not codec.mask_width:
        return True
    if codec.lowered is None:
        return False
    for method, method_of_tensors in _MASK_METHODS.items():
        is_overridden = getattr(type(codec), method) is not getattr(ActionCodec, method)
        is_overridden_for_tensors = getattr(codec.lowered, method_of_tensors) is not getattr(
            LoweredActions, method_of_tensors
        )
        if is_overridden and not is_overridden_for_tensors:
            return False
    return is_up_to_date(codec, "lowered", tuple(_MASK_METHODS))
