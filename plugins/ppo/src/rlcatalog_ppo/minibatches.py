"""Minibatches of a rollout: shuffled rows, or shuffled sequences for a model with memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from rlcatalog.frameworks import Array, TensorTree
from rlcatalog.spaces import map_tensors


def array_rows(columns: TensorTree, index: Array) -> Any:
    """Select rows by index from a structure of arrays."""
    return map_tensors(columns, lambda column: column[index])


def minibatches(
    batch: Mapping[str, Any],
    size: int,
    rng: np.random.Generator,
    select_rows: Callable[[Any, Array], Any] = array_rows,
) -> Iterator[dict[str, Any]]:
    """Yield a batch in shuffled minibatches of about `size` rows, without splitting sequences.

    Minibatches with a single row are skipped, because their advantage cannot be normalised.

    Args:
        batch: The batch.
        size: Rows per minibatch.
        rng: Generator for shuffling.
        select_rows: Function that returns the rows at given indices from a structure of columns.
    """
    columns = {name: part for name, part in batch.items() if name not in ("seq_lens", "state")}
    if "seq_lens" in batch:
        yield from _minibatches_of_sequences(
            columns,
            seq_lens=batch["seq_lens"],
            first_memories=tuple(batch["state"]),
            size=size,
            rng=rng,
            select_rows=select_rows,
        )
        return
    for rows in _shuffled_rows(len(batch["logp"]), size, rng):
        if len(rows) > 1:
            yield select_rows(columns, rows)


def _minibatches_of_sequences(
    columns: Mapping[str, Any],
    *,
    seq_lens: Array,
    first_memories: tuple[Any, ...],
    size: int,
    rng: np.random.Generator,
    select_rows: Callable[[Any, Array], Any],
) -> Iterator[dict[str, Any]]:
    """Yield minibatches of whole sequences.

    Args:
        columns: The batch's rows, one sequence after another.
        seq_lens: Number of rows of each sequence.
        first_memories: The memory at the start of each sequence, `[S, ...]`.
        size: Rows per minibatch, about.
        rng: Generator for shuffling.
        select_rows: Function that returns the rows at given indices from a structure of columns.
    """
    first_rows = np.cumsum(seq_lens) - seq_lens
    for sequences in _shuffled_sequences(seq_lens, size, rng):
        rows_by_sequence = [
            np.arange(first_rows[sequence], first_rows[sequence] + seq_lens[sequence])
            for sequence in sequences
        ]
        rows = np.concatenate(rows_by_sequence)
        if len(rows) > 1:
            minibatch = select_rows(columns, rows)
            minibatch["seq_lens"] = seq_lens[sequences]
            minibatch["state"] = list(select_rows(first_memories, sequences))
            yield minibatch


def _shuffled_rows(num_rows: int, size: int, rng: np.random.Generator) -> Iterator[Array]:
    """Yield the indices of all rows in random order, `size` at a time."""
    order = rng.permutation(num_rows)
    for start in range(0, num_rows, size):
        yield order[start : start + size]


def _shuffled_sequences(seq_lens: Array, size: int, rng: np.random.Generator) -> Iterator[Array]:
    """Yield the indices of all sequences in random order, those of about `size` rows at a time."""
    order = rng.permutation(len(seq_lens))
    # Cut the rows, in this order, into minibatches of `size` rows. A sequence that would be cut
    # goes as a whole into the minibatch of its last row.
    last_row = np.cumsum(seq_lens[order]) - 1
    minibatch_of_sequence = last_row // size
    for minibatch in range(int(minibatch_of_sequence[-1]) + 1):
        sequences = order[minibatch_of_sequence == minibatch]
        if len(sequences):  # a sequence longer than `size` may leave a minibatch empty
            yield sequences
