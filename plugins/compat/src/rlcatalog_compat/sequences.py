"""Cut trajectories into padded sequences, under RLlib's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from rlcatalog.errors import ConfigError
from rlcatalog.frameworks import Array
from rlcatalog_compat.spaces import leaves, map_leaves

if TYPE_CHECKING:
    from rlcatalog_compat.batches import SampleBatch

#: One number per row or per sequence.
Numbers = Sequence[int] | Array


def pad(leaf: ArrayLike, lengths: Iterable[int], size: int, repeat_last: bool = False) -> Array:
    """Return concatenated sequences, each padded to `size` rows.

    Args:
        leaf: Array `[sum(lengths), ...]`.
        lengths: Lengths of the sequences.
        size: Number of rows in each padded sequence.
        repeat_last: Whether to pad with the last row instead of zeros (None for objects and
            strings).
    """
    rows = np.asarray(leaf)
    row_shape = rows.shape[1:]
    sequence_lengths = [int(length) for length in lengths]
    sequences = _empty_rows((len(sequence_lengths), size, *row_shape), rows.dtype)
    start = 0
    for sequence, length in zip(sequences, sequence_lengths, strict=True):
        end = start + length
        sequence[:length] = rows[start:end]
        if repeat_last and length:
            sequence[length:] = rows[end - 1]
        start = end
    return sequences.reshape(-1, *row_shape)


def _empty_rows(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return zeros, or an array of None for objects and strings, which have no zero."""
    if dtype.kind in "OSU":
        return np.full(shape, None, object)
    return np.zeros(shape, dtype)


def chop_into_sequences(
    *,
    feature_columns: list[Any],
    state_columns: list[Any],
    max_seq_len: int,
    episode_ids: Numbers | None = None,
    unroll_ids: Numbers | None = None,
    agent_indices: Numbers | None = None,
    dynamic_max: bool = True,
    shuffle: bool = False,
    seq_lens: Numbers | None = None,
    states_already_reduced_to_init: bool = False,
    handle_nested_data: bool = False,
    _extra_padding: int = 0,
    padding: str = "zero",
    **kwargs: Any,  # noqa: ARG001  (RLlib's signature)
) -> tuple[list[Any], list[Any], Array]:
    """Cut columns into sequences and pad them to one length.

    Args:
        feature_columns: Columns `[B, ...]`.
        state_columns: State columns `[B, ...]`; each sequence gets the state of its first row.
        max_seq_len: Maximum length of a sequence.
        episode_ids: Episode id of each row `[B]`; a sequence ends where the id changes.
        unroll_ids: Likewise for rollouts.
        agent_indices: Likewise for agents.
        dynamic_max: Whether to pad sequences to the length of the longest one instead of to
            `max_seq_len`.
        shuffle: Whether to shuffle the sequences.
        seq_lens: Lengths `[S]`, if known.
        states_already_reduced_to_init: Whether `state_columns` are `[S, ...]`.
        handle_nested_data: Whether columns are structures, each of which is returned as a list of
            its leaves.
        padding: `"zero"`, or `"last"` for copies of a sequence's last row.
        **kwargs: Accepted for RLlib's signature.

    Returns:
        The padded columns `[S * T, ...]`, the states `[S, ...]`, and the lengths.

    Raises:
        ConfigError: `padding` is unknown.
    """
    if padding not in ("zero", "last"):
        raise ConfigError(f"padding: expected 'zero' or 'last', found {padding!r}.")
    features = [_without_lists(column) for column in feature_columns]
    if seq_lens is None or len(seq_lens) == 0:
        any_leaf = next(leaves(features + state_columns), ())
        seq_lens = _lengths(len(any_leaf), max_seq_len, episode_ids, unroll_ids, agent_indices)
    lengths = np.asarray(seq_lens, np.int32)
    size = max_seq_len
    if dynamic_max:
        size = int(lengths.max(initial=0)) + _extra_padding

    repeat_last = padding == "last"
    feature_leaves = []
    for column in features:
        column_leaves = [
            pad(leaf, lengths, size, repeat_last=repeat_last) for leaf in leaves(column)
        ]
        feature_leaves.append(column_leaves)
    states = list(state_columns)
    if not states_already_reduced_to_init:
        starts = np.cumsum(lengths) - lengths
        states = [
            map_leaves(lambda leaf: np.asarray(leaf)[starts], _without_lists(column))
            for column in state_columns
        ]
    if shuffle:
        order = np.random.permutation(len(lengths))
        lengths = lengths[order]
        states = [map_leaves(lambda leaf: leaf[order], column) for column in states]
        row_numbers = np.arange(len(order) * size).reshape(len(order), size)
        shuffled_rows = row_numbers[order].reshape(-1)
        feature_leaves = [[leaf[shuffled_rows] for leaf in column] for column in feature_leaves]
    if handle_nested_data:
        return feature_leaves, states, lengths
    return [column[0] for column in feature_leaves], states, lengths


