"""Action codecs as operations in any tensor library, for policies that act on tensors and for
exported policies.

`ActionCodec.lowered` names the class for a codec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog.errors import ActionMaskError
from rlcatalog.frameworks.ops import Array, Tensor, TensorOps

if TYPE_CHECKING:
    from rlcatalog.actions.codec import ActionCodec


class LoweredActions:
    """Tensor operations of an action codec; the base class supports any space with a fixed shape.

    Args:
        codec: The codec.
        ops: The tensor library's operations.
    """

    def __init__(self, codec: ActionCodec, ops: TensorOps) -> None:
        self.codec = codec
        self.ops = ops

    def adapt(self, raw: Tensor) -> Iterator[tuple[ActionCodec, Any]]:
        """Yield each leaf's codec with its environment actions `[B, ...]`, computed from raw
        actions `[B, width]`.

        The actions have the space's dtype, or int64 for unsigned integers of more than 8 bits.
        """
        yield self.codec, self.leaf(raw)

    def leaf(self, raw: Tensor) -> Any:
        """Return the environment actions of a space without children."""
        return self.typed(self.ops.rows(raw, self.codec.info.shape or ()))

    def inputs(self, raw: Tensor) -> Any:
        """Return the same as `ActionCodec.inputs`, `[B, input_width]`."""
        return self.ops.as_type(raw, "float32")

    def shown(self, raw: Tensor) -> Any:
        """Return the same as `ActionCodec.shown` for raw actions `[..., width]`."""
        in_shape = self.ops.reshape(raw, self.codec.info.shape or ())
        dtype = "int64" if self.codec.whole else "float32"
        return self.ops.as_type(in_shape, dtype)

    def typed(self, values: Tensor) -> Any:
        """Return values in the space's dtype."""
        return self.ops.as_type(values, exported_dtype(self.codec.info.dtype or "float32"))

    def constant(self, value: float | Array, like: Tensor) -> Any:
        """Return an array as a tensor."""
        return self.ops.constant(value, like)

    # --- masks ------------------------------------------------------------------------------------

    def mask_columns(self, mask: Any, rows: int, valid: list[Any]) -> Any:
        """Return a batched mask in Gymnasium's format as booleans `[B, mask_width]`, as
        `ActionCodec.mask_columns` does for arrays.

        Args:
            mask: A tensor, or a structure of tensors; None allows everything.
            rows: B.
            valid: To this list, the method adds a boolean without axes for each tensor that may
                contain other numbers than those of a mask: whether it contains none.

        Returns:
            The columns; None if everything is allowed.

        Raises:
            ActionMaskError: The mask has the wrong structure or shape.
        """
        if mask is None or not self.codec.mask_width:
            return None
        if isinstance(mask, Mapping | tuple):
            return self.join_masks(mask, rows, valid)
        return self.mask_rows(mask, rows, valid)

    def join_masks(self, masks: Any, rows: int, valid: list[Any]) -> Any:
        """Return the columns of a structure of masks; see `mask_columns`."""
        raise self.bad_mask(f"shape ({rows}, {self.codec.mask_width})", type(masks).__name__)

    def mask_rows(self, mask: Tensor, rows: int, valid: list[Any]) -> Any:
        """Return the columns of a mask that is one tensor, `[B, mask_width]` or `[B, ...]`; see
        `mask_columns`.
        """
        if len(mask.shape) > 2 and mask.shape[0] == rows:
            mask = self.ops.flat(mask)
        return self.columns_as_they_are(mask, rows, valid)

    def columns_as_they_are(self, mask: Any, rows: int, valid: list[Any]) -> Any:
        """Return columns `[B, mask_width]` as booleans; see `mask_columns`."""
        shape = tuple(mask.shape)
        if shape != (rows, self.codec.mask_width):
            raise self.bad_mask(f"shape ({rows}, {self.codec.mask_width})", f"shape {shape}")
        if self.ops.dtype_name(mask) == "bool":
            return mask
        # Only 0 and 1 equal their booleans.
        is_allowed = mask != 0
        valid.append(self.ops.all((mask == 1) == is_allowed))
        return is_allowed

    def bad_mask(self, expected: str, found: str) -> ActionMaskError:
        """Return the error for a mask in the wrong format."""
        return ActionMaskError(f"mask: {self.codec.info.path}: expected {expected}; found {found}.")

    def mask_taken(self, raw: Tensor) -> Any:
        """Return the same as `ActionCodec.mask_taken`: the mask columns `[B, k]` that raw actions
        use, or None if unknown.
        """
        counts = [count for _, count in self.codec.choices]
        if not counts or counts != list(self.codec.counts or ()):
            return None
        starts = np.cumsum(counts) - counts
        integers = self.ops.as_type(raw, "int64")
        return integers + self.constant(starts.astype(np.int64), integers)


def exported_dtype(dtype: str) -> str:
    """Return the dtype that an exported policy uses for a space's dtype."""
    return {"uint16": "int64", "uint32": "int64", "uint64": "int64"}.get(dtype, dtype)
