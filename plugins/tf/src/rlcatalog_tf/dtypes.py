"""Precision in TensorFlow: the rule, and the few functions that keep it.

- Of what a policy gives its model, floating-point numbers (observations, views, memory) come in the dtype of the
  model's first floating-point variable, which is float32 under Keras' mixed precision. Whole numbers and booleans stay
  as they are.
- Our own layers are float32, whatever Keras' floatx and policy say: they bring what they are given into it.
- Distributions, values and what a policy returns are computed in float32 at least: half precisions are widened where
  they leave the model.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

#: The half precisions.
HALF = (tf.float16, tf.bfloat16)
_SERVED = (*HALF, tf.float32, tf.float64)


def dtype_of(model: Any) -> Any:
    """Return the dtype of a model's first floating-point variable; float32 where there is none (yet)."""
    return next((variable.dtype for variable in model.variables() if variable.dtype in _SERVED), tf.float32)


def floats_as(x: Any, dtype: Any) -> Any:
    """Return floating-point numbers in a dtype, everything else as it is."""
    return tf.cast(x, dtype) if x.dtype.is_floating and x.dtype != dtype else x


def to_float32_at_least(x: Any) -> Any:
    """Return half precisions as float32, everything else as it is."""
    return tf.cast(x, tf.float32) if x.dtype in HALF else x
