"""The catalog's distributions with the interface of `stable_baselines3.common.distributions`."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.distributions import Distribution

from rlcatalog.actions import entropy_of
from rlcatalog.errors import NotServedError
from rlcatalog_sb3.actor_critic import ActorCritic
from rlcatalog_torch import flat_sample


class CatalogDistribution(Distribution):
    """A distribution of raw actions.

    Args:
        actor_critic: The actor and critic that made it.
        dist: The catalog's distribution.
    """

    def __init__(self, actor_critic: ActorCritic, dist: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.actor_critic, self.distribution = actor_critic, dist

    def sample(self) -> Any:
        """Draw raw actions `[B, ...]`."""
        return self._draw("sample")

    def mode(self) -> Any:
        """Return the most likely raw actions `[B, ...]`."""
        return self._draw("deterministic_sample")

    def _draw(self, method: str) -> Any:
        sample = getattr(self.distribution, method)()
        self.actor_critic.policy.contract.check_tensors(sample, method)
        return self.actor_critic.shape_actions(flat_sample(sample))

    def log_prob(self, x: Any) -> Any:
        """Return the log density `[B]` of raw actions."""
        return self.actor_critic.logp(self.distribution, x)

    def entropy(self) -> Any:
        """Return the entropy `[B]`, or its estimate."""
        return entropy_of(self.distribution, flat_sample)[0]

    def _refuse_parameters(self, *args: Any, **kwargs: Any) -> Any:
        """Raise: the layers belong to the catalog's model."""
        raise NotServedError(
            "the catalog's distributions are made from a model's output: policy.get_distribution(obs)."
        )

    proba_distribution_net = proba_distribution = _refuse_parameters
    actions_from_params = log_prob_from_params = _refuse_parameters
