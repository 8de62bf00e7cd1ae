"""Cut trajectories into padded sequences, under RLlib's names."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from rlcatalog.errors import ConfigError
from rlcatalog_compat.spaces import leaves, map_leaves

Array = np.ndarray[Any, Any]


def padded(leaf: Any, lengths: Any, size: int, last: bool = False) -> Any:
    """Return concatenated sequences, each padded to `size` rows.

    Args:
        leaf: Array `[sum(lengths), ...]`.
        lengths: Lengths of the sequences.
        size: Number of rows in each padded sequence.
        last: Whether to pad with the last row instead of zeros (None for objects and strings).
    """
    leaf = np.asarray(leaf)
    plain = leaf.dtype.kind not in "OSU"
    whole = np.zeros((len(lengths), size, *leaf.shape[1:]), leaf.dtype if plain else object)
    if not plain:
        whole.fill(None)
    place = 0
    for row, length in zip(whole, map(int, lengths), strict=True):
        row[:length] = leaf[place : place + length]
        place += length
        if last and length:
            row[length:] = leaf[place - 1]
    return whole.reshape(-1, *leaf.shape[1:])


def chop_into_sequences(
    *,
    feature_columns: list[Any],
    state_columns: list[Any],
    max_seq_len: int,
    episode_ids: Any = None,
    unroll_ids: Any = None,
    agent_indices: Any = None,
    dynamic_max: bool = True,
    shuffle: bool = False,
    seq_lens: Any = None,
    states_already_reduced_to_init: bool = False,
    handle_nested_data: bool = False,
    _extra_padding: int = 0,
    padding: str = "zero",
    **kwargs: Any,
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
    features = [_arrays(column) for column in feature_columns]
    if seq_lens is None or len(seq_lens) == 0:
        count = len(next(leaves(features + state_columns), ()))
        seq_lens = _lengths(count, max_seq_len, episode_ids, unroll_ids, agent_indices)
    lengths = np.asarray(seq_lens, np.int32)
    size = int(lengths.max(initial=0)) + _extra_padding if dynamic_max else max_seq_len
    chopped = [
        [padded(leaf, lengths, size, padding == "last") for leaf in leaves(column)]
        for column in features
    ]
    states = list(state_columns)
    if not states_already_reduced_to_init:
        starts = np.cumsum(lengths) - lengths
        states = [
            map_leaves(lambda leaf: np.asarray(leaf)[starts], _arrays(column))
            for column in state_columns
        ]
    if shuffle:
        order = np.random.permutation(len(lengths))
        lengths, states = (
            lengths[order],
            [map_leaves(lambda leaf: leaf[order], column) for column in states],
        )
        rows = np.arange(len(order) * size).reshape(len(order), size)[order].reshape(-1)
        chopped = [[leaf[rows] for leaf in column] for column in chopped]
    return chopped if handle_nested_data else [column[0] for column in chopped], states, lengths


def pad_batch_to_sequences_of_same_size(
    batch: Any,
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
    stateful = "state_in_0" in batch or "state_out_0" in batch
    several = batch_divisibility_req > 1 and (
        len(batch["obs"]) % batch_divisibility_req != 0 or np.max(batch.get("agent_index", 0)) > 0
    )
    if not (stateful or several):
        if shuffle:
            batch.shuffle()
        return
    if not stateful:
        max_seq_len = batch.max_seq_len = batch_divisibility_req
    view = (view_requirements or {}).get("state_in_0")
    dynamic = stateful and view is not None and len(np.ravel(view.shift_arr)) == 1
    names = [name for name in batch if name.startswith("state_in")]
    keys = feature_keys or [
        name for name in batch if not name.startswith("state_") and name != "seq_lens"
    ]
    known = batch.get("seq_lens")
    features, states, lengths = chop_into_sequences(
        feature_columns=[batch[key] for key in keys],
        state_columns=[batch[name] for name in names],
        max_seq_len=max_seq_len,
        episode_ids=batch.get("eps_id"),
        unroll_ids=batch.get("unroll_id"),
        agent_indices=batch.get("agent_index"),
        dynamic_max=dynamic,
        shuffle=shuffle,
        seq_lens=known,
        states_already_reduced_to_init=bool(names)
        and known is not None
        and len(batch[names[0]]) == len(known),
        handle_nested_data=True,
        padding=padding,
    )
    for key, column in zip(keys, features, strict=True):
        values = iter(column)
        batch[key] = map_leaves(lambda _, values=values: next(values), _arrays(batch[key]))
    for name, column in zip(names, states, strict=True):
        batch[name] = column
    batch["seq_lens"] = lengths
    if dynamic:
        batch.max_seq_len = int(lengths.max())


def _arrays(column: Any) -> Any:
    """Return an RLlib column: a list is one array, not a structure."""
    return np.asarray(column) if isinstance(column, list) else column


def _lengths(rows: int, longest: int, *ids: Any) -> list[int]:
    """Return the lengths of the sequences, which end where an id changes or after
    `longest` rows.
    """
    known = [np.asarray(column) for column in ids if column is not None]
    changes = [np.flatnonzero(column[1:] != column[:-1]) + 1 for column in known]
    edges = sorted({0, rows, *np.concatenate([[], *changes]).astype(int).tolist()})
    return [
        min(longest, end - place)
        for start, end in pairwise(edges)
        for place in range(start, end, longest)
    ]
