"""Sequences in PyTorch: padding rows, and the time axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcatalog.sequences import sequence_mask as _mask


class Padding:
    """Where the rows of sequences stand once they are padded to the longest.

    Args:
        lengths: Lengths of the sequences `[S]`.
        rows: Their sum.
        device: Where the rows are.
    """

    def __init__(self, lengths: np.ndarray[Any, Any], rows: int, device: torch.device) -> None:
        self.sequences, self.length = len(lengths), int(lengths.max(initial=0))
        self._places: Tensor | None = None
        if self.sequences * self.length != rows:
            self._places = torch.from_numpy(np.flatnonzero(_mask(lengths))).to(device)

    def fill(self, rows: Any, repeat: int = 1) -> Any:
        """Return rows `[R, ...]`, or a structure of such, padded: `[S * L, ...]`.

        Args:
            rows: The rows.
            repeat: Keep one row in that many of each sequence.
        """
        if isinstance(rows, dict):
            return {name: self.fill(part, repeat) for name, part in rows.items()}
        if isinstance(rows, tuple):
            return tuple(self.fill(part, repeat) for part in rows)
        padded: Tensor = rows
        if self._places is not None:
            padded = rows.new_zeros(self.sequences * self.length, *rows.shape[1:]).index_copy_(0, self._places, rows)
        if repeat > 1:
            padded = padded.view(self.sequences, self.length, *rows.shape[1:])[:, ::repeat].flatten(0, 1)
        return padded

    def take(self, padded: Tensor) -> Tensor:
        """Return the rows `[R, ...]` of padded ones."""
        return padded if self._places is None else padded.index_select(0, self._places)


def add_time_dimension(rows: Tensor, seq_lens: Tensor, *, time_major: bool = False) -> Tensor:
    """Give padded rows their time axis.

    Args:
        rows: `[S * T, ...]`, padded to equal lengths.
        seq_lens: Lengths `[S]`.
        time_major: Whether time comes first.

    Returns:
        `[S, T, ...]`, or `[T, S, ...]`.
    """
    sequences = len(seq_lens)
    timed = rows.reshape(sequences, rows.shape[0] // sequences, *rows.shape[1:])
    return timed.transpose(0, 1) if time_major else timed


def sequence_mask(seq_lens: Tensor, length: int | None = None) -> Tensor:
    """Return which places of padded sequences hold rows: booleans `[S, length]`, the longest one's when None."""
    if length is None:
        length = int(seq_lens.max())
    return torch.arange(length, device=seq_lens.device) < seq_lens[:, None]
