"""The backend, which acts with a policy and scores its actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from acme_jax.random import KEYS
from rlcatalog.actions import entropy_of, params_given
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog.frameworks import Array, Evaluation, PolicyParts, views_of
from rlcatalog.models import check_values


class Backend:
    """Runs a policy; see `rlcatalog.frameworks.Backend`.

    Args:
        policy: The policy.

    Raises:
        NotServedError: The model has a memory.
    """

    def __init__(self, policy: PolicyParts) -> None:
        if len(policy.memory.initial):
            raise NotServedError("framework 'jax' has no code for memories.")
        self.policy = policy
        self.checker = policy.output_checker
        self.width = policy.action_codec.width

    def act(
        self,
        obs: Any,
        views: Mapping[str, Any],
        memory: tuple[Array, ...],
        mask: Any,
        explore: bool,
    ) -> tuple[Any, ...]:
        """Return raw actions, log densities, values, what scores the actions, and no memory."""
        dist = self._run_model(obs, views, mask, is_training=False, single_steps=True)
        sample = dist.sample() if explore else dist.deterministic_sample()
        rows = len(obs)
        raw = sample.reshape(rows, self.width)
        self.checker.check_sample(raw, rows)
        logp = dist.logp(sample)
        self.checker.check_rows(logp, rows, "logp")
        results = [raw, logp, self._values(rows), params_given(dist, sample)]
        if not isinstance(obs, jax.Array):
            results = [None if result is None else np.asarray(result) for result in results]
        return (*results, ())

    def values(self, obs: Any, views: Mapping[str, Any], memory: tuple[Array, ...]) -> Any:
        """Return value estimates `[B]`."""
        self._run_model(obs, views, mask=None, is_training=False, values_only=True)
        values = self._values(len(obs))
        return values if isinstance(obs, jax.Array) else np.asarray(values)

    def evaluate(self, batch: Mapping[str, Any], entropy: bool = True) -> Evaluation:
        """Score the actions of a training batch."""
        policy = self.policy
        raw = jnp.asarray(batch["raw_action"])
        rows = raw.shape[0]
        if policy.action_codec.scalar:  # then distributions take `[B]`
            raw = raw.reshape(rows)
        views = views_of(policy, batch)
        dist = self._run_model(batch["obs"], views, batch.get("mask"), is_training=True)
        logp = dist.logp(raw)
        entropies, entropy_kind = entropy_of(dist, jnp.asarray, entropy)
        kl = None
        if batch.get("dist_inputs") is not None:
            collecting = policy.stored_dist(jnp.asarray(batch["dist_inputs"]), policy.model)
            kl = collecting.kl(policy.stored_dist(params_given(dist, raw), policy.model))
        for numbers, method in ((logp, "logp"), (entropies, "entropy"), (kl, "kl")):
            if numbers is not None:
                self.checker.check_rows(numbers, rows, method)
        return Evaluation(logp, entropies, entropy_kind, self._values(rows), dist, kl)

    def log_density(self, dist_inputs: Array, raw_action: Array) -> Array:
        """Return the log densities `[B]` of raw actions under stored parameters."""
        dist = self.policy.stored_dist(jnp.asarray(dist_inputs), self.policy.model)
        return np.asarray(dist.logp(raw_action))

    def _run_model(self, obs: Any, views: Mapping[str, Any], mask: Any, **flags: bool) -> Any:
        """Run the model, and return the distribution of actions."""
        policy = self.policy
        tensors = jax.tree_util.tree_map(jnp.asarray, {"obs": obs, **views})
        outputs, _ = policy.model({**tensors, **flags}, [], None)
        self.checker.check_outputs(outputs, len(obs))
        if mask is not None:
            outputs = policy.dist_class.masked(outputs, jnp.asarray(mask, bool))
        return policy.dist_class(outputs, policy.model)

    def _values(self, rows: int) -> Any:
        if not self.policy.has_value:
            return None
        values = self.policy.model.value_function()
        check_values(self.policy.model, values, rows)
        return values.reshape(rows)

    # --- devices and random numbers ---------------------------------------------------------------

    @staticmethod
    def device_of(name: str) -> str:
        """Return the device with this name."""
        platform = None if name == "auto" else name
        try:
            return jax.devices(platform)[0].platform
        except RuntimeError as error:
            raise ConfigError(f"device={name!r}: JAX has {jax.devices()}.") from error

    def to(self, device: str) -> None:
        """Move the weights to a device."""
        model = self.policy.model
        model.params = jax.device_put(model.params, jax.devices(device)[0])

    def random_state(self) -> dict[str, Array]:
        """Return the random key."""
        return {"jax": np.asarray(KEYS.key)}

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Restore the random key."""
        KEYS.key = jnp.asarray(state["jax"])
