"""Checks of what models do with their inputs: they look at all of an observation, and write into none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from rlcatalog_testing.contract import Part, check, require
from rlcatalog_testing.examples import Example, observations_of
from rlcatalog_testing.passes import Array, batch_of, encoded_of, run

if TYPE_CHECKING:
    from rlcatalog_policy import Policy

MODELS = ("trunk", "memory", "head")
ROWS = 6
#: Quantities of a part of an observation that are tried one by one; of a larger part, all at once.
MOST_VALUES = 16


@check(*MODELS, hint="compute new tensors: observations, states and batches belong to the caller")
def leaves_its_inputs_alone(part: Part) -> None:
    """Acting and scoring leave observations, states and batches as they are."""
    for example in part.few:
        policy = part.policy(example)
        observations = observations_of(example, ROWS)
        encoded, mask = policy.preprocess(observations), policy.action_mask(observations)
        state = policy.act_encoded(encoded, mask=mask).state
        kept = _arrays(state)
        before = [array.copy() for array in (encoded, *kept)]
        policy.act_encoded(encoded, state, mask=mask)
        _check_unchanged("acting", example, before, [encoded, *kept])
        batch = batch_of(policy, example)
        arrays = _arrays(batch)
        before = [array.copy() for array in arrays]
        policy.evaluate(batch)
        _check_unchanged("evaluate()", example, before, arrays)


def _arrays(value: object) -> list[Array]:
    """Return the arrays in a structure."""
    if isinstance(value, np.ndarray):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [array for one in inner for array in _arrays(one)]


def _check_unchanged(what: str, example: Example, before: list[Array], after: list[Array]) -> None:
    same = all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))
    require(same, f"{example}: {what} writes into what it is given")


@check(*MODELS, hint="read every part of the observation: obs_flat has them all, input_dict['obs'] each by its key")
def every_part_of_an_observation_matters(part: Part) -> None:
    """Another value in any part of an observation changes the outputs, or the value, of some row."""
    for example in part.examples:
        policy = part.policy(example)
        encoded = encoded_of(policy, example, ROWS)
        if encoded[0].size != policy.preprocessor.size:
            continue  # a filter has made something else of it
        changed = dict(_changes(policy, encoded))
        found = run(policy, np.concatenate([encoded, *changed.values()]))
        answers = found.outputs if found.value is None else np.column_stack([found.outputs, found.value])
        before, *after = np.split(answers.astype(np.float64), 1 + len(changed))
        slack = 1e-6 * (1 + np.abs(before))
        idle = [path for path, other in zip(changed, after, strict=True) if (np.abs(other - before) <= slack).all()]
        require(not idle, f"{example}: outputs and value do not depend on {', '.join(idle[:5])}")


def _changes(policy: Policy, encoded: Array) -> Iterator[tuple[str, Array]]:
    """Yield encoded observations in which one part of each is that of another one; parts that are all alike are not."""
    rows = encoded.reshape(len(encoded), -1)
    for leaf in policy.preprocessor.leaves():
        places = {leaf.path: slice(leaf.start, leaf.stop)}
        if leaf.numeric and 1 < leaf.stop - leaf.start <= MOST_VALUES:
            places = {f"value {i - leaf.start} of {leaf.path}": slice(i, i + 1) for i in range(leaf.start, leaf.stop)}
        for path, columns in places.items():
            other = rows.copy()
            other[:, columns] = np.roll(rows[:, columns], 1, axis=0)
            if not np.array_equal(other, rows):
                yield path, other.reshape(encoded.shape)
