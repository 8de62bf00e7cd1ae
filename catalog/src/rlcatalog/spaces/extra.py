"""Additional spaces: `Repeated` (a list of bounded length) and `Simplex` (a probability vector)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from rlcatalog.frameworks.ops import Array


class Repeated(gymnasium.Space[list[Any]]):
    """Lists of at most `max_len` values of a child space.

    Args:
        child_space: Space of one item.
        max_len: Largest number of items.
        seed: Seed for sampling.

    Example:
        >>> space = Repeated(spaces.Discrete(5), max_len=3)
        >>> [1, 4] in space, [1, 4, 0, 2] in space
        (True, False)
    """

    __module__ = "rlcatalog.spaces"  # the public path, which also names the kind

    def __init__(
        self, child_space: gymnasium.Space[Any], max_len: int, seed: int | None = None
    ) -> None:
        self.child_space = child_space
        self.max_len = int(max_len)
        super().__init__(None, None, seed)

    def seed(self, seed: int | None = None) -> Any:
        """Seed the lengths and the items, and return the seed."""
        child_seed = None
        if seed is not None:
            # A different seed, so that the first item does not follow from the length.
            child_seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self.child_space.seed(child_seed)
        return super().seed(seed)

    def sample(self, mask: Any = None, probability: Any = None) -> list[Any]:
        """Return a list of 0 to `max_len` items, sampled from the child space."""
        length = int(self.np_random.integers(0, self.max_len + 1))
        return [self.child_space.sample() for _ in range(length)]

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a list, tuple or array of at most `max_len` items of the child
        space.
        """
        if not isinstance(x, list | tuple | np.ndarray) or len(x) > self.max_len:
            return False
        return all(self.child_space.contains(item) for item in x)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Repeated)
            and self.max_len == other.max_len
            and self.child_space == other.child_space
        )

    def __repr__(self) -> str:
        return f"Repeated({self.child_space}, {self.max_len})"


class Simplex(gymnasium.Space[Array]):
    """Vectors whose last axis is non-negative and sums to 1.

    Args:
        shape: Shape; the parts are along the last axis.
        concentration: Dirichlet concentration used for sampling, `shape[-1:]`; all ones if None.
        dtype: A floating dtype.
        seed: Seed for sampling.

    Example:
        >>> space = Simplex((3,))
        >>> np.array([0.2, 0.3, 0.5], np.float32) in space
        True
    """

    __module__ = "rlcatalog.spaces"

    def __init__(
        self,
        shape: Sequence[int],
        concentration: Sequence[float] | Array | None = None,
        dtype: type[np.floating[Any]] = np.float32,
        seed: int | None = None,
    ) -> None:
        super().__init__(tuple(shape), dtype, seed)
        size = int(shape[-1])
        if concentration is None:
            self.concentration = np.ones(size)
        else:
            self.concentration = np.asarray(concentration, np.float64)
        if self.concentration.shape != (size,):
            raise ValueError(
                f"concentration: expected shape ({size},), found {self.concentration.shape}."
            )

    def sample(self, mask: Any = None, probability: Any = None) -> Array:
        """Return a sample from a Dirichlet distribution."""
        assert self.shape is not None
        return self.np_random.dirichlet(self.concentration, self.shape[:-1]).astype(self.dtype)

    def contains(self, x: Any) -> bool:
        """Return whether `x` has the shape and no negative entries, and sums to 1 along its last
        axis (to 1e-3).
        """
        vectors = np.asarray(x)
        if vectors.shape != self.shape or not (vectors >= 0).all():
            return False
        return bool(np.allclose(vectors.sum(-1), 1.0, atol=1e-3))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Simplex)
            and self.shape == other.shape
            and np.array_equal(self.concentration, other.concentration)
        )

    def __repr__(self) -> str:
        return f"Simplex({self.shape})"
