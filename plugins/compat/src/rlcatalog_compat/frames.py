"""Convolutions over stacks of frames: Keras 2's `Conv2D` accepted `[B, frames, H, W, C]`, but Keras
3's does not.

`rlcatalog port` replaces `tf.keras.layers.Conv2D(...)` with `conv2d(...)` in files that also use
three-dimensional layers such as `MaxPool3D`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from rlcatalog.frameworks import Tensor
from rlcatalog_compat.frameworks import keras_module

#: Keras' shape of a tensor; a size that is unknown is None.
Shape = tuple[int | None, ...]


def conv2d(*args: Any, **options: Any) -> Any:
    """Return a layer that convolves each frame of `[B, ..., H, W, C]` with the same kernel.

    Args:
        *args: Arguments of `keras.layers.Conv2D`.
        **options: Further arguments.
    """
    return _layer_class()(*args, **options)


def _frame_shape(input_shape: Shape) -> Shape:
    """Return the shape `[B, H, W, C]` of a batch of single frames, without the batch size."""
    return (None, *input_shape[-3:])


@cache
def _layer_class() -> type:
    keras: Any = keras_module()

    class Conv2D(keras.layers.Conv2D):  # type: ignore[misc]
        """Keras layer that treats each frame of each row as a separate row."""

        def build(self, input_shape: Shape) -> None:
            super().build(_frame_shape(input_shape))

        def call(self, inputs: Tensor) -> Any:
            if len(inputs.shape) == 4:
                return super().call(inputs)
            frames = keras.ops.reshape(inputs, (-1, *inputs.shape[-3:]))
            outputs = super().call(frames)
            return keras.ops.reshape(outputs, (-1, *inputs.shape[1:-3], *outputs.shape[1:]))

        def compute_output_shape(self, input_shape: Shape) -> Any:
            _, *output_frame = super().compute_output_shape(_frame_shape(input_shape))
            return (*input_shape[:-3], *output_frame)

    return Conv2D