def pad_batch_to_sequences_of_same_size(
    batch: SampleBatch,
    max_seq_len: int,
    shuffle: bool = False,
    batch_divisibility_req: int = 1,
    feature_keys: list[str] | None = None,
    view_requirements: Mapping[str, Any] | None = None,
    _enable_new_api_stack: bool = False,
    padding: str = "zero",
) -> None:
    """Cut a batch into sequences and pad them to one length, in place.

    A batch that is already padded does not change; a batch without states is only shuffled.

    Args:
        batch: A `SampleBatch`.
        max_seq_len: Maximum length of a sequence.
        shuffle: Whether to shuffle.
        batch_divisibility_req: A batch without states is padded to a multiple of this number of
            rows.
        feature_keys: Columns to pad. Default: all except states.
        view_requirements: The model's views. Sequences are padded to the length of the longest one
            if a state is viewed at a single step, otherwise to `max_seq_len`.
        padding: See `chop_into_sequences`.
    """
    if batch.zero_padded:
        return
    batch.zero_padded = True
    has_state = "state_in_0" in batch or "state_out_0" in batch
    if not has_state and not _must_be_divided(batch, batch_divisibility_req):
        if shuffle:
            batch.shuffle()
        return
    if not has_state:
        batch.max_seq_len = batch_divisibility_req
        max_seq_len = batch_divisibility_req
    state_view = (view_requirements or {}).get("state_in_0")
    has_single_step_view = state_view is not None and len(np.ravel(state_view.shift_arr)) == 1
    pads_to_longest = has_state and has_single_step_view
    state_names = [name for name in batch if name.startswith("state_in")]
    if not feature_keys:
        feature_keys = [
            name for name in batch if not name.startswith("state_") and name != "seq_lens"
        ]
    seq_lens = batch.get("seq_lens")
    has_one_state_per_sequence = False
    if state_names and seq_lens is not None:
        has_one_state_per_sequence = len(batch[state_names[0]]) == len(seq_lens)

    features, states, lengths = chop_into_sequences(
        feature_columns=[batch[key] for key in feature_keys],
        state_columns=[batch[name] for name in state_names],
        max_seq_len=max_seq_len,
        episode_ids=batch.get("eps_id"),
        unroll_ids=batch.get("unroll_id"),
        agent_indices=batch.get("agent_index"),
        dynamic_max=pads_to_longest,
        shuffle=shuffle,
        seq_lens=seq_lens,
        states_already_reduced_to_init=has_one_state_per_sequence,
        handle_nested_data=True,
        padding=padding,
    )
    for key, new_leaves in zip(feature_keys, features, strict=True):
        batch[key] = _replace_leaves(_without_lists(batch[key]), new_leaves)
    for name, column in zip(state_names, states, strict=True):
        batch[name] = column
    batch["seq_lens"] = lengths
    if pads_to_longest:
        batch.max_seq_len = int(lengths.max())


def _must_be_divided(batch: SampleBatch, divisor: int) -> bool:
    """Return whether a batch without states must be padded to a multiple of `divisor` rows."""
    if divisor <= 1:
        return False
    has_rest = len(batch["obs"]) % divisor != 0
    # The agent's index is larger than 0 only if several agents' rows are in the batch.
    return has_rest or bool(np.max(batch.get("agent_index", 0)) > 0)


def _replace_leaves(column: Any, new_leaves: list[Array]) -> Any:
    """Return a structure of the column's form with these leaves."""
    remaining = iter(new_leaves)
    return map_leaves(lambda _: next(remaining), column)


def _without_lists(column: Any) -> Any:
    """Return an RLlib column in which a list is one array, not a structure."""
    if isinstance(column, list):
        return np.asarray(column)
    return column


def _lengths(num_rows: int, longest: int, *id_columns: Numbers | None) -> list[int]:
    """Return the lengths of the sequences, which end where an id changes or after
    `longest` rows.
    """
    edges = {0, num_rows}
    for column in id_columns:
        if column is not None:
            ids = np.asarray(column)
            changes = np.flatnonzero(ids[1:] != ids[:-1]) + 1
            edges.update(changes.tolist())
    lengths = []
    for episode_start, episode_end in pairwise(sorted(edges)):
        for start in range(episode_start, episode_end, longest):
            lengths.append(min(longest, episode_end - start))
    return lengths
