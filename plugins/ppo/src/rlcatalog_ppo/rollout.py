"""Collecting experience with a policy, and estimating advantages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from rlcatalog import Policy
from rlcatalog.carried import State
from rlcatalog.errors import NotServedError

Array = np.ndarray[Any, Any]


@dataclass
class Rollout:
    """Experience of N environments over T steps; every array starts with `[T, N]` unless said.

    Attributes:
        obs: Encoded observations.
        raw_action: Raw actions `[T, N, width]`.
        logp: Log density of the actions when they were drawn.
        value: Value estimates at the observations.
        reward: Rewards; where an episode was truncated, the discounted value of its last observation is added.
        done: Whether the episode ended with this step.
        last_value: Value estimates `[N]` after the last step.
        dist_inputs: Parameters `[T, N, n]` of the distributions that the actions were drawn from.
        mask: Action masks `[T, N, m]`, or None where the environment has none.
        views: What the model saw beside the observation, by name; a structure where it is one.
        starts: Where the sequences begin that a model with memory is trained on, else None.
        memory: The memory each of them began with, `[S, ...]`, environment after environment.
    """

    obs: Array
    raw_action: Array
    logp: Array
    value: Array
    reward: Array
    done: Array
    last_value: Array
    dist_inputs: Array | None = None
    mask: Array | None = None
    views: Mapping[str, Any] = field(default_factory=dict)
    starts: Array | None = None
    memory: tuple[Array, ...] = ()

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

    def batch(self, gamma: float, lambda_: float, dist_inputs: bool = False) -> dict[str, Any]:
        """Return the rows `[T * N, ...]` to learn from, environment after environment, with their sequences if any.

        Args:
            gamma: Discount.
            lambda_: Lambda of the advantage estimate.
            dist_inputs: Whether the distributions' parameters are wanted.
        """
        advantages = self.advantages(gamma, lambda_)
        columns = {
            "obs": self.obs,
            "raw_action": self.raw_action,
            "logp": self.logp,
            "reward": self.reward,
            "advantage": advantages,
            "target": advantages + self.value,
        }
        if dist_inputs and self.dist_inputs is not None:
            columns["dist_inputs"] = self.dist_inputs
        if self.mask is not None:
            columns["mask"] = self.mask
        if self.views:
            columns["views"] = dict(self.views)
        batch: dict[str, Any] = each(columns, lambda array: array.swapaxes(0, 1).reshape(-1, *array.shape[2:]))
        if self.starts is not None:
            places = np.flatnonzero(self.starts.T)
            batch["seq_lens"] = np.diff(places, append=self.starts.size).astype(np.int32)
            batch["state"] = list(self.memory)
        return batch


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
        self._state, self._rewards = policy.initial_state(envs.num_envs), np.zeros(envs.num_envs, np.float32)

    def collect(self, length: int) -> Rollout:
        """Take `length` steps in every environment."""
        policy, envs = self.policy, self.envs
        encoded, mask, state, rewards = self._encoded, self._mask, self._state, self._rewards
        steps: list[dict[str, Any]] = []
        sequences = _Sequences(policy, envs.num_envs) if policy.memory else None
        ahead = _Ahead(policy) if policy.views.ahead else None
        for _ in range(length):
            if sequences is not None:
                sequences.note(state)
            step = policy.act_encoded(encoded, state, prev_reward=rewards, mask=mask)
            state = step.state
            row = {
                "obs": encoded,
                "raw_action": step.raw_action,
                "logp": step.logp,
                "value": step.value,
                "dist_inputs": step.dist_inputs,
            }
            if mask is not None:
                row["mask"] = mask.copy()  # it may share memory with the environments'
            if state is not None and state.seen:
                row["views"] = state.seen
            observed, reward, terminated, truncated, info = envs.step(step.action)
            ended = terminated | truncated
            rewards = reward.astype(np.float32)
            row |= {"reward": rewards.copy(), "done": ended}
            encoded, mask = policy.preprocess(observed, update=True), policy.action_mask(observed)
            if ahead is not None:
                ahead.note(row, step, rewards, terminated, truncated, encoded, info)
            self._returns += reward
            self._lengths += 1
            if ended.any():
                self._finish(ended, truncated & ~terminated, info, row["reward"], state, rewards)
                state = policy.restart(state, ended)
            if sequences is not None:
                sequences.step(ended)
            steps.append(row)
        self._encoded, self._mask, self._state, self._rewards = encoded, mask, state, rewards
        columns: dict[str, Any] = _stacked(steps)
        later = columns.pop("ahead", None)
        if later is not None:
            columns["views"] = {**columns.get("views", {}), **policy.views.look_ahead(later, columns["done"])}
        if sequences is not None:
            columns |= sequences.arrays()
        return Rollout(**columns, last_value=self._values(encoded, state, rewards))

    def _finish(
        self, ended: Array, cut: Array, info: dict[str, Any], target: Array, state: State | None, rewards: Array
    ) -> None:
        for i in np.flatnonzero(ended):
            self.episodes.add(float(self._returns[i]), int(self._lengths[i]))
        self._returns[ended], self._lengths[ended] = 0.0, 0
        if cut.any():
            # A time limit is not an end of the task: what would have come is worth the value of the last observation.
            last = self.policy.preprocess([info["final_obs"][i] for i in np.flatnonzero(cut)])
            state = None if state is None else state.rows(cut)
            target[cut] += self.gamma * self._values(last, state, rewards[cut])

    def _values(self, encoded: Array, state: State | None, rewards: Array) -> Array:
        # By a sample, though it is thrown away: a distribution need not have a deterministic one.
        value = self.policy.act_encoded(encoded, state, prev_reward=rewards).value
        assert value is not None
        return value


class _Sequences:
    """Where sequences begin, and the memory they begin with: at each episode's start and every `max_seq_len` steps."""

    def __init__(self, policy: Policy, n: int) -> None:
        self._policy, self._longest = policy, policy.config["max_seq_len"]
        self._age = np.zeros(n, np.int64)
        self._starts: list[Array] = []
        self._memory: list[tuple[Array, ...]] = []

    def note(self, state: State | None) -> None:
        """Keep the memory of the environments in which a sequence begins."""
        assert state is not None
        starts = self._age % self._longest == 0
        self._starts.append(starts)
        if starts.any():
            self._memory.append(tuple(part[starts] for part in state.memory))

    def step(self, ended: Array) -> None:
        """Go one step on."""
        self._age = np.where(ended, 0, self._age + 1)

    def arrays(self) -> dict[str, Any]:
        """Return `starts` `[T, N]` and `memory`, its sequences environment after environment."""
        starts = np.stack(self._starts)
        order = np.lexsort(np.nonzero(starts))  # by environment, then by time; they were kept by time
        parts = zip(*self._memory, strict=True)
        return {"starts": starts, "memory": tuple(np.concatenate(part)[order] for part in parts)}


