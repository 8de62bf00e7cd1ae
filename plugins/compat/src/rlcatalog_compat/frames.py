"""Convolutions over stacks of frames: Keras 2's `Conv2D` accepted `[B, frames, H, W, C]`, but Keras
3's does not.

`rlcatalog port` replaces `tf.keras.layers.Conv2D(...)` with `conv2d(...)` in files that also use
three-dimensional layers such as `MaxPool3D`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from rlcatalog_compat.frameworks import keras_module


def conv2d(*args: Any, **options: Any) -> Any:
    """Return a layer that convolves each frame of `[B, ..., H, W, C]` with the same kernel.

    Args:
        *args: Arguments of `keras.layers.Conv2D`.
        **options: Further arguments.
    """
    return _layer_class()(*args, **options)


@cache
def _layer_class() -> type:
    keras: Any = keras_module()

    class Conv2D(keras.layers.Conv2D):  # type: ignore[misc]
        """Keras layer that treats each frame of each row as a separate row."""

        def build(self, input_shape: Any) -> None:
            super().build((None, *input_shape[-3:]))

        def call(self, inputs: Any) -> Any:
            if len(inputs.shape) == 4:
                return super().call(inputs)
            found = super().call(keras.ops.reshape(inputs, (-1, *inputs.shape[-3:])))
            return keras.ops.reshape(found, (-1, *inputs.shape[1:-3], *found.shape[1:]))

        def compute_output_shape(self, input_shape: Any) -> Any:
            return (*input_shape[:-3], *super().compute_output_shape((None, *input_shape[-3:]))[1:])

    return Conv2D
