"""PPO, A2C and PG: subclasses of `OnPolicy`, each with a config and an objective."""

from __future__ import annotations

from typing import Any

from rlcatalog.errors import NotServedError
from rlcatalog.reporting import warn_deprecated
from rlcatalog_ppo.algorithm import OnPolicy
from rlcatalog_ppo.config import A2CConfig, PGConfig, PPOConfig
from rlcatalog_ppo.update import A2C_OBJECTIVE, PG_OBJECTIVE, PPO_OBJECTIVE


class PPO(OnPolicy):
    """Proximal policy optimisation (Schulman et al. 2017).

    `PPO(env, config)` builds a policy for the environment, `train` and `learn` train it, and `save`
    saves it. `PPOConfig` lists the config keys, and `OnPolicy` all arguments.

    PPO makes several passes over each rollout in minibatches, with a clipped surrogate objective.

    Example:
        >>> algo = PPO("CartPole-v1", {"model": {"fcnet_hiddens": [64, 64]}, "lr": 3e-4, "seed": 0})
        >>> result = algo.train()
        >>> result["timesteps_total"]
        1024
    """

    config_class = PPOConfig
    objective = PPO_OBJECTIVE
    config: PPOConfig


class A2C(OnPolicy):
    """Synchronous advantage actor-critic (Mnih et al. 2016).

    It is used in the same way as `PPO`. `A2CConfig` lists the config keys, and `OnPolicy` all
    arguments.

    A2C takes one optimiser step per rollout of 5 steps from each environment, as in the paper. The
    data always come from the current policy, so nothing needs clipping. The optimiser is Adam, as
    in RLlib, and not the paper's RMSprop.

    Example:
        >>> algo = A2C("CartPole-v1", {"model": {"fcnet_hiddens": [64, 64]}, "num_envs": 8})
        >>> algo.train()["timesteps_total"]
        40
    """

    config_class = A2CConfig
    objective = A2C_OBJECTIVE
    config: A2CConfig


class PG(OnPolicy):
    """REINFORCE (Williams 1992), without value estimates.

    It is used in the same way as `PPO`. `PGConfig` lists the config keys, and `OnPolicy` all
    arguments.

    Each action is weighted by the discounted sum of the rewards from its step to the end of the
    episode. The sum also ends at a truncation and at the end of the rollout, because no value
    estimate replaces the later rewards. The length of the rollouts therefore limits how far the
    algorithm looks ahead, so make it much longer than 1 / (1 - gamma).

    Example:
        >>> algo = PG("CartPole-v1", {"model": {"fcnet_hiddens": [64, 64]}, "num_envs": 8})
        >>> result = algo.train()
    """

    config_class = PGConfig
    objective = PG_OBJECTIVE
    config: PGConfig


# --- RLlib's older names --------------------------------------------------------------------------


class _Trainer(OnPolicy):
    """Base class for the deprecated names."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        name = type(self).__name__
        warn_deprecated(f"{name} is now called {name.removesuffix('Trainer')}.")
        super().__init__(*args, **kwargs)


class PPOTrainer(_Trainer, PPO):
    """Deprecated name of `PPO`."""


class A2CTrainer(_Trainer, A2C):
    """Deprecated name of `A2C`."""


class PGTrainer(_Trainer, PG):
    """Deprecated name of `PG`."""


class A3CTrainer:
    """The asynchronous variant of A2C (not supported).

    Raises:
        NotServedError: Always; the message says why.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotServedError(
            "A3C is not supported: its workers compute gradients at their own pace from outdated"
            " weights, so a run cannot be repeated. Use rlcatalog_ppo.A2C, the same algorithm with"
            " synchronous workers; with vector='async', each environment has its own process."
        )
