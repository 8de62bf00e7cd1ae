"""What the conformance kit asks of TensorFlow: gradients, and draws that are the same again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

Array = np.ndarray[Any, Any]


def gradient(function: Callable[[Any], Any], inputs: Array) -> Array | None:
    """Return the gradient of the sum of what a function returns; None where none reaches the inputs.

    Args:
        function: Takes a tensor of the inputs, and returns a tensor.
        inputs: Floats of any shape.
    """
    x = tf.constant(inputs)
    with tf.GradientTape() as tape:
        tape.watch(x)
        found = function(x)
        if not found.dtype.is_floating:
            return None
        total = tf.reduce_sum(found)
    result = tape.gradient(total, x)
    return None if result is None else result.numpy()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw the same numbers each time."""
    tf.random.set_seed(seed)
    yield
