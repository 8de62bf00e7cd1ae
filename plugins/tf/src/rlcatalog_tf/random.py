"""Random numbers for distributions, from a generator whose state can be saved and restored.

In a trace, `tf.random.normal` hides its state inside the operation, so a run could not be resumed
with the same random numbers. Inside a policy, the functions of this module draw from the policy's
generator, which is a variable. Outside, they call `tf.random`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import tensorflow as tf

from rlcatalog.frameworks import Array, Tensor

#: The generators' algorithm, as numbered in TensorFlow's operations.
_PHILOX = 1
#: Dtype → number of its binary digits n: integers below 2**n are exact.
_DIGITS = {tf.bfloat16: 8, tf.float16: 11, tf.float32: 24, tf.float64: 53}
#: The generator of the policy that is running in this thread, or a replacement with the same
#: methods.
_CURRENT: ContextVar[Any] = ContextVar("generator", default=tf.random)


class RandomSource(Protocol):
    """What can draw in place of a `tf.random.Generator`."""

    def uniform(self, shape: Sequence[int] | Tensor, dtype: tf.DType) -> Any:
        """Draw from the open interval (0, 1)."""

    def normal(self, shape: Sequence[int] | Tensor, dtype: tf.DType) -> Any:
        """Draw from the standard normal distribution."""

    def gamma(self, concentration: Tensor) -> Any:
        """Draw Gamma-distributed values with scale 1."""

    def categorical(self, logits: Tensor) -> Any:
        """Draw one index per row, int64 `[B, 1]`."""


def draw_uniform(shape: Sequence[int] | Tensor, dtype: tf.DType = tf.float32) -> Any:
    """Draw uniform numbers from the open interval (0, 1).

    Args:
        shape: Shape of the result, as a sequence of numbers or as a tensor.
        dtype: Dtype of the result.
    """
    generator = _CURRENT.get()
    digits = _DIGITS[tf.as_dtype(dtype)]  # binary digits of a number
    # The smallest result.
    step = tf.constant(0.5**digits, dtype)
    if generator is tf.random:
        # `tf.random` may draw 0, which is outside the interval.
        return tf.maximum(generator.uniform(shape, dtype=dtype), step)
    if not isinstance(generator, tf.random.Generator):
        # A `RandomSource`, which draws from the open interval.
        return generator.uniform(shape, dtype=dtype)
    # One operation, because `generator.uniform` runs ten, which would slow acting down.
    integer_dtype = tf.int32 if digits < 31 else tf.int64  # 2**digits must fit
    integers = tf.raw_ops.StatefulUniformInt(
        resource=generator.state.handle,
        algorithm=tf.constant(_PHILOX, tf.int64),
        shape=shape,
        minval=tf.constant(1, integer_dtype),
        maxval=tf.constant(2**digits, integer_dtype),
    )
    return tf.cast(integers, dtype) * step


def draw_normal(shape: Sequence[int] | Tensor, dtype: tf.DType = tf.float32) -> Any:
    """Draw numbers from the standard normal distribution.

    Args:
        shape: Shape of the result, as a sequence of numbers or as a tensor.
        dtype: Dtype of the result.
    """
    generator = _CURRENT.get()
    if not isinstance(generator, tf.random.Generator):
        return generator.normal(shape, dtype=dtype)
    # One operation, for the same reason as in `draw_uniform`.
    return tf.raw_ops.StatefulStandardNormalV2(
        resource=generator.state.handle,
        algorithm=tf.constant(_PHILOX, tf.int64),
        shape=shape,
        dtype=dtype,
    )


def draw_gamma(concentration: Tensor) -> Any:
    """Draw Gamma-distributed values with scale 1; gradients use implicit reparameterisation
    (Figurnov et al. 2018).

    Args:
        concentration: Shape parameters: floating-point numbers in a tensor of any shape.
    """
    generator = _CURRENT.get()
    dtype = concentration.dtype
    if generator is tf.random:
        values = tf.random.gamma([], concentration, dtype=dtype)
    elif isinstance(generator, tf.random.Generator):
        seed = generator.make_seeds()[:, 0]  # by default, it makes one column with one seed
        shape = tf.shape(concentration)
        values = tf.random.stateless_gamma(shape, seed, alpha=concentration, dtype=dtype)
    else:
        values = generator.gamma(concentration)
    # A trace may lose the static shape.
    values.set_shape(concentration.shape)
    return values


def draw_categorical(logits: Tensor) -> Any:
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


def new_generator(device: str, state: Array | Tensor | None = None) -> Any:
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
def drawing_from(generator: RandomSource) -> Iterator[None]:
    """Return a context in which this module's functions draw from a generator or a replacement for
    it.

    Args:
        generator: A `tf.random.Generator`, or an object that replaces it.
    """
    token = _CURRENT.set(generator)
    try:
        yield
    finally:
        _CURRENT.reset(token)
