"""`CatalogMaskablePolicy`: a policy for sb3-contrib's MaskablePPO whose parts come from the catalog."""

from __future__ import annotations

from typing import Any

from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy

from rlcatalog_sb3.distribution import CatalogDistribution
from rlcatalog_sb3.policies import CatalogBasePolicy


class CatalogMaskablePolicy(CatalogBasePolicy, MaskableActorCriticPolicy):
    """A policy for MaskablePPO with the catalog's preprocessor, model and distribution.

    Masks stand in the observation (`action_mask_key` of the model config), come from `env.action_masks()`, or both;
    what either forbids is forbidden. MaskablePPO asks the environment for its masks; where they stand in the
    observation alone, `for_sb3(env)` hands them out, or `learn(..., use_masking=False)` leaves the question out.
    """

    def forward(self, obs: Any, deterministic: bool = False, action_masks: Any = None) -> tuple[Any, Any, Any]:
        """Return raw actions `[B, ...]`, value estimates `[B, 1]` and log densities `[B]`."""
        return self.actor_critic.act(obs, action_masks, deterministic)

    def evaluate_actions(self, obs: Any, actions: Any, action_masks: Any = None) -> tuple[Any, Any, Any]:
        """Return value estimates `[B, 1]`, log densities `[B]` of raw actions, and entropies `[B]`."""
        actor_critic = self.actor_critic
        logp, entropy = actor_critic.score(actor_critic.dist(obs, action_masks, acting=False), actions)
        return actor_critic.values(), logp, entropy

    def get_distribution(self, obs: Any, action_masks: Any = None) -> Any:
        """Return the distribution of raw actions, masked."""
        return CatalogDistribution(self.actor_critic, self.actor_critic.dist(obs, action_masks))

    def predict_values(self, obs: Any) -> Any:
        """Return value estimates `[B, 1]`."""
        actor_critic = self.actor_critic
        actor_critic.model({"obs": actor_critic.observer.encode(obs), "is_training": False}, [], None)
        return actor_critic.values()
