"""Collecting experience with a policy, and estimating advantages."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from rlcatalog import Policy
from rlcatalog.errors import NotServedError

Array = np.ndarray[Any, Any]


@dataclass
class Rollout:
    """Experience of N environments over T steps; every array starts with `[T, N]`.

    Attributes:
        obs: Encoded observations.
        raw_action: Raw actions `[T, N, width]`.
        logp: Log density of the actions when they were drawn.
        value: Value estimates at the observations.
        reward: Rewards; where an episode was truncated, the discounted value of its last observation is added.
        done: Whether the episode ended with this step.
        last_value: Value estimates `[N]` after the last step.
        mask: Action masks `[T, N, m]`, or None where the environment has none.
    """

    obs: Array
    raw_action: Array
    logp: Array
    value: Array
    reward: Array
    done: Array
    last_value: Array
    mask: Array | None = None

    def advantages(self, gamma: float, lambda_: float) -> Array:
        """Return the generalised advantage estimates `[T, N]` (Schulman et al. 2016, equation 16)."""
        advantages = np.zeros_like(self.value)
        next_value, running = self.last_value, np.zeros_like(self.last_value)
        for t in range(len(advantages) - 1, -1, -1):
            goes_on = 1.0 - self.done[t]
            delta = self.reward[t] + gamma * next_value * goes_on - self.value[t]
            running = delta + gamma * lambda_ * goes_on * running
            advantages[t], next_value = running, self.value[t]
        return advantages


@dataclass
class Episodes:
    """Returns and lengths of finished episodes.

    Attributes:
        returns: Undiscounted returns of the last 100.
        lengths: Their lengths in steps.
        total: How many have finished.
    """

    returns: deque[float] = field(default_factory=lambda: deque(maxlen=100))
    lengths: deque[int] = field(default_factory=lambda: deque(maxlen=100))
    total: int = 0

    def add(self, episode_return: float, length: int) -> None:
        """Note a finished episode."""
        self.returns.append(episode_return)
        self.lengths.append(length)
        self.total += 1


class Collector:
    """Steps a vector environment with a policy.

    Args:
        policy: Chooses the actions.
        envs: Environments that reset themselves within the step that ends an episode.
        seed: Seed of the environments.
        gamma: Discount, for the value of truncated episodes' last observations.
    """

    def __init__(self, policy: Policy, envs: VectorEnv, seed: int | None, gamma: float) -> None:
        self.policy, self.envs, self.gamma = policy, envs, gamma
        self.episodes = Episodes()
        self._returns, self._lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, np.int64)
        obs, _ = envs.reset(seed=seed)
        self._encoded, self._mask = policy.preprocess(obs, update=True), policy.action_mask(obs)

    def collect(self, length: int) -> Rollout:
        """Take `length` steps in every environment."""
        policy, envs, n = self.policy, self.envs, self.envs.num_envs
        encoded, mask = self._encoded, self._mask
        obs = np.empty((length, *encoded.shape), encoded.dtype)
        masks = None if mask is None else np.empty((length, *mask.shape), np.bool_)
        raw_action: Array | None = None
        logp, value, reward = (np.empty((length, n), np.float32) for _ in range(3))
        done = np.empty((length, n), np.bool_)
        for t in range(length):
            step = policy.act_encoded(encoded, mask=mask)
            if raw_action is None:
                raw_action = np.empty((length, *step.raw_action.shape), step.raw_action.dtype)
            obs[t], raw_action[t], logp[t], value[t] = encoded, step.raw_action, step.logp, step.value
            if masks is not None:
                masks[t] = mask
            observed, rewards, terminated, truncated, info = envs.step(step.action)
            ended = terminated | truncated
            reward[t], done[t] = rewards, ended
            self._returns += rewards
            self._lengths += 1
            if ended.any():
                self._finish(ended, truncated & ~terminated, info, reward[t])
            encoded, mask = policy.preprocess(observed, update=True), policy.action_mask(observed)
        self._encoded, self._mask = encoded, mask
        assert raw_action is not None
        return Rollout(obs, raw_action, logp, value, reward, done, self._values(encoded), masks)

    def _finish(self, ended: Array, cut: Array, info: dict[str, Any], reward: Array) -> None:
        for i in np.flatnonzero(ended):
            self.episodes.add(float(self._returns[i]), int(self._lengths[i]))
        self._returns[ended], self._lengths[ended] = 0.0, 0
        if cut.any():
            # A time limit is not an end of the task: what would have come is worth the value of the last observation.
            last = self.policy.preprocess([info["final_obs"][i] for i in np.flatnonzero(cut)])
            reward[cut] += self.gamma * self._values(last)

    def _values(self, encoded: Array) -> Array:
        value = self.policy.act_encoded(encoded, explore=False).value
        assert value is not None
        return value


def check_policy(policy: Policy) -> None:
    """Raise unless PPO can train the policy.

    Raises:
        NotServedError: Its model has memory, or no value branch.
    """
    if policy.initial_state(1) is not None:
        raise NotServedError(f"PPO does not train models with memory yet; {type(policy.model).__name__} has a state.")
    if not policy.has_value:
        raise NotServedError(f"PPO needs a value estimate; {type(policy.model).__name__} has no value_function().")
