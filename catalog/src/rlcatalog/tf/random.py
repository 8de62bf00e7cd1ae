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

#: The generator of the policy that is running in this thread.
_CURRENT: ContextVar[Any] = ContextVar("generator", default=None)


def draw_uniform(shape: Any, dtype: Any = tf.float32) -> Any:
    """Draw numbers of [0, 1).

    Args:
        shape: Their shape, numbers or a tensor.
        dtype: Their dtype.
    """
    generator = _CURRENT.get()
    return (tf.random if generator is None else generator).uniform(shape, dtype=dtype)


def draw_normal(shape: Any, dtype: Any = tf.float32) -> Any:
    """Draw numbers of the standard normal distribution.

    Args:
        shape: Their shape, numbers or a tensor.
        dtype: Their dtype.
    """
    generator = _CURRENT.get()
    return (tf.random if generator is None else generator).normal(shape, dtype=dtype)


def draw_gamma(concentration: Any) -> Any:
    """Draw Gamma values of scale 1, with gradients by implicit reparameterisation (Figurnov et al. 2018).

    Args:
        concentration: Their shape parameters, floating-point numbers of any shape.
    """
    generator, dtype = _CURRENT.get(), concentration.dtype
    if generator is None:
        drawn = tf.random.gamma([], concentration, dtype=dtype)
    else:
        seed = generator.make_seeds()[:, 0]
        drawn = tf.random.stateless_gamma(tf.shape(concentration), seed, alpha=concentration, dtype=dtype)
    drawn.set_shape(concentration.shape)  # a trace would forget it
    return drawn


def draw_categorical(logits: Any) -> Any:
    """Draw a place of each row, int64 `[B, 1]`.

    Args:
        logits: Unnormalised log probabilities `[B, n]`.
    """
    generator = _CURRENT.get()
    if generator is None:
        return tf.random.categorical(logits, 1)
    return tf.random.stateless_categorical(logits, 1, generator.make_seeds()[:, 0])


def new_generator(device: str, state: Any = None) -> Any:
    """Return a generator.

    Args:
        device: Where its state is.
        state: Its state, int64 `[3]`; seeded by `tf.random` when missing, so that `tf.random.set_seed` rules it.
    """
    with tf.init_scope(), tf.device(device):
        if state is None:
            limits = tf.int64.min, tf.int64.max
            state = tf.random.uniform([3], *limits, dtype=tf.int64)
        return tf.random.Generator.from_state(state, alg="philox")


@contextmanager
def drawing_from(generator: Any) -> Iterator[None]:
    """Let the functions of this module draw from a generator."""
    former = _CURRENT.set(generator)
    try:
        yield
    finally:
        _CURRENT.reset(former)
