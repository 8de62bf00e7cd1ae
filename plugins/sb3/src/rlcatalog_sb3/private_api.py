"""All names of Stable-Baselines3 that are not part of its public interface and that rlcatalog uses.

No other module of rlcatalog uses such a name, because it may change in any release.

They were tried with Stable-Baselines3 2.7.0 and 2.9.2. `plugins/sb3/tests/test_sb3_private_api.py`
checks that the names still do what is relied on.

The methods `_on_step`, `_on_rollout_start` and `_on_rollout_end` of callbacks are not listed.
Stable-Baselines3 documents that callbacks override them.
"""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy

#: The learning rate in policies that earlier versions of rlcatalog saved without their algorithm.
EARLIER_LEARNING_RATE: Any = BasePolicy._dummy_schedule


class SavablePolicy(BasePolicy):
    """Policy whose `save` stores the arguments that create it again.

    `save` gets them from the private method `_get_constructor_parameters`, which each of
    Stable-Baselines3's own policies overrides. There is no public way to add arguments. If another
    version calls a different method, a saved policy is loaded with default parts, or not at all.
    """

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that create an equal policy."""
        raise NotImplementedError

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return self.constructor_arguments()


class GreedyPolicy(SavablePolicy):
    """Policy whose `predict` and `forward` take the actions of `best_actions`.

    Stable-Baselines3's `predict` asks the private method `_predict` for them. If another version
    asks a different one, `predict` raises an error.
    """

    def best_actions(self, obs: Any) -> Any:
        """Return the best actions `[B]` for observations."""
        raise NotImplementedError

    def forward(self, obs: Any, deterministic: bool = True) -> Any:
        """Return the best actions `[B]`, int64."""
        return self.best_actions(obs)

    def _predict(self, observation: Any, deterministic: bool = True) -> Any:
        return self.best_actions(observation)


class RandomActionSource(OffPolicyAlgorithm):
    """Off-policy algorithm that asks its own method for random actions.

    Stable-Baselines3 takes them from the action space, which knows no masks: in `_sample_action`
    before learning starts, and in DQN's `predict` afterwards. If another version draws them
    elsewhere, forbidden actions reach the environment.
    """

    def random_actions(self, observation: Any) -> Any:
        """Return a random action for an observation, or an array of them for a batch."""
        raise NotImplementedError

    def _sample_action(
        self, learning_starts: int, action_noise: Any = None, n_envs: int = 1
    ) -> tuple[Any, Any]:
        if self.num_timesteps < learning_starts:
            actions = self.random_actions(self._last_obs)
            return actions, actions  # for the environment, and for the replay buffer
        return super()._sample_action(learning_starts, action_noise, n_envs)
