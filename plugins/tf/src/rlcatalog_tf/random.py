"""Random numbers of distributions, from a generator whose state can be read and set again.

`tf.random.normal`, traced, counts its draws inside the operation, where nobody can read the count: a run that was
stopped could not go on with the draws it would have made. Within a policy these functions draw from the policy's own
generator (a variable); outside of one they are those of `tf.random`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import tensorflow as tf

from rlcatalog.errors import NotServedError

#: Tries of Marsaglia's and Tsang's way to draw from a Gamma distribution; each is rejected less than once in 20.
_GAMMA_TRIES = 8
#: Algorithm of the generators, as the operations below number them.
_PHILOX = 1
#: Dtype → how many binary digits it holds: whole numbers below 2 to that power are exact in it.
_DIGITS = {tf.bfloat16: 8, tf.float16: 11, tf.float32: 24, tf.float64: 53}
#: Noise is kept off 0 and 1, where logs are no numbers.
_LEAST, _MOST = 2.0**-25, 1 - 2.0**-24
#: The generator of the policy that is running in this thread, or the noise it draws from.
_CURRENT: ContextVar[Any] = ContextVar("generator", default=None)


def draw_uniform(shape: Any, dtype: Any = tf.float32) -> Any:
    """Draw numbers of [0, 1).

    Args:
        shape: Their shape, numbers or a tensor.
        dtype: Their dtype.
    """
    generator = _CURRENT.get()
    if generator is None or isinstance(generator, Noise):
        return (tf.random if generator is None else generator).uniform(shape, dtype=dtype)
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
    if generator is None or isinstance(generator, Noise):
        return (tf.random if generator is None else generator).normal(shape, dtype=dtype)
    return tf.raw_ops.StatefulStandardNormalV2(  # see `draw_uniform`
        resource=generator.state.handle, algorithm=tf.constant(_PHILOX, tf.int64), shape=shape, dtype=dtype
    )


def draw_gamma(concentration: Any) -> Any:
    """Draw Gamma values of scale 1, with gradients by implicit reparameterisation (Figurnov et al. 2018).

    Args:
        concentration: Their shape parameters, floating-point numbers of any shape.
    """
    generator, dtype = _CURRENT.get(), concentration.dtype
    if isinstance(generator, Noise):
        drawn = generator.gamma(concentration)
    elif generator is None:
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
    if isinstance(generator, Noise):
        return generator.categorical(logits)
    return tf.random.stateless_categorical(logits, 1, generator.make_seeds()[:, 0])


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


class Noise:
    """Draws from given uniform numbers, so that a policy is a pure function of its inputs and of them.

    Args:
        rows: B, the number of rows of the batch, where it is known.
        given: Uniform numbers `[B, k]`; without any, they are drawn here, and counted.
        widths: How many numbers a row each draw takes, from a former count; where the number of rows is not known.
    """

    def __init__(self, rows: int | None, given: Any = None, widths: list[int] | None = None) -> None:
        self.rows, self.given, self.known = rows, given, widths
        self.widths: list[int] = []
        self._own = np.random.default_rng(0)

    def uniform(self, shape: Any, dtype: Any = tf.float32) -> Any:
        """Return uniform numbers from the open interval (0, 1), fresh ones at each call."""
        if self.known is None:
            count = int(np.prod(np.asarray(shape)))
            if not self.rows or count % self.rows:
                raise NotServedError(
                    f"export: numbers of shape {tuple(np.asarray(shape))} are drawn for a batch of {self.rows} rows;"
                    " each row must draw its own."
                )
            own = count // self.rows
        else:
            own = self.known[len(self.widths)]
        at = sum(self.widths)
        self.widths.append(own)
        numbers = (
            self._own.random((self.rows or 0, own), np.float32) if self.given is None else self.given[:, at : at + own]
        )
        return tf.cast(tf.reshape(tf.clip_by_value(numbers, _LEAST, _MOST), shape), dtype)

    def normal(self, shape: Any, dtype: Any = tf.float32) -> Any:
        """Return standard normal numbers, by Box's and Muller's way: two uniform ones for two, side by side."""
        sizes = tf.unstack(shape) if tf.is_tensor(shape) else list(shape)
        *one, last = sizes if len(sizes) > 1 else [*sizes, 1]
        half = (last + 1) // 2
        uniform = self.uniform(tf.stack([*one, 2 * half]), dtype)
        radius = tf.sqrt(-2 * tf.math.log(uniform[..., :half]))
        angle = uniform[..., half:] * (2 * math.pi)
        drawn = tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], -1)[..., :last]
        return tf.reshape(drawn, shape)

    def gamma(self, concentration: Any) -> Any:
        """Return Gamma numbers by Marsaglia's and Tsang's way, the first of a few tries that is not rejected."""
        shape, dtype = tf.shape(concentration), concentration.dtype
        small = concentration < 1
        d = tf.where(small, concentration + 1, concentration) - 1 / 3
        c = tf.math.rsqrt(9 * d)
        tries = tf.concat([shape, [_GAMMA_TRIES]], 0)
        x, u = self.normal(tries, dtype), self.uniform(tries, dtype)
        v = (1 + c[..., None] * x) ** 3
        wide, logs = d[..., None], tf.math.log(tf.maximum(v, 1e-30))
        taken = (v > 0) & (tf.math.log(u) < 0.5 * x * x + wide - wide * v + wide * logs)
        # Where all are rejected, less than once in 10^10, the first one stands.
        first = tf.argmax(tf.cast(taken, tf.int32), axis=-1)
        drawn = tf.gather(wide * tf.maximum(v, 1e-30), first[..., None], batch_dims=concentration.shape.rank)[..., 0]
        boost = self.uniform(shape, dtype) ** (1 / tf.maximum(concentration, 1e-30))
        return tf.where(small, drawn * boost, drawn)

    def categorical(self, logits: Any) -> Any:
        """Return a place of each row, int64 `[B, 1]`: of clocks with these rates, the first to ring."""
        clocks = tf.math.log(-tf.math.log(self.uniform(tf.shape(logits), logits.dtype)))
        return tf.argmax(logits - clocks, axis=1)[:, None]


@contextmanager
def drawing_from(generator: Any) -> Iterator[None]:
    """Let the functions of this module draw from a generator, or from noise."""
    former = _CURRENT.set(generator)
    try:
        yield
    finally:
        _CURRENT.reset(former)
