"""Sequences of steps as arrays: functions that cut trajectories, pad them to equal lengths, and
mask the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from rlcatalog.errors import ConfigError, ModelContractError
from rlcatalog.frameworks import Array, lengths_of


def chop_into_sequences(episode_ids: Array | Sequence[Any], max_seq_len: int) -> Array:
    """Cut rows into sequences that neither cross episode boundaries nor exceed `max_seq_len`.

    Args:
        episode_ids: For each row, the episode (and run, agent, …) that it belongs to, `[R]` or
            `[R, k]`; a sequence ends where this value changes.
        max_seq_len: Maximum length of a sequence, in rows.

    Returns:
        Lengths of the sequences `[S]`, int32; they add up to R.

    Raises:
        ModelContractError: `max_seq_len` is less than 1.

    Example:
        >>> chop_into_sequences([7, 7, 7, 8, 8], max_seq_len=2)
        array([2, 1, 2], dtype=int32)
    """
    if max_seq_len < 1:
        raise ModelContractError(f"max_seq_len: expected at least 1, found {max_seq_len}.")
    num_rows = len(episode_ids)
    if num_rows == 0:
        return np.zeros(0, np.int32)
    ids = np.asarray(episode_ids).reshape(num_rows, -1)  # `[R]` becomes `[R, 1]`
    is_change = (ids[1:] != ids[:-1]).any(axis=1)
    first_rows_of_episodes = np.concatenate([[0], np.flatnonzero(is_change) + 1])
    ends_of_episodes = np.append(first_rows_of_episodes[1:], num_rows)
    first_rows_of_sequences = np.concatenate(
        [
            np.arange(first, end, max_seq_len)
            for first, end in zip(first_rows_of_episodes, ends_of_episodes, strict=True)
        ]
    )
    return np.diff(first_rows_of_sequences, append=num_rows).astype(np.int32)


def sequence_mask(seq_lens: Array | Sequence[int], length: int | None = None) -> Array:
    """Return which entries of padded sequences contain rows: booleans `[S, length]`.

    Args:
        seq_lens: Lengths `[S]`.
        length: Padded length of the sequences. If None, the length of the longest sequence.
    """
    lengths = np.asarray(seq_lens)
    if length is None:
        length = lengths.max(initial=0)
    return np.arange(length) < lengths[:, None]


def pad_sequences(
    rows: Array | Sequence[Any],
    seq_lens: Array | Sequence[int],
    length: int | None = None,
    padding: Literal["zero", "last"] = "zero",
) -> Array:
    """Return rows `[R, ...]` as sequences `[S, length, ...]`, each padded at its end.

    Args:
        rows: The rows of all sequences, one sequence after the other.
        seq_lens: Their lengths `[S]`.
        length: Padded length. If None, the length of the longest sequence.
        padding: `"zero"`, as in RLlib, or `"last"` to repeat a sequence's last row.

    Raises:
        ModelContractError: The lengths do not add up to the rows, or one is longer than `length`.
        ConfigError: `padding` is unknown.
    """
    if padding not in ("zero", "last"):
        raise ConfigError(f"padding: expected 'zero' or 'last', found {padding!r}.")
    rows = np.asarray(rows)
    lengths = lengths_of({"seq_lens": seq_lens}, len(rows))  # checks that they add up to the rows
    mask = sequence_mask(lengths, length)
    if lengths.max(initial=0) > mask.shape[1]:
        raise ModelContractError(f"seq_lens: expected at most {length}, found {lengths.max()}.")
    padded = np.zeros((*mask.shape, *rows.shape[1:]), rows.dtype)
    padded[mask] = rows
    if padding == "last":
        last_rows = np.cumsum(lengths) - 1
        sequence_of_padding = np.nonzero(~mask)[0]
        padded[~mask] = rows[last_rows[sequence_of_padding]]
    return padded


def unpad_sequences(padded: Array | Sequence[Any], seq_lens: Array | Sequence[int]) -> Array:
    """Return the rows `[R, ...]` of padded sequences `[S, L, ...]`, one sequence
    after the other.
    """
    sequences = np.asarray(padded)
    mask = sequence_mask(seq_lens, sequences.shape[1])
    return sequences[mask]
