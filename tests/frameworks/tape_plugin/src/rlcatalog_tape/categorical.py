"""The categorical distribution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import tape
from gymnasium import Space
from tape import Array, data_of

from rlcatalog import ActionDistribution, ModelV2, SpaceInfo
from rlcatalog.actions import check_same_kind
from rlcatalog_tape.ops import OPS
from rlcatalog_tape.random import GENERATOR


class Categorical(ActionDistribution):
    """Distribution over `{0, …, n-1}` from logits `[B, n]`.

    A mask gives forbidden values the lowest finite logit. Their log probability is the same number,
    so that every result is finite.

    Args:
        inputs: The logits.
        model: The model that computed them, or None.
        temperature: Divisor of the logits.
    """

    framework_of_class = "tape"
    ops = OPS

    def __init__(self, inputs: Any, model: ModelV2 | None = None, temperature: float = 1.0) -> None:
        logits = OPS.tensor(inputs)
        # Engines store these inputs, and rebuild the distribution from them with its temperature.
        super().__init__(logits, model)
        lowest = np.finfo(logits.dtype).min
        with np.errstate(over="ignore"):  # what overflows is clipped
            if temperature != 1.0:
                divided = tape.clip(logits / temperature, lowest, -lowest)
                logits = tape.where(logits > lowest, divided, lowest)
            highest = logits.data.max(axis=1, keepdims=True, initial=lowest)
            shifted = tape.maximum(logits - highest, lowest)
        total = tape.exp(shifted).sum(axis=1, keepdims=True)
        self.log_probs = tape.maximum(shifted - tape.log(total), lowest)

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
        """Draw values `[B]`: the largest log probability after Gumbel noise has been added."""
        noise = GENERATOR.gumbel(size=self.log_probs.shape)
        sample = Array((self.log_probs.data + noise).argmax(axis=1))
        self.last_sample = sample
        return sample

    def deterministic_sample(self) -> Array:
        """Return the most likely values `[B]`."""
        sample = Array(self.log_probs.data.argmax(axis=1))
        self.last_sample = sample
        return sample

    def logp(self, actions: Any) -> Array:
        """Return the log probabilities `[B]` of values `[B]` or `[B, 1]`."""
        index = np.asarray(data_of(actions)).reshape(-1).astype(np.int64)
        logp: Array = self.log_probs[np.arange(len(index)), index]
        return logp

    def entropy(self) -> Array:
        """Return the entropies `[B]`."""
        weighted = tape.exp(self.log_probs) * self.log_probs
        return -weighted.sum(axis=1)

    def kl(self, other: Self) -> Array:  # type: ignore[override]  # of the same kind
        """Return the divergences `[B]` of `other` from this distribution."""
        check_same_kind(self, other)
        return (tape.exp(self.log_probs) * (self.log_probs - other.log_probs)).sum(axis=1)
