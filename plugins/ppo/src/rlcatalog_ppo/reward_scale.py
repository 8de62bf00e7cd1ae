"""Reward scaling: division by the standard deviation of the discounted sum of rewards, and
clipping.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rlcatalog.frameworks import Array
from rlcatalog_ppo.config import OnPolicyConfig


class RewardScale:
    """Reward scaling for several environments, similar to Gymnasium's `NormalizeReward`.

    Each environment keeps a discounted sum of its rewards; all rewards are divided by the standard
    deviation of these sums so far. When an episode ends or is truncated, the sum restarts at 0. In
    Gymnasium's wrapper, the last reward leaks into the next episode, and sums continue across
    truncations. It also hides the original rewards, which are needed for returns, records and
    models that read the previous reward.

    Args:
        n: Number of environments.
        gamma: The discount.
        scaled: Whether rewards are divided. If False, rewards are only clipped.
        clip: Maximum absolute value after the division; None for no limit.
    """

    def __init__(
        self, n: int, gamma: float, scaled: bool = True, clip: float | None = None
    ) -> None:
        self.gamma = gamma
        self.scaled = scaled
        self.clip = clip
        #: Mean, variance and count of the sums so far, with Gymnasium's initial values.
        self._moments = np.array([0.0, 1.0, 1e-4])
        #: Discounted sum of rewards so far in each environment's episode.
        self._discounted_sums = np.zeros(n)

    def __call__(self, rewards: Array, done: Array, idle: Array) -> Array:
        """Return one step's training rewards, as float32.

        Args:
            rewards: Rewards `[N]`.
            done: Whether the episode ended or was truncated at this step.
            idle: Steps that only began an episode, which are not used for training.
        """
        training_rewards = rewards
        if self.scaled:
            # Large rewards may overflow here; `check_finite` then reports it before learning.
            with np.errstate(over="ignore", invalid="ignore"):
                self._discounted_sums = self._discounted_sums * self.gamma + rewards
                if not idle.all():
                    self._add_to_statistics(self._discounted_sums[~idle])
                _, variance, _ = self._moments
                training_rewards = rewards / np.sqrt(variance + 1e-8)  # 1e-8 as in Gymnasium
            self._discounted_sums[done] = 0.0
        if self.clip is not None:
            training_rewards = np.clip(training_rewards, -self.clip, self.clip)
        return training_rewards.astype(np.float32)

    def begin_anew(self, rows: Array) -> None:
        """Reset the sums of the environments that begin a new episode, given as booleans `[N]`."""
        self._discounted_sums[rows] = 0.0

    def get_state(self) -> dict[str, Array]:
        """Return copies of the statistics: mean, variance and count of the sums, and the current
        sums `[N]`.
        """
        return {"moments": self._moments.copy(), "sums": self._discounted_sums.copy()}

    def set_state(self, state: Mapping[str, Array]) -> None:
        """Restore the state that `get_state` returned."""
        self._moments = np.array(state["moments"], np.float64)
        self._discounted_sums = np.array(state["sums"], np.float64)

    def _add_to_statistics(self, sums: Array) -> None:
        """Update the statistics with new sums (Chan et al. 1979, equation 2.1)."""
        mean, variance, count = self._moments.tolist()
        new_count = len(sums)
        total_count = count + new_count
        delta = float(sums.mean()) - mean
        squares = variance * count
        new_squares = float(sums.var()) * new_count
        squares_between = delta**2 * count * new_count / total_count
        self._moments[0] = mean + delta * new_count / total_count
        self._moments[1] = (squares + new_squares + squares_between) / total_count
        self._moments[2] = total_count


def scale_of(config: OnPolicyConfig) -> RewardScale | None:
    """Return the reward scaling for an algorithm's config, or None if rewards are not changed."""
    if not config.reward_scale and config.reward_clip is None:
        return None
    return RewardScale(config.num_envs, config.gamma, config.reward_scale, config.reward_clip)
