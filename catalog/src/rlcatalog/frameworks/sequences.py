"""Sequences of steps: cutting trajectories up, padding them to equal lengths, and which rows are padding."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from rlcatalog.errors import ConfigError, ModelContractError
from rlcatalog.frameworks.contract import PolicyParts

Array = np.ndarray[Any, Any]


def chop_into_sequences(episode_ids: Any, max_seq_len: int) -> Array:
    """Cut rows into sequences that neither cross episodes nor are longer than `max_seq_len`.

    Args:
        episode_ids: For each row the episode (and the run, the agent, …) it belongs to, `[R]` or `[R, k]`; a sequence
            ends where it changes.
        max_seq_len: Longest sequence, in rows.

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
    """Return which places of padded sequences hold rows: booleans `[S, length]`.

    Args:
        seq_lens: Lengths `[S]`.
        length: Length the sequences are padded to; the longest one's when None.
    """
    lengths = np.asarray(seq_lens)
    return np.arange(lengths.max(initial=0) if length is None else length) < lengths[:, None]


def pad_sequences(
    rows: Any, seq_lens: Any, length: int | None = None, padding: Literal["zero", "last"] = "zero"
) -> Array:
    """Lay rows `[R, ...]` out as sequences `[S, length, ...]`, with padding behind each.

    Args:
        rows: The sequences one after the other.
        seq_lens: Their lengths `[S]`.
        length: Length they are padded to; the longest one's when None.
        padding: As in RLlib, `"zero"`, or `"last"` for a sequence's last row.

    Raises:
        ModelContractError: The lengths do not add up to the rows, or one is longer than `length`.
        ConfigError: `padding` is neither.
    """
    if padding not in ("zero", "last"):
        raise ConfigError(f"padding: expected 'zero' or 'last', found {padding!r}.")
    rows = np.asarray(rows)
    mask = sequence_mask(seq_lens, length)
    _check_lengths(np.asarray(seq_lens), len(rows), mask.shape[1])
    padded = np.zeros((*mask.shape, *rows.shape[1:]), rows.dtype)
    padded[mask] = rows
    if padding == "last":
        lasts = np.cumsum(seq_lens) - 1
        padded[~mask] = rows[lasts[np.nonzero(~mask)[0]]]
    return padded


def unpad_sequences(padded: Any, seq_lens: Any) -> Array:
    """Return the rows `[R, ...]` of padded sequences `[S, L, ...]`, one sequence after the other."""
    padded = np.asarray(padded)
    return padded[sequence_mask(seq_lens, padded.shape[1])]  # type: ignore[no-any-return]


def lengths_of(batch: Mapping[str, Any], rows: int) -> Array:
    """Return the lengths of a training batch's sequences, int32 `[S]`; without any, each row is a sequence."""
    lengths = batch.get("seq_lens")
    if lengths is None:
        return np.ones(rows, np.int32)
    found = np.asarray(lengths.detach().cpu() if hasattr(lengths, "detach") else lengths).astype(np.int32)
    _check_lengths(found, rows, int(found.max(initial=0)))
    return found


def memory_of(policy: PolicyParts, batch: Mapping[str, Any], sequences: int) -> Sequence[Any]:
    """Return the memory with which a batch's sequences begin, arrays or tensors `[S, ...]`.

    Raises:
        ModelContractError: It has another number of parts or rows.
    """
    state = batch.get("state")
    if state is None:
        start: Sequence[Any] = policy.memory.start(sequences)
        return start
    memory = list(getattr(state, "memory", state))
    if len(memory) != len(policy.memory.initial) or any(len(part) != sequences for part in memory):
        raise ModelContractError(
            f"batch['state']: expected {len(policy.memory.initial)} parts with a row for each of {sequences} sequences,"
            f" found the shapes {[tuple(part.shape) for part in memory]}."
        )
    return memory


def views_of(policy: PolicyParts, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the views a model sees in training, row by row.

    Raises:
        ModelContractError: One is missing.
    """
    names = policy.views.training
    if not names:
        return {}
    given = batch.get("views") or {}
    if missing := [name for name in names if name not in given]:
        raise ModelContractError(
            f"batch['views'] lacks {missing}, which {policy.model_name} asks for; store what acting returned"
            " as step.state.seen (and what Views.look_ahead makes of a rollout)."
        )
    return {name: given[name] for name in names}


def padded_length(lengths: Array, rows: int) -> int:
    """Return the length that sequences are padded to in `rows` rows.

    Args:
        lengths: Their lengths `[S]`.
        rows: Number of rows, padding included.

    Raises:
        ModelContractError: The rows cannot be shared out evenly, or a length is not between 1 and that.
    """
    length, left = divmod(rows, max(len(lengths), 1))
    if left or lengths.max(initial=0) > length or lengths.min(initial=1) < 1:
        raise ModelContractError(
            f"seq_lens: expected lengths from 1 to {length}, as {rows} rows hold {len(lengths)} padded sequences, found"
            f" {lengths.tolist()[:20]}."
        )
    return length


def _check_lengths(lengths: Array, rows: int, length: int) -> None:
    if lengths.sum() != rows or lengths.max(initial=0) > length or lengths.min(initial=1) < 1:
        raise ModelContractError(
            f"seq_lens: expected lengths from 1 to {length} that add up to {rows} rows, found {lengths.tolist()[:20]}."
        )
