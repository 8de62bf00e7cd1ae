"""Random numbers for distributions, from a generator whose state can be saved and restored.

In a trace, `tf.random.normal` hides its state inside the operation, so a run could not be resumed
with the same random numbers. Inside a policy, the functions of this module draw from the policy's
generator, which is a variable. Outside, they call `tf.random`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

#: The generators' algorithm, as numbered in TensorFlow's operations.
_PHILOX = 1
#: Dtype → number of its binary digits n: integers below 2**n are exact.
_DIGITS = {tf.bfloat16: 8, tf.float16: 11, tf.float32: 24, tf.float64: 53}
#: The generator of the policy that is running in this thread, or a replacement with the same
#: methods.
_CURRENT: ContextVar[Any] = ContextVar("generator", default=tf.random)


def draw_uniform(shape: Any, dtype: Any = tf.float32) -> Any:
    """Draw uniform numbers from the open interval (0, 1).

    Args:
        shape: Shape of the result, as a sequence of numbers or as a tensor.
        dtype: Dtype of the result.
    """
    generator = _CURRENT.get()
    digits = _DIGITS[tf.as_dtype(dtype)]
    step = tf.constant(0.5**digits, dtype)
    if generator is tf.random:
        return tf.maximum(generator.uniform(shape, dtype=dtype), step)
    if not isinstance(generator, tf.random.Generator):
        return generator.uniform(shape, dtype=dtype)
    # One operation, because `generator.uniform` runs ten, which would slow acting down.
    whole = tf.int32 if digits < 31 else tf.int64
    drawn = tf.raw_ops.StatefulUniformInt(
        resource=generator.state.handle,
        algorithm=tf.constant(_PHILOX, tf.int64),
        shape=shape,
        minval=tf.constant(1, whole),
        maxval=tf.constant(2**digits, whole),
    )
    return tf.cast(drawn, dtype) * step


def draw_normal(shape: Any, dtype: Any = tf.float32) -> Any:
    """Draw numbers from the standard normal distribution.

    Args:
        shape: Shape of the result, as a sequence of numbers or as a tensor.
        dtype: Dtype of the result.
    """
    generator = _CURRENT.get()
    if not isinstance(generator, tf.random.Generator):
        return generator.normal(shape, dtype=dtype)
    return tf.raw_ops.StatefulStandardNormalV2(  # see `draw_uniform`
        resource=generator.state.handle,
        algorithm=tf.constant(_PHILOX, tf.int64),
        shape=shape,
        dtype=dtype,
    )


def draw_gamma(concentration: Any) -> Any:
    """Draw Gamma-distributed values with scale 1; gradients use implicit reparameterisation
    (Figurnov et al. 2018).

    Args:
        concentration: Shape parameters: floating-point numbers in a tensor of any shape.
    """
    generator, dtype = _CURRENT.get(), concentration.dtype
    if generator is tf.random:
        drawn = tf.random.gamma([], concentration, dtype=dtype)
    elif isinstance(generator, tf.random.Generator):
        seed = generator.make_seeds()[:, 0]
        drawn = tf.random.stateless_gamma(
            tf.shape(concentration), seed, alpha=concentration, dtype=dtype
        )
    else:
        drawn = generator.gamma(concentration)
    drawn.set_shape(concentration.shape)  # a trace would forget it
    return drawn


def draw_categorical(logits: Any) -> Any:
    """Draw one index per row, int64 `[B, 1]`.

    Args:
        logits: Unnormalised log probabilities `[B, n]`.
    """
    generator = _CURRENT.get()
    if generator is tf.random:
        return tf.random.categorical(logits, 1)
    if isinstance(generator, tf.random.Generator):
        return tf.random.stateless_categorical(logits, 1, generator.make_seeds()[:, 0])
    return generator.categorical(logits)


def new_generator(device: str, state: Any = None) -> Any:
    """Return a generator.

    Args:
        device: Device for the generator's state.
        state: The generator's state, int64 `[3]`. If None, a seed is drawn from `tf.random`, which
            `tf.random.set_seed` controls.
    """
    with tf.init_scope(), tf.device(device):
        if state is None:
            state = tf.random.uniform([3], tf.int64.min, tf.int64.max, dtype=tf.int64)
        return tf.random.Generator.from_state(state, alg="philox")


@contextmanager
def drawing_from(generator: Any) -> Iterator[None]:
    """Return a context in which this module's functions draw from a generator or a replacement for
    it.

    Args:
        generator: A `tf.random.Generator`, or an object with `uniform(shape, dtype)`,
            `normal(shape, dtype)`, `gamma(concentration)` and `categorical(logits)`.
    """
    former = _CURRENT.set(generator)
    try:
        yield
    finally:
        _CURRENT.reset(former)
