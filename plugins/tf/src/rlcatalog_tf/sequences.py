"""Sequences in TensorFlow: padding and the time axis."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from rlcatalog.frameworks import Tensor, TensorTree, padded_length
from rlcatalog.spaces import map_tensors


class Padding:
    """Positions of rows in sequences that are padded to a common length; they can be symbolic
    tensors.

    Args:
        lengths: Lengths of the sequences `[S]`, int32, each from 1 to `length`.
        length: Length of the padded sequences; None means the longest sequence's length.
    """

    def __init__(self, lengths: Any, length: int | Tensor | None = None) -> None:
        self.lengths = lengths
        if length is None:
            # At least 0, because the maximum of no lengths is the lowest integer.
            length = tf.maximum(tf.reduce_max(lengths), 0)
        self.length: Any = length

    @classmethod
    def of(cls, seq_lens: Tensor, rows: Tensor) -> Padding | None:
        """Return the padding in padded rows `[S * T, ...]`, or None if there is none (known only in
        eager mode).

        Raises:
            ModelContractError: The lengths do not fit the rows (checked only in eager mode).
        """
        lengths = tf.cast(seq_lens, tf.int32)
        if not tf.executing_eagerly():
            sequences = tf.maximum(tf.shape(lengths)[0], 1)
            return cls(lengths, tf.shape(rows)[0] // sequences)
        num_rows = int(rows.shape[0])
        has_single_steps = len(lengths) == num_rows
        if has_single_steps:
            return None
        length = padded_length(lengths.numpy().tolist(), num_rows)
        has_padding = (lengths.numpy() < length).any()
        if not has_padding:
            return None
        return cls(lengths, length)

    def fill(self, rows: TensorTree, repeat: int = 1) -> Any:
        """Pad rows `[R, ...]`, or a structure of rows, to `[S * T, ...]`.

        Padding repeats the last row of each sequence, so that a model only sees rows that can
        occur.

        Args:
            rows: The rows.
            repeat: Keep every `repeat`-th row of each sequence.
        """
        steps = tf.range(0, self.length, repeat)
        last_rows = tf.cumsum(self.lengths)[:, None] - 1
        first_rows = last_rows + 1 - self.lengths[:, None]
        indices = tf.minimum(first_rows + steps, last_rows)
        return map_tensors(rows, lambda part: tf.gather(part, tf.reshape(indices, [-1])))

    def put_back(self, rows: Tensor) -> Any:
        """Pad rows `[R, ...]` with zeros."""
        padded_rows = tf.shape(self.lengths)[0] * self.length
        shape = tf.concat([[padded_rows], tf.shape(rows)[1:]], axis=0)
        indices = self._indices_of_rows(repeat=1)[:, None]
        padded = tf.scatter_nd(indices, rows, tf.cast(shape, tf.int64))
        return tf.ensure_shape(padded, [None, *rows.shape[1:]])

    def take(self, padded: TensorTree | tuple[Tensor | None, ...], repeat: int = 1) -> Any:
        """Remove the padding: return the rows `[R, ...]` of padded rows, or of a structure.

        Args:
            padded: The padded rows.
            repeat: The padded rows contain every `repeat`-th row of each sequence.
        """
        indices = self._indices_of_rows(repeat)
        return map_tensors(padded, lambda part: tf.gather(part, indices))

    def _indices_of_rows(self, repeat: int) -> Any:
        """Return the indices of the rows among the padded rows."""
        is_row = tf.sequence_mask(self.lengths, self.length)[:, ::repeat]
        return tf.where(tf.reshape(is_row, [-1]))[:, 0]


def add_time_dimension(rows: Tensor, seq_lens: Tensor, *, time_major: bool = False) -> Any:
    """Add the time axis to padded rows.

    Args:
        rows: `[S * T, ...]`, padded to equal lengths.
        seq_lens: Lengths `[S]`.
        time_major: Whether time comes first.

    Returns:
        `[S, T, ...]`, or `[T, S, ...]`.
    """
    sequences = tf.shape(seq_lens)[0]
    steps = steps_of(rows, seq_lens)
    shape = tf.concat([[sequences, steps], tf.shape(rows)[1:]], axis=0)
    timed = tf.ensure_shape(tf.reshape(rows, shape), [None, None, *rows.shape[1:]])
    if time_major:
        timed = tf.transpose(timed, [1, 0, *range(2, timed.shape.rank)])
    return timed


def steps_of(rows: Tensor, seq_lens: Tensor) -> Any:
    """Return T, the length to which the sequences in rows `[S * T, ...]` are padded; 1 if there are
    no sequences.
    """
    return tf.maximum(tf.shape(rows)[0] // tf.maximum(tf.shape(seq_lens)[0], 1), 1)


def sequence_mask(seq_lens: Tensor, length: int | Tensor | None = None) -> Any:
    """Return which places of padded sequences contain rows: booleans `[S, length]`; None means the
    longest length.
    """
    return tf.sequence_mask(seq_lens, length)
