"""Random numbers of distributions, from a generator whose state can be read and set again.

`tf.random.normal`, traced, counts its draws inside the operation, where nobody can read the count: a run that was
stopped could not go on with the draws it would have made. Within a policy these functions draw from the policy's own
generator (a variable); outside of one they are those of `tf.random`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

#: Algorithm of the generators, as the operations below number them.
_PHILOX = 1
#: Dtype → how many binary digits it holds: whole numbers below 2 to that power are exact in it.
_DIGITS = {tf.bfloat16: 8, tf.float16: 11, tf.float32: 24, tf.float64: 53}
#: The generator of the policy that is running in this thread, or what draws in place of one by the same names.
_CURRENT: ContextVar[Any] = ContextVar("generator", default=tf.random)


def draw_uniform(shape: Any, dtype: Any = tf.float32) -> Any:
    """Draw numbers of [0, 1).

    Args:
        shape: Their shape, numbers or a tensor.
        dtype: Their dtype.
    """
    generator = _CURRENT.get()
    if not isinstance(generator, tf.random.Generator):
        return generator.uniform(shape, dtype=dtype)
    # One operation that draws and counts; `generator.uniform` is ten, and acting is made of small ones.
    digits = _DIGITS[tf.as_dtype(dtype)]
    whole = tf.int32 if digits < 31 else tf.int64
    drawn = tf.raw_ops.StatefulUniformInt(
        resource=generator.state.handle, algorithm=tf.constant(_PHILOX, tf.int64), shape=shape,
        minval=tf.constant(0, whole), maxval=tf.constant(2**digits, whole),
    )  # fmt: skip
    return tf.cast(drawn, dtype) * tf.constant(0.5**digits, dtype)


def draw_normal(shape: Any, dtype: Any = tf.float32) -> Any:
    """Draw numbers of the standard normal distribution.

    Args:
        shape: Their shape, numbers or a tensor.
        dtype: Their dtype.
    """
    generator = _CURRENT.get()
    if not isinstance(generator, tf.random.Generator):
        return generator.normal(shape, dtype=dtype)
    return tf.raw_ops.StatefulStandardNormalV2(  # see `draw_uniform`
        resource=generator.state.handle, algorithm=tf.constant(_PHILOX, tf.int64), shape=shape, dtype=dtype
    )


def draw_gamma(concentration: Any) -> Any:
    """Draw Gamma values of scale 1, with gradients by implicit reparameterisation (Figurnov et al. 2018).

    Args:
        concentration: Their shape parameters, floating-point numbers of any shape.
    """
    generator, dtype = _CURRENT.get(), concentration.dtype
    if generator is tf.random:
        drawn = tf.random.gamma([], concentration, dtype=dtype)
    elif isinstance(generator, tf.random.Generator):
        seed = generator.make_seeds()[:, 0]
        drawn = tf.random.stateless_gamma(tf.shape(concentration), seed, alpha=concentration, dtype=dtype)
    else:
        drawn = generator.gamma(concentration)
    drawn.set_shape(concentration.shape)  # a trace would forget it
    return drawn


def draw_categorical(logits: Any) -> Any:
    """Draw a place of each row, int64 `[B, 1]`.

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
        device: Where its state is.
        state: Its state, int64 `[3]`; seeded by `tf.random` when missing, so that `tf.random.set_seed` rules it.
    """
    with tf.init_scope(), tf.device(device):
        if state is None:
            state = tf.random.uniform([3], tf.int64.min, tf.int64.max, dtype=tf.int64)
        return tf.random.Generator.from_state(state, alg="philox")


@contextmanager
def drawing_from(generator: Any) -> Iterator[None]:
    """Let the functions of this module draw from a generator, or from what draws in place of one.

    Args:
        generator: A `tf.random.Generator`, or an object with `uniform(shape, dtype)`, `normal(shape, dtype)`,
            `gamma(concentration)` and `categorical(logits)`.
    """
    former = _CURRENT.set(generator)
    try:
        yield
    finally:
        _CURRENT.reset(former)
