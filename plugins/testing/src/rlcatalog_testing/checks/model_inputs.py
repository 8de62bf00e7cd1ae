"""Checks of models' inputs: models read the whole observation and do not write to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from rlcatalog.frameworks import Array
from rlcatalog.observations import Leaf
from rlcatalog_testing.contract import require
from rlcatalog_testing.passes import ModelTrial, check_models, every

ROWS = 6
#: Maximum number of quantities in a part of an observation that are changed one by one; in a larger
#: part, all are changed at once.
MOST_VALUES = 16


@check_models(hint="compute new tensors: observations, states and batches belong to the caller")
def leaves_its_inputs_alone(trial: ModelTrial) -> None:
    """Acting and scoring do not modify observations, states or batches."""
    policy = trial.policy
    encoded, mask = trial.encoded_and_mask(ROWS)
    state = policy.act_encoded(encoded, mask=mask).state
    batch = trial.batch()
    with _unchanged([encoded, *_arrays_in(state)], f"{trial}: acting writes into its inputs"):
        policy.act_encoded(encoded, state, mask=mask)
    with _unchanged(_arrays_in(batch), f"{trial}: evaluate() writes into its inputs"):
        policy.evaluate(batch)


@contextmanager
def _unchanged(arrays: list[Array], what: str) -> Iterator[None]:
    """Raise an error with this text if the block changes one of the arrays."""
    arrays_before = [array.copy() for array in arrays]
    yield
    require(all(map(np.array_equal, arrays_before, arrays)), what)


def _arrays_in(value: object) -> list[Array]:
    """Return the arrays in a structure."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    arrays: list[Array] = []
    if isinstance(value, list | tuple):
        for inner_value in value:
            arrays += _arrays_in(inner_value)
    return arrays


@check_models(
    each=every,
    hint="read every part of the observation: obs_flat has them all, input_dict['obs'] each under"
    " its key",
)
def every_part_of_an_observation_matters(trial: ModelTrial) -> None:
    """A different value in any part of an observation changes the outputs or the
    value in some row.
    """
    encoded = trial.encoded(ROWS)
    if encoded[0].size != trial.policy.preprocessor.size:
        return  # a filter has changed its size, so the preprocessor's leaves are at other columns
    variants = dict(_changes(trial, encoded))
    # All of them in one pass, which is faster than many.
    step = trial.run(np.concatenate([encoded, *variants.values()]))
    results = step.outputs
    if step.value is not None:
        results = np.column_stack([step.outputs, step.value])
    original, *changed = np.split(results.astype(np.float64), 1 + len(variants))
    slack = 1e-6 * (1 + np.abs(original))
    idle = []
    for path, other in zip(variants, changed, strict=True):
        if (np.abs(other - original) <= slack).all():
            idle.append(path)
    require(not idle, f"{trial}: outputs and value do not depend on {', '.join(idle[:5])}")


def _changes(trial: ModelTrial, encoded: Array) -> Iterator[tuple[str, Array]]:
    """Yield encoded observations with one part taken from a different observation; skip parts
    without differences.
    """
    rows = encoded.reshape(len(encoded), -1)
    for leaf in trial.policy.preprocessor.leaves():
        for name, columns in _pieces_of(leaf):
            changed = rows.copy()
            # Each row gets the piece of the row before it.
            changed[:, columns] = np.roll(rows[:, columns], 1, axis=0)
            if not np.array_equal(changed, rows):
                yield name, changed.reshape(encoded.shape)


def _pieces_of(leaf: Leaf) -> Iterator[tuple[str, slice]]:
    """Yield the names and columns of what is changed at once: each value of a few quantities,
    otherwise the whole leaf.
    """
    width = leaf.stop - leaf.start
    if leaf.numeric and 1 < width <= MOST_VALUES:
        for index in range(width):
            column = leaf.start + index
            yield f"value {index} of {leaf.path}", slice(column, column + 1)
    else:
        yield leaf.path, slice(leaf.start, leaf.stop)
