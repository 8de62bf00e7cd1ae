"""Checks of models' inputs: models read the whole observation and do not write to it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlcatalog_testing.contract import require
from rlcatalog_testing.passes import Array, ModelTrial, check_models, every

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
    for what, given, use in (
        (
            "acting",
            [encoded, *_arrays(state)],
            lambda: policy.act_encoded(encoded, state, mask=mask),
        ),
        ("evaluate()", _arrays(batch), lambda: policy.evaluate(batch)),
    ):
        before = [array.copy() for array in given]
        use()
        same = all(map(np.array_equal, before, given))
        require(same, f"{trial}: {what} writes into its inputs")


def _arrays(value: object) -> list[Array]:
    """Return the arrays in a structure."""
    if isinstance(value, np.ndarray):
        return [value]
    inner = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list | tuple)
        else ()
    )
    return [array for one in inner for array in _arrays(one)]


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
        return  # a filter has changed it
    changed = dict(_changes(trial, encoded))
    found = trial.run(np.concatenate([encoded, *changed.values()]))
    answers = (
        found.outputs if found.value is None else np.column_stack([found.outputs, found.value])
    )
    before, *after = np.split(answers.astype(np.float64), 1 + len(changed))
    slack = 1e-6 * (1 + np.abs(before))
    idle = [
        path
        for path, other in zip(changed, after, strict=True)
        if (np.abs(other - before) <= slack).all()
    ]
    require(not idle, f"{trial}: outputs and value do not depend on {', '.join(idle[:5])}")


def _changes(trial: ModelTrial, encoded: Array) -> Iterator[tuple[str, Array]]:
    """Yield encoded observations with one part taken from a different observation; skip parts
    without differences.
    """
    rows = encoded.reshape(len(encoded), -1)
    for leaf in trial.policy.preprocessor.leaves():
        places = {leaf.path: slice(leaf.start, leaf.stop)}
        if leaf.numeric and 1 < leaf.stop - leaf.start <= MOST_VALUES:
            places = {
                f"value {i - leaf.start} of {leaf.path}": slice(i, i + 1)
                for i in range(leaf.start, leaf.stop)
            }
        for path, columns in places.items():
            other = rows.copy()
            other[:, columns] = np.roll(rows[:, columns], 1, axis=0)
            if not np.array_equal(other, rows):
                yield path, other.reshape(encoded.shape)
