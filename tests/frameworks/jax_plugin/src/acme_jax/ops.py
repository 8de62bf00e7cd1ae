"""JAX's tensor operations: the required four, and what PPO and the conformance kit ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlcatalog.frameworks import Array, TensorOps


class Ops(TensorOps[jax.Array]):
    """JAX's tensor operations."""

    framework = "jax"

    def reshape(self, x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return x.reshape(*x.shape[:-1], *shape)

    def integers(self, x: jax.Array) -> jax.Array:
        return x.astype(jnp.int32)  # without jax_enable_x64, there is no int64

    def side_by_side(self, pieces: Sequence[jax.Array]) -> jax.Array:
        return jnp.concatenate(pieces, axis=1)

    def fill_forbidden(self, inputs: jax.Array, mask: jax.Array) -> jax.Array:
        return jnp.where(jnp.asarray(mask, bool), inputs, jnp.finfo(inputs.dtype).min)

    def array(self, x: Any) -> Array | None:
        if isinstance(x, jax.core.Tracer):
            return None
        return np.asarray(x)

    def tensor(self, value: Any, like: jax.Array | None = None) -> jax.Array:
        return jnp.asarray(value)

    def booleans(self, value: Any, like: jax.Array) -> jax.Array:
        return jnp.asarray(value, bool)

    def is_array(self, value: Any) -> bool:
        return isinstance(value, jax.Array | np.ndarray)

    def is_float(self, x: jax.Array) -> bool:
        return bool(jnp.issubdtype(x.dtype, jnp.floating))

    def is_half(self, x: jax.Array) -> bool:
        return x.dtype in (jnp.float16, jnp.bfloat16)

    def cast(self, x: jax.Array, dtype: Any) -> jax.Array:
        return x.astype(dtype)

    def as_type(self, x: jax.Array, name: str) -> jax.Array:
        return x.astype(name)

    def flat(self, x: jax.Array) -> jax.Array:
        return x.reshape(x.shape[0], -1)

    def concat(self, values: Sequence[jax.Array], axis: int = 0) -> jax.Array:
        return jnp.concatenate(values, axis=axis)

    def one_hot(self, x: jax.Array, n: int) -> jax.Array:
        return jax.nn.one_hot(x, n)

    def argmax(self, x: jax.Array) -> jax.Array:
        return x.argmax(-1)

    def total(self, values: Sequence[jax.Array]) -> Any:
        return sum(values)

    def sum(self, x: jax.Array, axis: Any = None, keepdims: bool = False) -> jax.Array:
        return jnp.sum(x, axis, keepdims=keepdims)

    def mean(self, x: jax.Array, axis: Any = None, keepdims: bool = False) -> jax.Array:
        return jnp.mean(x, axis, keepdims=keepdims)

    def std(self, x: jax.Array) -> jax.Array:
        return jnp.std(x, ddof=1)

    def exp(self, x: jax.Array) -> jax.Array:
        return jnp.exp(x)

    def minimum(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.minimum(x, y)

    def maximum(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.maximum(x, y)

    def clip(self, x: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
        return jnp.clip(x, low, high)

    def without_gradient(self, x: jax.Array) -> jax.Array:
        return jax.lax.stop_gradient(x)


OPS = Ops()
