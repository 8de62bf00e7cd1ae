"""The categorical distribution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from gymnasium import Space

from rlcatalog import ActionDistribution, ModelV2, SpaceInfo
from rlcatalog.actions import check_same_kind
from rlcatalog.frameworks import Array
from toy_framework.arrays import GENERATOR


class Categorical(ActionDistribution):
    """Distribution over `{0, …, n-1}` from logits `[B, n]`."""

    framework_of_class = "toy"

    def __init__(
        self, inputs: Array, model: ModelV2 | None = None, temperature: float = 1.0
    ) -> None:
        # Engines store the model's outputs, and rebuild the distribution with its temperature.
        super().__init__(inputs, model)
        lowest = np.finfo(inputs.dtype).min  # the logit of what a mask forbids
        logits = inputs
        if temperature != 1.0:
            logits = np.where(inputs > lowest, inputs / temperature, lowest)
        shifted = logits - logits.max(axis=1, keepdims=True, initial=lowest)
        log_probs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        self.log_probs = np.maximum(log_probs, lowest)

    @staticmethod
    def required_model_output_shape(
        action_space: Space[Any], model_config: Mapping[str, Any] | None = None
    ) -> int:
        """Return the number of logits."""
        return int(action_space.n)  # type: ignore[attr-defined]

    @classmethod
    def options_for(cls, action: SpaceInfo, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config's temperature, which rlcatalog-categorical declares."""
        return {"temperature": config["categorical_temperature"]}

    def sample(self) -> Array:
        """Draw values `[B]`."""
        noise = GENERATOR.gumbel(size=self.log_probs.shape)
        self.last_sample = (self.log_probs + noise).argmax(axis=1)
        return self.last_sample

    def deterministic_sample(self) -> Array:
        """Return the most likely values `[B]`."""
        self.last_sample = self.log_probs.argmax(axis=1)
        return self.last_sample

    def logp(self, actions: Array) -> Array:
        """Return the log probabilities `[B]` of values `[B]` or `[B, 1]`."""
        index = np.asarray(actions).reshape(-1, 1).astype(np.int64)
        return np.take_along_axis(self.log_probs, index, axis=1)[:, 0]

    def entropy(self) -> Array:
        """Return the entropies `[B]`."""
        entropies: Array = -(np.exp(self.log_probs) * self.log_probs).sum(axis=1)
        return entropies

    def kl(self, other: Self) -> Array:  # type: ignore[override]  # of the same kind
        """Return the divergences `[B]` of `other` from this distribution."""
        check_same_kind(self, other)
        divergences: Array = (np.exp(self.log_probs) * (self.log_probs - other.log_probs)).sum(1)
        return divergences
