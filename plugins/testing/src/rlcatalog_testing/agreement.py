"""Agreement of engines on what a policy says, for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rlcatalog.models import set_weights_of, weights_of
from rlcatalog.spaces import parts_of
from rlcatalog_policy import Policy
from rlcatalog_testing.passes import Array, array_of


class PolicyOutputs(NamedTuple):
    """What an engine says of a batch of observations, NumPy.

    Attributes:
        action: The most likely actions, as the environment takes them.
        logp: Log density `[B]` of given raw actions.
        entropy: Entropy `[B]`.
        value: Value estimates `[B]`.
    """

    action: Any
    logp: Array
    entropy: Array
    value: Array


#: `outputs(observations, raw_actions)`: what an engine says, by its own code, of the environment's observations.
OutputFunction = Callable[[Any, Array], PolicyOutputs]


def outputs_of(policy: Policy) -> OutputFunction:
    """Return a policy without memory as an engine."""

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
    """Check that engines say the same of the same observations, once they have the same weights.

    Args:
        reference: A policy; its weights are copied into the engines' policies, and its actions are scored.
        engines: Name → the policy that the engine acts with, and the engine.
        observations: A vector environment's batch of observations.
        tolerance: How far numbers may be apart, absolutely and relatively.

    Raises:
        AssertionError: An engine says something else; the message names it and what differs.
    """
    raw_actions = reference.act(observations).raw_action
    expected = outputs_of(reference)(observations, raw_actions)
    for name, (policy, run) in engines.items():
        set_weights_of(policy.model, weights_of(reference.model))
        for what, mine, theirs in zip(PolicyOutputs._fields, expected, run(observations, raw_actions), strict=True):
            for here, there in zip(parts_of(mine) or [mine], parts_of(theirs) or [theirs], strict=True):
                np.testing.assert_allclose(
                    np.asarray(there, np.float64), np.asarray(here, np.float64), rtol=tolerance, atol=tolerance,
                    err_msg=f"{name}: its {what} differs from the reference's",
                )  # fmt: skip
