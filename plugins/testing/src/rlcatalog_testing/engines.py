"""Checks for engines: their results agree, and their updates change every weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from rlcatalog.errors import CatalogError
from rlcatalog.frameworks import Array, TensorTree
from rlcatalog.models import set_weights_of, weights_of
from rlcatalog.spaces import parts_of
from rlcatalog_policy import Policy
from rlcatalog_testing.contract import NotApplicable, Subject, require
from rlcatalog_testing.examples import Example, observations_of
from rlcatalog_testing.passes import array_of
from rlcatalog_testing.trials import chance_trials, contains


class PolicyOutputs(NamedTuple):
    """An engine's results for a batch of observations, as NumPy arrays.

    Attributes:
        action: The deterministic actions, in the environment's format.
        logp: Log densities `[B]` of the given raw actions.
        entropy: Entropy `[B]`.
        value: Value estimates `[B]`.
    """

    action: Any
    logp: Array
    entropy: Array
    value: Array


#: `outputs(observations, raw_actions)` returns an engine's outputs, computed by its own code, for
#: the environment's observations.
OutputFunction = Callable[[Any, Array], PolicyOutputs]


def outputs_of(policy: Policy) -> OutputFunction:
    """Wrap a policy without memory as an engine."""

    def run(observations: Any, raw_actions: Array) -> PolicyOutputs:
        batch: dict[str, Any] = {
            "obs": policy.preprocess(observations),
            "raw_action": raw_actions,
        }
        mask = policy.action_mask(observations)
        if mask is not None:
            batch["mask"] = mask
        evaluation = policy.evaluate(batch)
        assert evaluation.entropy is not None
        assert evaluation.value is not None
        return PolicyOutputs(
            action=policy.act(observations, explore=False).action,
            logp=array_of(evaluation.logp),
            entropy=array_of(evaluation.entropy),
            value=array_of(evaluation.value),
        )

    return run


def check_same_outputs(
    reference: Policy,
    engines: Mapping[str, tuple[Policy, OutputFunction]],
    observations: Any,
    *,
    tolerance: float = 1e-5,
) -> None:
    """Check that engines with equal weights give equal results for equal observations.

    Args:
        reference: A policy, whose weights are copied into the engines' policies and whose actions
            are scored.
        engines: For each engine's name, the policy that the engine acts with, and the engine.
        observations: A vector environment's batch of observations.
        tolerance: Absolute and relative tolerance.

    Raises:
        AssertionError: An engine's results differ. The message names the engine and the difference.
    """
    raw_actions = reference.act(observations).raw_action
    expected = outputs_of(reference)(observations, raw_actions)
    for name, (policy, run) in engines.items():
        set_weights_of(policy.model, weights_of(reference.model))
        outputs = run(observations, raw_actions)
        for what in PolicyOutputs._fields:
            message = f"{name}: its {what} differs from the reference's"
            # Actions of a Dict or Tuple space are structures of arrays.
            arrays = _arrays_of(getattr(outputs, what))
            expected_arrays = _arrays_of(getattr(expected, what))
            for array, expected_array in zip(arrays, expected_arrays, strict=True):
                np.testing.assert_allclose(
                    array, expected_array, rtol=tolerance, atol=tolerance, err_msg=message
                )


def _arrays_of(output: TensorTree) -> list[Array]:
    """Return the arrays in an output as float64."""
    return [np.asarray(array, np.float64) for array in parts_of(output) or [output]]


#: Number of steps in an episode.
STEPS = 6
#: Number of observations that an environment has; it repeats them.
OBSERVATIONS = 16


class ExampleEnv(gymnasium.Env[Any, Any]):
    """Environment with short episodes, whose observations come from an example, and whose rewards
    are random.

    Args:
        example: The spaces.

    Raises:
        AssertionError: An action passed to `step` is not in the action space.
    """

    def __init__(self, example: Example) -> None:
        self.observation_space = example.obs
        self.action_space = example.action
        self._observations = observations_of(example, OBSERVATIONS)
        self._index = 0
        self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the sequence of observations continues."""
        super().reset(seed=seed)
        self._step = 0
        return self._next_observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        require(contains(self.action_space, action), f"{action!r} is not in {self.action_space}")
        self._step += 1
        obs = self._next_observation()
        reward = float(self.np_random.normal())
        terminated = self._step == STEPS
        truncated = False
        return obs, reward, terminated, truncated, {}

    def _next_observation(self) -> Any:
        self._index = (self._index + 1) % OBSERVATIONS
        return self._observations[self._index]


def trained_weights(model: Any) -> dict[str, Array]:
    """Return copies of a model's trainable weights, keyed by name."""
    weights = weights_of(model)
    return {name: np.array(weights[name]) for name in model.trainable_variables(as_dict=True)}


def every_weight_moved(before: Mapping[str, Array], after: Mapping[str, Array]) -> None:
    """Raise an error unless an update has changed every array of weights and all of them are
    finite.

    Args:
        before: The result of `trained_weights` before the update.
        after: The result of `trained_weights` after the update.

    Raises:
        AssertionError: Some weights have not changed, or are not finite; the message names them.
    """
    require(bool(before), "the model has no weights to train")
    not_finite = [name for name in before if not np.isfinite(after[name]).all()]
    require(
        not not_finite, f"after an update, these weights are not finite: {', '.join(not_finite)}"
    )
    unchanged = []
    for name, weights in before.items():
        is_empty = weights.size == 0
        if not is_empty and np.array_equal(weights, after[name]):
            unchanged.append(name)
    require(not unchanged, f"an update does not change these weights: {', '.join(unchanged)}")


@contextmanager
def refusing(*refusals: type[CatalogError]) -> Iterator[None]:
    """Skip the check if an engine raises a typed error, because this is not the part's fault."""
    try:
        yield
    except refusals as error:
        raise NotApplicable(str(error)) from error


def update_example(subject: Subject) -> Example:
    """Return the example with which an engine trains a part.

    Raises:
        NotApplicable: The part is a deterministic distribution, so no log density changes the
            weights for actions.
    """
    if subject.part.kind == "action_dist":
        return chance_trials(subject)[0].example
    return subject.examples[0]
