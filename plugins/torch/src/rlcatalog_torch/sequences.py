"""Sequences in PyTorch: padding and the time axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcatalog.frameworks import TensorTree, padded_length
from rlcatalog.spaces import map_tensors


class Padding:
    """Positions of rows in sequences that are padded to a common length.

    Args:
        lengths: Lengths of the sequences `[S]`, each from 1 to `length`.
        length: Length of the padded sequences.
        device: Device of the rows.
    """

    def __init__(self, lengths: np.ndarray[Any, Any], length: int, device: torch.device) -> None:
        self.lengths = lengths
        self.length = length
        self.device = device
        #: Whether there is any padding.
        self.needed = min(lengths.tolist(), default=length) < length

    @classmethod
    def of(cls, seq_lens: Tensor | Sequence[int], rows: Tensor) -> Padding | None:
        """Return the padding in padded rows `[S * T, ...]`, or None if there is none (or if, on
        "meta", it is unknown).

        Raises:
            ModelContractError: The lengths do not fit the rows.
        """
        has_single_steps = sequences_of(seq_lens) == rows.shape[0]
        if has_single_steps or rows.is_meta:
            return None
        # A list, because inside torch.func no tensor can become an array.
        try:
            lengths = seq_lens.tolist() if isinstance(seq_lens, Tensor) else [*seq_lens]
        except RuntimeError:
            # PyTorch 2.8 has no `tolist` there.
            lengths = [int(length) for length in seq_lens]
        length = padded_length(lengths, len(rows))
        has_no_padding = min(lengths, default=length) == length
        if has_no_padding:
            return None
        return cls(np.asarray(lengths, np.int64), length, rows.device)

    def fill(self, rows: TensorTree, repeat: int = 1) -> Any:
        """Pad rows `[R, ...]`, or a structure of rows, to `[S * T, ...]`.

        Padding repeats the last row of each sequence, so that a model only sees rows that can
        occur.

        Args:
            rows: The rows.
            repeat: Keep every `repeat`-th row of each sequence.
        """
        if not self.needed and repeat == 1:
            return rows
        steps = np.arange(0, self.length, repeat)
        last_rows = np.cumsum(self.lengths)[:, None] - 1
        first_rows = last_rows + 1 - self.lengths[:, None]
        indices = self._to_tensor(np.minimum(first_rows + steps, last_rows))
        return map_tensors(rows, lambda part: part.index_select(0, indices))

    def put_back(self, rows: Tensor) -> Tensor:
        """Pad rows `[R, ...]` with zeros."""
        if not self.needed:
            return rows
        padded = rows.new_zeros(len(self.lengths) * self.length, *rows.shape[1:])
        return padded.index_copy(0, self._indices_of_rows(repeat=1), rows)

    def take(self, padded: TensorTree | tuple[Tensor | None, ...], repeat: int = 1) -> Any:
        """Remove the padding: return the rows `[R, ...]` of padded rows, or of a structure.

        Args:
            padded: The padded rows.
            repeat: The padded rows contain every `repeat`-th row of each sequence.
        """
        if not self.needed:
            return padded
        indices = self._indices_of_rows(repeat)
        return map_tensors(padded, lambda part: part.index_select(0, indices))

    def _indices_of_rows(self, repeat: int) -> Tensor:
        """Return the indices of the rows among the padded rows."""
        longest = math.ceil(self.length / repeat)
        lengths = np.ceil(self.lengths / repeat)
        is_row = np.arange(longest) < lengths[:, None]
        return self._to_tensor(np.flatnonzero(is_row))

    def _to_tensor(self, indices: np.ndarray[Any, Any]) -> Tensor:
        return torch.from_numpy(indices.reshape(-1).astype(np.int64)).to(self.device)


def add_time_dimension(rows: Tensor, seq_lens: Tensor, *, time_major: bool = False) -> Tensor:
    """Add the time axis to padded rows.

    Args:
        rows: `[S * T, ...]`, padded to equal lengths.
        seq_lens: Lengths `[S]`.
        time_major: Whether time comes first.

    Returns:
        `[S, T, ...]`, or `[T, S, ...]`.
    """
    sequences = sequences_of(seq_lens)
    timed = rows.reshape(sequences, steps_of(rows.shape[0], sequences), *rows.shape[1:])
    if time_major:
        timed = timed.transpose(0, 1)
    return timed


def sequences_of(seq_lens: Tensor | Sequence[int]) -> int:
    """Return the number of sequences; for a tensor, in a form that stays dynamic in traces and
    exports.
    """
    if isinstance(seq_lens, Tensor):
        return seq_lens.shape[0]
    return len(seq_lens)


def steps_of(rows: int, sequences: int) -> int:
    """Return T, the length to which S sequences in S * T rows are padded; 1 if there are no
    sequences.
    """
    if not sequences:
        return 1
    return rows // sequences


def sequence_mask(seq_lens: Tensor, length: int | None = None) -> Tensor:
    """Return which places of padded sequences contain rows: booleans `[S, length]`; None means the
    longest length.
    """
    if length is None:
        length = int(seq_lens.max())
    return torch.arange(length, device=seq_lens.device) < seq_lens[:, None]
