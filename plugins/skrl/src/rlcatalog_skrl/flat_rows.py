"""Observations and actions as skrl carries them: one row of float32 numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rlcatalog.errors import NotServedError

Space = gym.Space[Any]


class _Leaf(NamedTuple):
    """A part of a row.

    Attributes:
        columns: Its columns.
        shape: Its shape in the space.
        dtype: The dtype of its tensors in the space's structure.
    """

    columns: slice
    shape: tuple[int, ...]
    dtype: torch.dtype


class FlatRows:
    """The layout of a space's values as rows of float32 numbers.

    It is skrl's: the entries of a Dict in the order of their names, a Discrete as one number. Here,
    MultiBinary and arrays of choices have a place too.

    Args:
        space: The space.

    Attributes:
        size: Numbers in a row.

    Raises:
        NotServedError: The space, or a part of it, has no fixed size.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.size = 0
        self._leaves: list[_Leaf] = []
        for leaf in _leaves_of(space):
            shape = tuple(leaf.shape or ())
            stop = self.size + math.prod(shape)
            dtype = torch.from_numpy(np.zeros(0, leaf.dtype)).dtype
            self._leaves.append(_Leaf(slice(self.size, stop), shape, dtype))
            self.size = stop

    def flatten(self, values: Any) -> Tensor:
        """Return a batch of the space's values, a structure of tensors, as new rows `[N, size]`."""
        columns = []
        for tensor, leaf in zip(_tensors_of(self.space, values), self._leaves, strict=True):
            size = leaf.columns.stop - leaf.columns.start
            columns.append(tensor.reshape(-1, size).float())
        if len(columns) == 1:
            # skrl keeps the row while a simulator may overwrite its tensor.
            return columns[0].clone()
        return torch.cat(columns, dim=1)

    def unflatten(self, rows: Tensor) -> Any:
        """Return rows `[N, size]` as a structure of tensors with the space's dtypes."""
        tensors = []
        for leaf in self._leaves:
            tensor = rows[:, leaf.columns].to(leaf.dtype)
            tensors.append(tensor.reshape(len(rows), *leaf.shape))
        return _structure_of(self.space, iter(tensors))


def free_numbers(count: int) -> Space:
    """Return the space of rows of numbers without bounds."""
    return spaces.Box(-np.inf, np.inf, (count,), np.float32)


def _parts_of(space: Space) -> list[tuple[Any, Space]]:
    """Return the keys or positions of a composite space's parts, with the parts, in skrl's order;
    nothing for other spaces.
    """
    if isinstance(space, spaces.Dict):
        return [(name, space.spaces[name]) for name in sorted(space.spaces)]
    if isinstance(space, spaces.Tuple):
        return list(enumerate(space.spaces))
    return []


def _leaves_of(space: Space) -> Iterator[Space]:
    """Yield the parts of a space that are not composite."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for _, part in _parts_of(space):
            yield from _leaves_of(part)
        return
    fixed = spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
    if not isinstance(space, fixed):
        raise NotServedError(
            f"{space}: skrl carries rows of numbers, which this space does not have a fixed count"
            " of. Use Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple."
        )
    yield space


def _tensors_of(space: Space, values: Any) -> Iterator[Tensor]:
    """Yield the tensors of a structure, in skrl's order."""
    parts = _parts_of(space)
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        yield values
    for step, part in parts:
        yield from _tensors_of(part, values[step])


def _structure_of(space: Space, tensors: Iterator[Tensor]) -> Any:
    """Return the structure of a space with tensors in skrl's order."""
    if isinstance(space, spaces.Dict):
        return {name: _structure_of(part, tensors) for name, part in _parts_of(space)}
    if isinstance(space, spaces.Tuple):
        return tuple(_structure_of(part, tensors) for _, part in _parts_of(space))
    return next(tensors)
