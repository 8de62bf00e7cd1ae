"""What the conformance kit needs of the framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tape import Array, Numbers, gradients

from rlcatalog.actions import params_given
from rlcatalog.frameworks import PolicyParts
from rlcatalog_tape import random
from rlcatalog_tape.ops import OPS


class Kit:
    """Passes, samples and gradients for the checks; see `rlcatalog_testing.Kit`."""

    traces = False

    @staticmethod
    def seed(number: int) -> None:
        """Seed initial weights and sampling."""
        random.seed(number)

    @staticmethod
    def run(
        policy: PolicyParts,
        inputs: dict[str, Any],
        memory: Sequence[Numbers],
        lengths: Numbers | None,
        single: bool,
    ) -> tuple[Numbers, Numbers | None, list[Numbers]]:
        """Run a model, and return its outputs, values and new state, which is empty."""
        flags = {"is_training": False, "single_steps": single}
        outputs, state = policy.model({**inputs, **flags}, list(memory), lengths)
        values = OPS.array(policy.model.value_function()) if policy.has_value else None
        return OPS.array(outputs), values, list(state)

    @staticmethod
    def draw(
        policy: PolicyParts, outputs: Numbers, mask: Numbers | None, explore: bool
    ) -> tuple[Numbers, Numbers]:
        """Draw raw actions `[B, width]`, and return them with the parameters that score them."""
        logits = OPS.tensor(outputs)
        if mask is not None:
            logits = policy.dist_class.masked(logits, OPS.booleans(mask, logits))
        dist = policy.dist_class(logits, policy.model)
        sample = dist.sample() if explore else dist.deterministic_sample()
        raw = sample.reshape(len(outputs), policy.action_codec.width)
        return OPS.array(raw), OPS.array(params_given(dist, sample))

    @staticmethod
    def gradients(
        policy: PolicyParts, batch: dict[str, Any], rng: np.random.Generator
    ) -> tuple[dict[str, Numbers | None], list[tuple[int, ...]]]:
        """Return the gradients of a random loss by name, and no trained weights elsewhere."""
        evaluation: Any = policy.evaluate(batch)
        losses = []
        for result in (evaluation.logp, evaluation.value):
            if result is not None:
                losses.append((result * rng.normal(size=len(result))).sum())
        weights = policy.model.weights
        found = gradients(OPS.total(losses), list(weights.values()))
        return dict(zip(weights, found, strict=True)), []

    @staticmethod
    def gradient(function: Callable[[Any], Any], inputs: Numbers) -> Numbers | None:
        """Return the gradient of the sum of a function's result; None if it has none."""
        x = Array(inputs, learns=True)
        result = function(x)
        if not isinstance(result, Array) or not result.is_tracked:
            return None
        return gradients(result.sum(), [x])[0]
