"""The backend, which acts with a policy and scores its actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlcatalog.actions import entropy_of, params_given
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog.frameworks import Array, Evaluation, PolicyParts, TensorTree, views_of
from rlcatalog.models import check_values
from toy_framework.arrays import BITS


class Backend:
    """Runs a policy; see `rlcatalog.frameworks.Backend`.

    Args:
        policy: The policy.

    Raises:
        NotServedError: The model has a memory.
    """

    def __init__(self, policy: PolicyParts) -> None:
        if len(policy.memory.initial):
            raise NotServedError("framework 'toy' has no code for memories.")
        self.policy = policy
        self.checker = policy.output_checker

    def act(
        self,
        obs: Array,
        views: Mapping[str, Array],
        memory: tuple[Array, ...],
        mask: Array | None,
        explore: bool,
    ) -> tuple[Any, ...]:
        """Return raw actions, log densities, values, what scores the actions, and no memory."""
        dist = self._run_model(obs, views, mask, is_training=False, single_steps=True)
        sample = dist.sample() if explore else dist.deterministic_sample()
        raw = sample.reshape(len(obs), self.policy.action_codec.width)
        self.checker.check_sample(raw, len(obs))
        logp = dist.logp(sample)
        self.checker.check_rows(logp, len(obs), "logp")
        return raw, logp, self._values(len(obs)), params_given(dist, sample), ()

    def values(
        self, obs: Array, views: Mapping[str, Array], memory: tuple[Array, ...]
    ) -> Array | None:
        """Return value estimates `[B]`."""
        self._run_model(obs, views, mask=None, is_training=False, values_only=True)
        return self._values(len(obs))

    def evaluate(self, batch: Mapping[str, Any], entropy: bool = True) -> Evaluation:
        """Score the actions of a training batch."""
        policy = self.policy
        raw = np.asarray(batch["raw_action"])
        if policy.action_codec.scalar:  # then distributions take `[B]`
            raw = raw.reshape(len(raw))
        views = views_of(policy, batch)
        dist = self._run_model(batch["obs"], views, batch.get("mask"), is_training=True)
        logp = dist.logp(raw)
        entropies, entropy_kind = entropy_of(dist, np.asarray, entropy)
        kl = None
        if batch.get("dist_inputs") is not None:
            collecting = policy.stored_dist(np.asarray(batch["dist_inputs"]), policy.model)
            kl = collecting.kl(policy.stored_dist(params_given(dist, raw), policy.model))
        for numbers, method in ((logp, "logp"), (entropies, "entropy"), (kl, "kl")):
            if numbers is not None:
                self.checker.check_rows(numbers, len(raw), method)
        return Evaluation(logp, entropies, entropy_kind, self._values(len(raw)), dist, kl)

    def log_density(self, dist_inputs: Array, raw_action: Array) -> Array:
        """Return the log densities `[B]` of raw actions under stored parameters."""
        dist = self.policy.stored_dist(dist_inputs, self.policy.model)
        logp: Array = dist.logp(raw_action)
        return logp

    def _run_model(
        self, obs: TensorTree, views: Mapping[str, Any], mask: Array | None, **flags: bool
    ) -> Any:
        """Run the model, and return the distribution of actions."""
        policy = self.policy
        outputs, _ = policy.model({"obs": obs, **views, **flags}, [], None)
        self.checker.check_outputs(outputs, len(outputs))
        if mask is not None:
            outputs = policy.dist_class.masked(outputs, np.asarray(mask, bool))
        return policy.dist_class(outputs, policy.model)

    def _values(self, rows: int) -> Array | None:
        """Return the values `[B]` of the last pass; None for a model without values."""
        if not self.policy.has_value:
            return None
        values: Array = self.policy.model.value_function()
        check_values(self.policy.model, values, rows)
        return values.reshape(rows)

    # --- devices and random numbers ---------------------------------------------------------------

    @staticmethod
    def device_of(name: str) -> str:
        """Return the device with this name."""
        if name not in ("cpu", "auto"):
            raise ConfigError(f"device={name!r}: framework 'toy' has one device, 'cpu'.")
        return "cpu"

    def to(self, device: str) -> None:
        """Move to a device, of which there is one."""

    def random_state(self) -> dict[str, Array]:
        """Return the state of the random generator as arrays, by name."""
        state: Any = BITS.state["state"]
        return {"key": state["key"].copy(), "pos": np.array(state["pos"])}

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Restore the state that `random_state` returned."""
        key_and_position = {"key": state["key"], "pos": int(state["pos"])}
        BITS.state = {"bit_generator": "MT19937", "state": key_and_position}
