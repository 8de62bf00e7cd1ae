"""Checks for engines: their results agree, and their updates change every weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from rlcatalog.errors import CatalogError
from rlcatalog.models import set_weights_of, weights_of
from rlcatalog.spaces import parts_of
from rlcatalog_policy import Policy
from rlcatalog_testing.contract import NotApplicable, Subject, require
from rlcatalog_testing.examples import Example, observations_of
from rlcatalog_testing.passes import Array, array_of
from rlcatalog_testing.trials import chance_trials, contains


class PolicyOutputs(NamedTuple):
    """An engine's results for a batch of observations, as NumPy arrays.

    Attributes:
        action: The most likely actions, in the environment's format.
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
        mask = policy.action_mask(observations)
        batch = {"obs": policy.preprocess(observations), "raw_action": raw_actions}
        found = policy.evaluate(batch if mask is None else {**batch, "mask": mask})
        action = policy.act(observations, explore=False).action
        return PolicyOutputs(action, *map(array_of, (found.logp, found.entropy, found.value)))

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
        for what, mine, theirs in zip(
            PolicyOutputs._fields, expected, run(observations, raw_actions), strict=True
        ):
            message = f"{name}: its {what} differs from the reference's"
            for pair in zip(parts_of(theirs) or [theirs], parts_of(mine) or [mine], strict=True):
                there, here = (np.asarray(values, np.float64) for values in pair)
                np.testing.assert_allclose(there, here, tolerance, tolerance, err_msg=message)


#: Number of steps in an episode, and number of observations.
STEPS, OBSERVATIONS = 6, 16


class ExampleEnv(gymnasium.Env[Any, Any]):
    """Environment with short episodes, whose observations come from an example, and whose rewards
    are random.

    Args:
        example: The spaces.

    Raises:
        AssertionError: An action passed to `step` is not in the action space.
    """

    def __init__(self, example: Example) -> None:
        self.observation_space, self.action_space = example.obs, example.action
        self._observations = observations_of(example, OBSERVATIONS)
        self._place = self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the sequence of observations continues."""
        super().reset(seed=seed)
        self._step = 0
        return self._next(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        require(contains(self.action_space, action), f"{action!r} is not in {self.action_space}")
        self._step += 1
        return self._next(), float(self.np_random.normal()), self._step == STEPS, False, {}

    def _next(self) -> Any:
        self._place = (self._place + 1) % OBSERVATIONS
        return self._observations[self._place]


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
    wrong = [name for name in before if not np.isfinite(after[name]).all()]
    require(not wrong, f"after an update, these weights are not finite: {', '.join(wrong)}")
    still = [
        name for name in before if before[name].size and np.array_equal(before[name], after[name])
    ]
    require(not still, f"an update does not change these weights: {', '.join(still)}")


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
    return (
        chance_trials(subject)[0].example
        if subject.part.kind == "action_dist"
        else subject.examples[0]
    )