class _Ahead:
    """The columns that views into the future look at."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self._wanted = policy, {view.column for view in policy.views.ahead}

    def note(
        self, row: dict[str, Any], step: Any, rewards: Array, terminated: Array, truncated: Array, encoded: Array,
        info: dict[str, Any],
    ) -> None:  # fmt: skip
        """Add what is wanted of a step to its row."""
        known: dict[str, Callable[[], Array]] = {
            "obs": lambda: row["obs"],
            "actions": lambda: step.raw_action,
            "rewards": lambda: rewards,
            "t": lambda: step.state.history.t - 1,
            "terminateds": lambda: terminated,
            "truncateds": lambda: truncated,
            "action_logp": lambda: step.logp,
            "action_dist_inputs": lambda: step.dist_inputs,
            "vf_preds": lambda: step.value,
            "new_obs": lambda: self._new_obs(encoded, terminated | truncated, info),
        }
        row["ahead"] = {name: known[name]() for name in self._wanted if name in known}

    def _new_obs(self, encoded: Array, ended: Array, info: dict[str, Any]) -> Array:
        """Return what followed each step: an episode's own last observation, not the next one's first."""
        if not ended.any():
            return encoded
        following = encoded.copy()
        following[ended] = self._policy.preprocess([info["final_obs"][i] for i in np.flatnonzero(ended)])
        return following


def each(tree: Any, change: Callable[[Array], Any]) -> Any:
    """Return a structure of arrays with every array changed."""
    if isinstance(tree, Mapping):
        return {name: each(part, change) for name, part in tree.items()}
    return tuple(each(part, change) for part in tree) if isinstance(tree, tuple) else change(tree)


def _stacked(steps: list[Any]) -> Any:
    """Return the values of several steps as one structure of arrays `[T, N, ...]`."""
    first = steps[0]
    if isinstance(first, Mapping):
        return {name: _stacked([step[name] for step in steps]) for name in first}
    return (
        tuple(_stacked(list(parts)) for parts in zip(*steps, strict=True))
        if isinstance(first, tuple)
        else np.stack(steps)
    )


def check_policy(policy: Policy) -> None:
    """Raise unless PPO can train the policy.

    Raises:
        NotServedError: Its model has no value branch.
    """
    if not policy.has_value:
        raise NotServedError(f"PPO needs a value estimate; {type(policy.model).__name__} has no value_function().")
