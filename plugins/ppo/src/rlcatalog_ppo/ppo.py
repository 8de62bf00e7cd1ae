"""PPO: several passes over each rollout, in minibatches, with a clipped surrogate."""

from __future__ import annotations

from typing import Any

from rlcatalog.reporting import warn_deprecated
from rlcatalog_ppo.algorithm import OnPolicy
from rlcatalog_ppo.config import PPOConfig
from rlcatalog_ppo.learner import PPOLearner, set_threads
from rlcatalog_ppo.loss import PPO_OBJECTIVE
from rlcatalog_ppo.rollout import Rollout

__all__ = ["PPO", "PPOTrainer", "set_threads"]


class PPO(OnPolicy):
    """Proximal policy optimisation (Schulman et al. 2017) over a catalog lookup (see `OnPolicy` for the arguments).

    Example:
        >>> algo = PPO(env="CartPole-v1", config={"model": {"fcnet_hiddens": [64, 64]}, "lr": 3e-4})
        >>> result = algo.train()
    """

    config_class = PPOConfig
    objective = PPO_OBJECTIVE
    learner_class = PPOLearner
    config: PPOConfig

    def _batch(self, rollout: Rollout) -> dict[str, Any]:
        return rollout.batch(self.config.gamma, self.config.lambda_, self.config.kl_coeff > 0)


class PPOTrainer(PPO):
    """Deprecated name of `PPO`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warn_deprecated("PPOTrainer is now called PPO.")
        super().__init__(*args, **kwargs)
