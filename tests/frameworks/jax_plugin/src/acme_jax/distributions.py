"""The categorical distribution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
from gymnasium import Space

from acme_jax.random import KEYS
from rlcatalog import ActionDistribution, ModelV2, SpaceInfo
from rlcatalog.actions import check_same_kind


class Categorical(ActionDistribution):
    """Distribution over `{0, …, n-1}` from logits `[B, n]`."""

    framework_of_class = "jax"

    def __init__(self, inputs: Any, model: ModelV2 | None = None, temperature: float = 1.0) -> None:
        # Engines store the model's outputs, and rebuild the distribution with its temperature.
        super().__init__(jnp.asarray(inputs), model)
        logits = self.inputs
        lowest = jnp.finfo(logits.dtype).min  # the logit of what a mask forbids
        if temperature != 1.0:
            logits = jnp.where(logits > lowest, logits / temperature, lowest)
        self.log_probs = jnp.maximum(jax.nn.log_softmax(logits), lowest)

    @staticmethod
    def required_model_output_shape(
        action_space: Space[Any], model_config: Mapping[str, Any] | None = None
    ) -> int:
        """Return the number of logits."""
        return int(action_space.n)  # type: ignore[attr-defined]

    @classmethod
    def options_for(cls, action: SpaceInfo, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config's temperature."""
        return {"temperature": config["categorical_temperature"]}

    def sample(self) -> Any:
        """Draw values `[B]`."""
        self.last_sample = jax.random.categorical(KEYS.next(), self.log_probs)
        return self.last_sample

    def deterministic_sample(self) -> Any:
        """Return the most likely values `[B]`."""
        self.last_sample = self.inputs.argmax(-1)
        return self.last_sample

    def logp(self, actions: Any) -> Any:
        """Return the log probabilities `[B]` of values `[B]` or `[B, 1]`."""
        index = jnp.asarray(actions, jnp.int32).reshape(-1, 1)
        return jnp.take_along_axis(self.log_probs, index, axis=1)[:, 0]

    def entropy(self) -> Any:
        """Return the entropies `[B]`."""
        return -(jnp.exp(self.log_probs) * self.log_probs).sum(-1)

    def kl(self, other: Self) -> Any:  # type: ignore[override]  # of the same kind
        """Return the divergences `[B]` of `other` from this distribution."""
        check_same_kind(self, other)
        return (jnp.exp(self.log_probs) * (self.log_probs - other.log_probs)).sum(-1)
