"""Sequences in TensorFlow: padding and the time axis."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from rlcatalog.frameworks import padded_length
from rlcatalog.spaces import map_tensors


class Padding:
    """Positions of rows in sequences that are padded to a common length; they can be symbolic
    tensors.

    Args:
        lengths: Lengths of the sequences `[S]`, int32, each from 1 to `length`.
        length: Length of the padded sequences; None means the longest sequence's length.
    """

    def __init__(self, lengths: Any, length: Any = None) -> None:
        self.lengths = lengths
        self.length = tf.maximum(tf.reduce_max(lengths), 0) if length is None else length

    @classmethod
    def of(cls, seq_lens: Any, rows: Any) -> Padding | None:
        """Return the padding in padded rows `[S * T, ...]`, or None if there is none (known only in
        eager mode).

        Raises:
            ModelContractError: The lengths do not fit the rows (checked only in eager mode).
        """
        lengths = tf.cast(seq_lens, tf.int32)
        if tf.executing_eagerly():
            if len(lengths) == len(rows):
                return None
            values = lengths.numpy()
            length = padded_length(values.tolist(), len(rows))
            return cls(lengths, length) if (values < length).any() else None
        return cls(lengths, tf.shape(rows)[0] // tf.maximum(tf.shape(lengths)[0], 1))

    def fill(self, rows: Any, repeat: int = 1) -> Any:
        """Pad rows `[R, ...]`, or a structure of rows, to `[S * T, ...]`.

        Padding repeats the last row of each sequence, so that a model only sees rows that can
        occur.

        Args:
            rows: The rows.
            repeat: Keep every `repeat`-th row of each sequence.
        """
        ends = tf.cumsum(self.lengths)[:, None] - 1
        places = tf.minimum(
            ends + 1 - self.lengths[:, None] + tf.range(0, self.length, repeat), ends
        )
        return map_tensors(rows, lambda part: tf.gather(part, tf.reshape(places, [-1])))

    def zeros(self, rows: Any) -> Any:
        """Pad rows `[R, ...]` with zeros."""
        shape = tf.concat([[tf.shape(self.lengths)[0] * self.length], tf.shape(rows)[1:]], axis=0)
        padded = tf.scatter_nd(self._places(1)[:, None], rows, tf.cast(shape, tf.int64))
        return tf.ensure_shape(padded, [None, *rows.shape[1:]])

    def take(self, padded: Any, repeat: int = 1) -> Any:
        """Remove the padding: return the rows `[R, ...]` of padded rows, or of a structure.

        Args:
            padded: The padded rows.
            repeat: The padded rows contain every `repeat`-th row of each sequence.
        """
        places = self._places(repeat)
        return map_tensors(padded, lambda part: tf.gather(part, places))

    def _places(self, repeat: int) -> Any:
        real = tf.sequence_mask(self.lengths, self.length)[:, ::repeat]
        return tf.where(tf.reshape(real, [-1]))[:, 0]


def add_time_dimension(rows: Any, seq_lens: Any, *, time_major: bool = False) -> Any:
    """Add the time axis to padded rows.

    Args:
        rows: `[S * T, ...]`, padded to equal lengths.
        seq_lens: Lengths `[S]`.
        time_major: Whether time comes first.

    Returns:
        `[S, T, ...]`, or `[T, S, ...]`.
    """
    shape = tf.concat(
        [[tf.shape(seq_lens)[0], steps_of(rows, seq_lens)], tf.shape(rows)[1:]], axis=0
    )
    timed = tf.ensure_shape(tf.reshape(rows, shape), [None, None, *rows.shape[1:]])
    return tf.transpose(timed, [1, 0, *range(2, timed.shape.rank)]) if time_major else timed


def steps_of(rows: Any, seq_lens: Any) -> Any:
    """Return T, the length to which the sequences in rows `[S * T, ...]` are padded; 1 if there are
    no sequences.
    """
    return tf.maximum(tf.shape(rows)[0] // tf.maximum(tf.shape(seq_lens)[0], 1), 1)


def sequence_mask(seq_lens: Any, length: Any = None) -> Any:
    """Return which places of padded sequences contain rows: booleans `[S, length]`; None means the
    longest length.
    """
    return tf.sequence_mask(seq_lens, length)
