"""What the conformance kit needs of the framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlcatalog.actions import params_given
from rlcatalog.frameworks import Array, PolicyParts
from toy_framework.arrays import BITS, slope
from toy_framework.learner import Learner


class Kit:
    """Passes, samples and gradients for the checks; see `rlcatalog_testing.Kit`."""

    traces = False

    @staticmethod
    def seed(number: int) -> None:
        """Seed initial weights and sampling."""
        Learner.seed(number)

    @staticmethod
    def run(
        policy: PolicyParts,
        inputs: dict[str, Any],
        memory: Sequence[Array],
        lengths: Array | None,
        single: bool,
    ) -> tuple[Array, Array | None, list[Array]]:
        """Run a model, and return its outputs, values and new state."""
        flags = {"is_training": False, "single_steps": single}
        outputs, state = policy.model({**inputs, **flags}, list(memory), lengths)
        values = policy.model.value_function() if policy.has_value else None
        return outputs, values, list(state)

    @staticmethod
    def draw(
        policy: PolicyParts, outputs: Array, mask: Array | None, explore: bool
    ) -> tuple[Array, Array]:
        """Draw raw actions `[B, width]`, and return them with the parameters that score them."""
        if mask is not None:
            outputs = policy.dist_class.masked(outputs, mask)
        dist = policy.dist_class(outputs, policy.model)
        sample = dist.sample() if explore else dist.deterministic_sample()
        raw = sample.reshape(len(outputs), policy.action_codec.width)
        return raw, params_given(dist, sample)

    @staticmethod
    def gradients(
        policy: PolicyParts, batch: dict[str, Any], rng: np.random.Generator
    ) -> tuple[dict[str, Array | None], list[tuple[int, ...]]]:
        """Return the gradients of a random loss by the weights' names, and the shapes of trained
        weights outside the model, of which there are none.
        """
        factors = rng.normal(size=(2, len(batch["obs"])))

        def loss() -> float:
            evaluation: Any = policy.evaluate(batch)
            total: float = (factors[0] * evaluation.logp).sum()
            if evaluation.value is not None:
                total += (factors[1] * evaluation.value).sum()
            return total

        return policy.model.gradients(loss), []

    @staticmethod
    def gradient(function: Callable[[Any], Any], inputs: Array) -> Array | None:
        """Return the gradient of the sum of a function's result; None if it has none."""
        x = np.array(inputs, np.float64)

        def total() -> float:
            return float(np.sum(function(x)))

        position = _position_of_generator()
        result = np.asarray(function(inputs))
        if result.dtype.kind != "f" or _position_of_generator() != position:
            return None  # integers, and samples, which have no gradient
        return slope(total, x).astype(inputs.dtype)


def _position_of_generator() -> tuple[bytes, int]:
    """Return what differs after a number is drawn."""
    state: Any = BITS.state["state"]
    return state["key"].tobytes(), state["pos"]
