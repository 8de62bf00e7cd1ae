"""Sequences of steps as arrays: functions that cut trajectories, pad them to equal lengths, and
mask the padding.
"""

from __future__ import annotations

import itertools
from typing import Any, Literal

import numpy as np

from rlcatalog.errors import ConfigError, ModelContractError
from rlcatalog.frameworks import Array, lengths_of


def chop_into_sequences(episode_ids: Any, max_seq_len: int) -> Array:
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
    rows = len(episode_ids)
    if rows == 0:
        return np.zeros(0, np.int32)
    ids = np.asarray(episode_ids).reshape(rows, -1)
    changes = (ids[1:] != ids[:-1]).any(axis=1)
    begins = np.concatenate([[0], np.flatnonzero(changes) + 1, [rows]])
    starts = np.concatenate([np.arange(a, b, max_seq_len) for a, b in itertools.pairwise(begins)])
    return np.diff(starts, append=rows).astype(np.int32)


def sequence_mask(seq_lens: Any, length: int | None = None) -> Array:
    """Return which entries of padded sequences contain rows: booleans `[S, length]`.

    Args:
        seq_lens: Lengths `[S]`.
        length: Padded length of the sequences. If None, the length of the longest sequence.
    """
    lengths = np.asarray(seq_lens)
    return np.arange(lengths.max(initial=0) if length is None else length) < lengths[:, None]


def pad_sequences(
    rows: Any, seq_lens: Any, length: int | None = None, padding: Literal["zero", "last"] = "zero"
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
    lengths = lengths_of({"seq_lens": seq_lens}, len(rows))
    mask = sequence_mask(lengths, length)
    if lengths.max(initial=0) > mask.shape[1]:
        raise ModelContractError(f"seq_lens: expected at most {length}, found {lengths.max()}.")
    padded = np.zeros((*mask.shape, *rows.shape[1:]), rows.dtype)
    padded[mask] = rows
    if padding == "last":
        lasts = np.cumsum(lengths) - 1
        padded[~mask] = rows[lasts[np.nonzero(~mask)[0]]]
    return padded


def unpad_sequences(padded: Any, seq_lens: Any) -> Array:
    """Return the rows `[R, ...]` of padded sequences `[S, L, ...]`, one sequence
    after the other.
    """
    padded = np.asarray(padded)
    return padded[sequence_mask(seq_lens, padded.shape[1])]  # type: ignore[no-any-return]
