"""Sequences in a training batch: lengths, initial memory, and each row's views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from rlcatalog.errors import ModelContractError
from rlcatalog.frameworks.ops import Array, Tensor
from rlcatalog.frameworks.protocols import PolicyParts


def lengths_of(batch: Mapping[str, Any], rows: int) -> Array:
    """Return a training batch's sequence lengths, int32 `[S]`; if it has none, each row is a
    sequence.

    Raises:
        ModelContractError: The lengths are a single integer, or do not fit the rows.
    """
    lengths = batch.get("seq_lens")
    if lengths is None:
        return np.ones(rows, np.int32)
    if isinstance(lengths, int):
        raise ModelContractError(
            f"batch['seq_lens']: found the integer {lengths}, which needs the column 'restarts'."
            " Without it, pass a list with the length of each sequence."
        )
    return np.asarray(lengths_list(lengths, rows), np.int32)


def lengths_list(lengths: Tensor | Sequence[int], rows: int) -> list[int]:
    """Return the lengths of sequences as integers.

    Args:
        lengths: The lengths `[S]`: integers, an array or a tensor.
        rows: Their sum.

    Raises:
        ModelContractError: A length is less than 1, or they do not add up to the rows.
    """
    # A caller may pass an array, a tensor of any framework, or a list; only some have tolist.
    if hasattr(lengths, "tolist"):
        numbers: list[int] = lengths.tolist()
    else:
        numbers = [int(length) for length in cast("Sequence[int]", lengths)]
    if sum(numbers) != rows or min(numbers, default=1) < 1:
        raise ModelContractError(
            f"seq_lens: expected lengths of at least 1 that add up to {rows} rows, found"
            f" {numbers[:20]}."
        )
    return numbers


def memory_of(policy: PolicyParts, batch: Mapping[str, Any], sequences: int) -> Sequence[Any]:
    """Return the initial memory of a batch's sequences, as arrays or tensors `[S, ...]`.

    Raises:
        ModelContractError: The number of arrays or of rows is wrong.
    """
    state = batch.get("state")
    if state is None:
        return list(policy.memory.start(sequences))
    # Either a `State` that acting returned, or only the arrays of its memory.
    memory = list(getattr(state, "memory", state))
    expected_count = len(policy.memory.initial)
    known_rows = {part.shape[0] for part in memory} - {None}  # None: unknown in a trace
    has_wrong_rows = bool(known_rows - {sequences})
    if len(memory) != expected_count or has_wrong_rows:
        raise ModelContractError(
            f"batch['state']: expected {expected_count} parts with a row for each of {sequences}"
            f" sequences, found shapes {[tuple(part.shape) for part in memory]}."
        )
    return memory


def views_of(policy: PolicyParts, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the views that a model sees in training, row by row.

    Raises:
        ModelContractError: A view is missing.
    """
    requested_names = policy.views.training_repeats  # name → `batch_repeat_value`
    if not requested_names:
        return {}
    views = batch.get("views") or {}
    missing = [name for name in requested_names if name not in views]
    if missing:
        raise ModelContractError(
            f"batch['views'] lacks {missing}, which {policy.model_name} requests; store the views"
            " that acting returned as step.state.views (and the result of Views.look_ahead for a"
            " rollout)."
        )
    return {name: views[name] for name in requested_names}


def padded_length(lengths: Sequence[int], rows: int) -> int:
    """Return the padded length of sequences that occupy `rows` rows.

    Args:
        lengths: Their lengths.
        rows: Number of rows, including padding.

    Raises:
        ModelContractError: The rows do not divide evenly, or a length is not between 1 and the
            padded length.
    """
    length, rows_left = divmod(rows, max(len(lengths), 1))  # all are padded to one length
    fits = max(lengths, default=0) <= length and min(lengths, default=1) >= 1
    if rows_left or not fits:
        raise ModelContractError(
            f"seq_lens: expected lengths from 1 to {length}, as {rows} rows hold {len(lengths)}"
            f" padded sequences, found {list(lengths[:20])}."
        )
    return length
