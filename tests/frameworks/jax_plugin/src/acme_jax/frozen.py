"""A frozen policy: one compiled function of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from acme_jax.distributions import Categorical
from acme_jax.random import KEYS
from rlcatalog.actions import unbind
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Array


class Frozen:
    """Acts with a compiled function; see `rlcatalog_policy.FrozenBackend`.

    Args:
        policy: The policy.
    """

    reason = None

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self._step = jax.jit(self._run, static_argnums=4)
        self.update()

    def _run(self, params: Any, obs: Any, mask: Any, key: Any, explore: bool) -> tuple[Any, ...]:
        model = self.policy.model
        with model.using(params):
            inputs, _ = model({"obs": obs, "is_training": False}, [], None)
            values = model.value_function()
        model.values = None  # it is known only while the function is compiled
        if mask is not None:
            inputs = self.policy.dist_class.masked(inputs, mask)
        dist = self.policy.dist_class(inputs, model)
        if explore:
            sample = jax.random.categorical(key, dist.log_probs)  # with the temperature
        else:
            sample = dist.deterministic_sample()
        return sample[:, None], dist.logp(sample), values, inputs

    def update(self) -> None:
        """Act with the current weights."""
        self.params = self.policy.model.params

    def act(
        self,
        obs: Array,
        views: Mapping[str, Any],
        memory: tuple[Array, ...],
        mask: Array | None,
        explore: bool,
    ) -> tuple[Any, ...]:
        """Return raw actions, log densities, values, what scores the actions, and no memory."""
        allowed = None if mask is None else jnp.asarray(mask)
        results = self._step(self.params, jnp.asarray(obs), allowed, KEYS.next(), explore)
        return (*map(np.asarray, results), ())

    def random_state(self) -> dict[str, Array]:
        """Return nothing, because the policy's key is used."""
        return {}

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Restore nothing, because the policy's key is used."""


def freeze(policy: Any, rows: int, seed: int | None) -> Frozen:
    """Return what acts for a frozen policy.

    Raises:
        NotServedError: Its actions are not from a categorical distribution.
    """
    dist_class, _ = unbind(policy.dist_class)
    if dist_class is not Categorical:
        raise NotServedError("framework 'jax' freezes categorical policies only.")
    return Frozen(policy)
