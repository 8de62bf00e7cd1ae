"""States of any memory in the two tensors that sb3-contrib's RecurrentPPO carries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

Array = np.ndarray[Any, Any]
States = tuple[Tensor, ...]


def is_packable(initial: Sequence[Array]) -> bool:
    """Whether a memory's states can be carried: vectors of floats that begin as zeros."""
    return all(part.ndim == 1 and part.dtype.kind == "f" and not part.any() for part in initial)


class StatePacker:
    """Lays the vectors of a memory's state side by side, and cuts the row in two halves: an LSTM's stay what they are.

    Args:
        initial: The state at the start of an episode, vectors `[n]`.

    Attributes:
        size: Width of one half.
    """

    def __init__(self, initial: Sequence[Array]) -> None:
        self._widths = [int(part.shape[0]) for part in initial]
        self.size = -(-sum(self._widths) // 2)
        self._halves = self._widths == [self.size, self.size]

    def pack(self, parts: Sequence[Tensor]) -> States:
        """Return the two tensors `[1, B, size]` for state vectors `[B, n]`."""
        if self._halves:
            return parts[0][None], parts[1][None]
        row = pad(torch.cat(list(parts), 1), (0, 2 * self.size - sum(self._widths)))
        return row[None, :, : self.size], row[None, :, self.size :]

    def unpack(self, states: States, starts: Tensor) -> list[Tensor]:
        """Return the state vectors `[B, n]`, zeros where an episode begins `[B]`."""
        keep = (1.0 - starts).reshape(-1, 1)
        first, second = (half[0] * keep for half in states)
        if self._halves:
            return [first, second]
        row = torch.cat([first, second], 1)[:, : sum(self._widths)]
        return list(torch.split(row, self._widths, 1))
