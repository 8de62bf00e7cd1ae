"""PG: plain policy gradient, one step on each rollout, actions weighed by what was paid after them."""

from __future__ import annotations

from typing import Any

from rlcatalog.reporting import warn_deprecated
from rlcatalog_ppo.algorithm import OnPolicy
from rlcatalog_ppo.config import PGConfig
from rlcatalog_ppo.loss import PG_OBJECTIVE
from rlcatalog_ppo.rollout import Rollout

__all__ = ["PG", "PGConfig", "PGTrainer"]


class PG(OnPolicy):
    """REINFORCE (Williams 1992) over a catalog lookup (see `OnPolicy` for the arguments); no value is needed.

    Each action is weighed by the discounted sum of the rewards from its step to the episode's end. Where an episode is
    truncated, and where the rollout ends within one, the sum ends there: without a value estimate nothing stands for
    what would have come. So the rollout's length is how far the algorithm looks ahead; let it be long beside
    1 / (1 - gamma).

    Example:
        >>> algo = PG(env="CartPole-v1", config={"model": {"fcnet_hiddens": [64, 64]}, "num_envs": 8})
        >>> result = algo.train()
    """

    config_class = PGConfig
    objective = PG_OBJECTIVE
    uses_values = False
    config: PGConfig

    def _batch(self, rollout: Rollout) -> dict[str, Any]:
        # With values of 0 and a lambda of 1 the advantage estimates are the returns to go.
        return rollout.batch(self.config.gamma, 1.0)


class PGTrainer(PG):
    """Deprecated name of `PG`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warn_deprecated("PGTrainer is now called PG.")
        super().__init__(*args, **kwargs)
