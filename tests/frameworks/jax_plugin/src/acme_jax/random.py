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
        """Return a new key."""
        self.key, key = jax.random.split(self.key)
        return key


KEYS = Keys(seed=0)
