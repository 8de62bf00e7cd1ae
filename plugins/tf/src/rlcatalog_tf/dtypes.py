"""Floating-point precision in TensorFlow.

- A model receives observations, views and memory in the dtype of its first floating-point variable.
  With Keras's mixed precision, this is float32. Integers and booleans keep their dtype.
- rlcatalog's layers always compute in float32, independently of Keras's floatx and dtype policy.
- Distributions, values and the results of a policy are float32 or wider: outputs in half precision
  are converted.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from rlcatalog.frameworks import Tensor

#: Half-precision dtypes.
HALF = (tf.float16, tf.bfloat16)
_WEIGHT_DTYPES = (*HALF, tf.float32, tf.float64)


def dtype_of(model: Any) -> Any:
    """Return the dtype of a model's first floating-point variable; float32 if there is none yet."""
    for variable in model.variables():
        if variable.dtype in _WEIGHT_DTYPES:
            return variable.dtype
    return tf.float32


def floats_as(x: Tensor, dtype: tf.DType) -> Any:
    """Convert floating-point numbers to a dtype; return other tensors unchanged."""
    if x.dtype.is_floating and x.dtype != dtype:
        return tf.cast(x, dtype)
    return x


def to_float32_at_least(x: Tensor) -> Any:
    """Convert half precision to float32; return other tensors unchanged."""
    if x.dtype in HALF:
        return tf.cast(x, tf.float32)
    return x
