"""The random key of the process, as the other frameworks have one generator."""

from __future__ import annotations

from typing import Any

import jax


class Keys:
    """Source of random keys.

    Attributes:
        key: The key that the next one is split from.
    """

    def __init__(self, seed: int) -> None:
        self.key: Any = jax.random.PRNGKey(seed)

    def seed(self, number: int) -> None:
        """Begin with the keys of a seed."""
        self.key = jax.random.PRNGKey(number)

    def next(self) -> Any:
        """Return a new key.

        Raises:
            RuntimeError: A function is being traced. The key would be a number of the trace, which
                JAX refuses in every later draw.
        """
        remaining, key = jax.random.split(self.key)
        if isinstance(key, jax.core.Tracer):
            raise RuntimeError(
                "A key was drawn while JAX traces a function, such as in jax.jit or"
                " jax.eval_shape. Draw it before, and pass it to the function as an argument."
            )
        self.key = remaining
        return key


KEYS = Keys(seed=0)
