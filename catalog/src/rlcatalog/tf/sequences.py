"""Sequences in TensorFlow: padding rows, and the time axis."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Padding:
    """Where the rows of sequences stand once they are padded to the longest; its parts may be traced.

    Args:
        lengths: Lengths of the sequences `[S]`, int32.
    """

    def __init__(self, lengths: Any) -> None:
        self.sequences, self.length = tf.shape(lengths)[0], tf.reduce_max(lengths)
        self._places = tf.where(tf.sequence_mask(lengths, self.length))

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
        inner = tf.shape(rows)[1:]
        padded = tf.scatter_nd(
            self._places, rows, tf.cast(tf.concat([[self.sequences, self.length], inner], axis=0), tf.int64)
        )
        if repeat > 1:
            padded = padded[:, ::repeat]
        return tf.ensure_shape(tf.reshape(padded, tf.concat([[-1], inner], axis=0)), [None, *rows.shape[1:]])

    def take(self, padded: Any) -> Any:
        """Return the rows `[R, ...]` of padded ones."""
        shape = tf.concat([[self.sequences, self.length], tf.shape(padded)[1:]], axis=0)
        return tf.ensure_shape(tf.gather_nd(tf.reshape(padded, shape), self._places), [None, *padded.shape[1:]])


def add_time_dimension(rows: Any, seq_lens: Any, *, time_major: bool = False) -> Any:
    """Give padded rows their time axis.

    Args:
        rows: `[S * T, ...]`, padded to equal lengths.
        seq_lens: Lengths `[S]`.
        time_major: Whether time comes first.

    Returns:
        `[S, T, ...]`, or `[T, S, ...]`.
    """
    sequences = tf.shape(seq_lens)[0]
    shape = tf.concat([[sequences, tf.shape(rows)[0] // sequences], tf.shape(rows)[1:]], axis=0)
    timed = tf.ensure_shape(tf.reshape(rows, shape), [None, None, *rows.shape[1:]])
    return tf.transpose(timed, [1, 0, *range(2, timed.shape.rank)]) if time_major else timed


def sequence_mask(seq_lens: Any, length: Any = None) -> Any:
    """Return which places of padded sequences hold rows: booleans `[S, length]`, the longest one's when None."""
    return tf.sequence_mask(seq_lens, length)
