"""A2C: one step of gradient descent on each short rollout, advantages from the value estimate."""

from __future__ import annotations

from typing import Any

from rlcatalog.reporting import warn_deprecated
from rlcatalog_ppo.algorithm import OnPolicy
from rlcatalog_ppo.config import A2CConfig
from rlcatalog_ppo.loss import A2C_OBJECTIVE
from rlcatalog_ppo.rollout import Rollout

__all__ = ["A2C", "A2CConfig", "A2CTrainer"]


class A2C(OnPolicy):
    """Advantage actor-critic, synchronous (Mnih et al. 2016), over a catalog lookup (see `OnPolicy` for the arguments).

    Each rollout, 5 steps of every environment as in the paper, is learned from once and as a whole: what was
    collected is always from the policy that is improved, and nothing needs clipping. The optimiser is Adam, as in
    RLlib: its state is the same for all algorithms here and in both frameworks, which the paper's RMSprop is not.

    Example:
        >>> algo = A2C(env="CartPole-v1", config={"model": {"fcnet_hiddens": [64, 64]}, "num_envs": 8})
        >>> result = algo.train()
    """

    config_class = A2CConfig
    objective = A2C_OBJECTIVE
    config: A2CConfig

    def _batch(self, rollout: Rollout) -> dict[str, Any]:
        return rollout.batch(self.config.gamma, self.config.lambda_)


class A2CTrainer(A2C):
    """Deprecated name of `A2C`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warn_deprecated("A2CTrainer is now called A2C.")
        super().__init__(*args, **kwargs)
