"""Action codecs as tensor operations in any tensor library, for exported policies.

`ActionCodec.lowered` names the class for a codec.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

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
        writable = np.array(value)  # PyTorch warns of a read-only array, such as a space's bounds
        return self.ops.tensor(writable, like)


def exported_dtype(dtype: str) -> str:
    """Return the dtype that an exported policy uses for a space's dtype."""
    return {"uint16": "int64", "uint32": "int64", "uint64": "int64"}.get(dtype, dtype)
