"""Rewards as they are learned from: divided by the deviation of their discounted sum, and cut off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlcatalog_ppo.config import OnPolicyConfig

Array = np.ndarray[Any, Any]


class RewardScale:
    """Scales the rewards of environments side by side, as Gymnasium's `NormalizeReward` does.

    Each environment's rewards are summed up, discounted; all rewards are divided by the deviation of those sums so far.
    Where an episode ends, or is cut, its sum begins anew; Gymnasium's wrapper lets the last reward leak into the next
    episode, and goes on over a cut. The wrapper itself does not serve: it leaves nobody the environment's own rewards,
    which returns, records and models that look at the last reward need.

    Args:
        n: Number of environments.
        gamma: The discount.
        scaled: Whether rewards are divided; else they are cut off alone.
        clip: Where they are cut off, in both directions, after the division; None: nowhere.
    """

    def __init__(self, n: int, gamma: float, scaled: bool = True, clip: float | None = None) -> None:
        self.gamma, self.scaled, self.clip = gamma, scaled, clip
        #: Mean, variance and number of the sums so far; they begin as Gymnasium's do.
        self._moments = np.array([0.0, 1.0, 1e-4])
        self._sums = np.zeros(n)

    def __call__(self, rewards: Array, ended: Array, idle: Array) -> Array:
        """Return the rewards of a step as they are learned from, float32.

        Args:
            rewards: Rewards `[N]`.
            ended: Whether the episode ended with the step, or was cut.
            idle: Steps that did nothing but begin an episode; nothing is learned from them.
        """
        scaled = rewards
        if self.scaled:
            with np.errstate(over="ignore", invalid="ignore"):  # what is too large is found when it is learned from
                self._sums = self._sums * self.gamma + rewards
                if not idle.all():
                    self._learn(self._sums[~idle])
                scaled = rewards / np.sqrt(self._moments[1] + 1e-8)
            self._sums[ended] = 0.0
        if self.clip is not None:
            scaled = np.clip(scaled, -self.clip, self.clip)
        return scaled.astype(np.float32)

    def begin_anew(self, rows: Array) -> None:
        """Forget the sums of some environments, booleans `[N]`, whose episodes begin anew."""
        self._sums[rows] = 0.0

    def get_state(self) -> dict[str, Array]:
        """Return copies of the statistics: mean, variance and number of the sums, and the sums `[N]` that run."""
        return {"moments": self._moments.copy(), "sums": self._sums.copy()}

    def set_state(self, state: Mapping[str, Array]) -> None:
        """Go on from what `get_state` returned."""
        self._moments, self._sums = (np.array(state[name], np.float64) for name in ("moments", "sums"))

    def _learn(self, sums: Array) -> None:
        """Let the statistics learn from some sums (Chan et al. 1979, equation 2.1)."""
        mean, var, count = self._moments.tolist()
        total, delta = count + len(sums), float(sums.mean()) - mean
        spread = var * count + float(sums.var()) * len(sums) + delta**2 * count * len(sums) / total
        self._moments[:] = mean + delta * len(sums) / total, spread / total, total


def scale_of(config: OnPolicyConfig) -> RewardScale | None:
    """Return what scales the rewards by an algorithm's config, or None where it leaves them as they are."""
    if not config.reward_scale and config.reward_clip is None:
        return None
    return RewardScale(config.num_envs, config.gamma, config.reward_scale, config.reward_clip)
