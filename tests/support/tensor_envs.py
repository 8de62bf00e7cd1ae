"""Vector environments whose states, observations and rewards are PyTorch tensors, as in simulators
on a GPU. They end an episode and begin the next one in the same step.
"""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor


class TensorEnv:
    """Vector environment on tensors.

    Args:
        num_envs: Number of environments.
        seed: Seed for its own random numbers.
        limit: Steps after which an episode is cut off.
        device: Its device.

    Attributes:
        steps: Steps of each episode so far, `[num_envs]`.
        state: The state of each environment.
        finished_returns: The returns of the episodes that have ended.
    """

    observation_space: gym.Space
    action_space: gym.Space

    def __init__(self, num_envs: int, seed: int = 0, limit: int = 200, device: str = "cpu") -> None:
        self.num_envs = num_envs
        self.limit = limit
        self.device = torch.device(device)
        self._generator = torch.Generator(device).manual_seed(seed)
        self.steps = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        self._returns = torch.zeros(num_envs, device=self.device)
        self.finished_returns: list[float] = []
        self.state = self._first_states()

    def observe(self) -> Tensor:
        """Return the observations of the current states."""
        return self.state.clone()

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Step each environment, and begin new episodes where one has ended.

        Returns:
            The next observations, those of the next episode where one has ended; the rewards; and
            where episodes have terminated and where they were cut off, as booleans.
        """
        self.state, rewards, terminated = self._move(actions)
        self.steps = self.steps + 1
        self._returns = self._returns + rewards
        truncated = (self.steps >= self.limit) & ~terminated
        ended = terminated | truncated
        self.finished_returns += self._returns[ended].tolist()
        self._returns = torch.where(ended, 0.0, self._returns)
        self.steps = torch.where(ended, 0, self.steps)
        self.state = torch.where(ended[:, None], self._first_states(), self.state)
        return self.observe(), rewards, terminated, truncated

    def mean_of_last_returns(self, episodes: int) -> float:
        """Return the mean return of the last episodes that have ended."""
        return float(np.mean(self.finished_returns[-episodes:]))

    def _uniform(self, low: float, high: float, *shape: int) -> Tensor:
        drawn = torch.rand(shape, generator=self._generator, device=self.device)
        return low + (high - low) * drawn

    def _first_states(self) -> Tensor:
        raise NotImplementedError

    def _move(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        raise NotImplementedError


class TensorCartPole(TensorEnv):
    """Gymnasium's CartPole on tensors."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, num_envs: int, seed: int = 0, limit: int = 500, device: str = "cpu") -> None:
        super().__init__(num_envs, seed, limit, device)

    def _first_states(self) -> Tensor:
        return self._uniform(-0.05, 0.05, self.num_envs, 4)

    def _move(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        position, speed, angle, turn = self.state.unbind(1)
        force = torch.where(actions == 1, 10.0, -10.0)
        pole_mass = 0.1
        pole_length = 0.5
        mass = 1.0 + pole_mass
        sine = torch.sin(angle)
        cosine = torch.cos(angle)
        push = (force + pole_mass * pole_length * turn**2 * sine) / mass
        inertia = pole_length * (4 / 3 - pole_mass * cosine**2 / mass)
        turn_change = (9.8 * sine - cosine * push) / inertia
        speed_change = push - pole_mass * pole_length * turn_change * cosine / mass
        tau = 0.02
        moved = [
            position + tau * speed,
            speed + tau * speed_change,
            angle + tau * turn,
            turn + tau * turn_change,
        ]
        state = torch.stack(moved, 1)
        fell = (state[:, 0].abs() > 2.4) | (state[:, 2].abs() > 12 * math.pi / 180)
        return state, torch.ones(self.num_envs, device=self.device), fell


class TensorPendulum(TensorEnv):
    """Gymnasium's Pendulum on tensors. Torques outside its bounds are clipped."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)

    def observe(self) -> Tensor:
        """Return the angle's cosine and sine, and its speed."""
        angle, speed = self.state.unbind(1)
        return torch.stack([angle.cos(), angle.sin(), speed], 1)

    def _first_states(self) -> Tensor:
        angle = self._uniform(-math.pi, math.pi, self.num_envs)
        speed = self._uniform(-1.0, 1.0, self.num_envs)
        return torch.stack([angle, speed], 1)

    def _move(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        angle, speed = self.state.unbind(1)
        torque = actions[:, 0].clamp(-2.0, 2.0)
        wrapped_angle = (angle + math.pi) % (2 * math.pi) - math.pi
        cost = wrapped_angle**2 + 0.1 * speed**2 + 0.001 * torque**2
        speed = speed + (15.0 * torch.sin(angle) + 3.0 * torque) * 0.05
        speed = speed.clamp(-8.0, 8.0)
        state = torch.stack([angle + speed * 0.05, speed], 1)
        never = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        return state, -cost, never


class RandomGroupsEnv:
    """Environment whose observations are random values of a space, for a Dict as a dict of tensors.

    Episodes end at random, and rewards are random too. It checks that actions are in their space.

    Args:
        num_envs: Number of environments.
        observation_space: The space; an entry `"action_mask"` allows at least one action.
        action_space: The space that actions are checked against.
        seed: Seed for the observations and the ends of episodes.
        end_probability: How likely a step ends an episode.

    Attributes:
        actions: The actions of each step so far.
    """

    def __init__(
        self,
        num_envs: int,
        observation_space: gym.Space,
        action_space: gym.Space,
        seed: int = 0,
        end_probability: float = 0.2,
    ) -> None:
        self.num_envs = num_envs
        self.observation_space = observation_space
        self.action_space = action_space
        self.limit = 1000
        self.device = torch.device("cpu")
        self.steps = torch.zeros(num_envs, dtype=torch.int64)
        self.actions: list = []
        self._end_probability = end_probability
        self._rng = np.random.default_rng(seed)
        self._is_dict = isinstance(observation_space, spaces.Dict)
        self._groups = observation_space if self._is_dict else spaces.Dict(obs=observation_space)
        self._groups.seed(seed)
        self._obs = self._draw()

    def observe(self) -> Tensor | dict[str, Tensor]:
        """Return the current observations."""
        return self._obs if self._is_dict else self._obs["obs"]

    def step(self, actions: object) -> tuple[Tensor | dict[str, Tensor], Tensor, Tensor, Tensor]:
        """Check the actions, and draw the next observations."""
        self._check(actions)
        self.actions.append(actions)
        self._obs = self._draw()
        rewards = torch.from_numpy(self._rng.normal(size=self.num_envs).astype(np.float32))
        draws = self._rng.random(self.num_envs)
        terminated = torch.from_numpy(draws < self._end_probability / 2)
        truncated = torch.from_numpy(draws > 1 - self._end_probability / 2)
        return self.observe(), rewards, terminated, truncated

    def _draw(self) -> dict[str, Tensor]:
        samples = [self._groups.sample() for _ in range(self.num_envs)]
        obs = {}
        for name, space in self._groups.items():
            values = np.stack([sample[name] for sample in samples])
            if name == "action_mask":
                values[:, 0] = 1
            if isinstance(space, spaces.MultiBinary):
                values = values.astype(bool)
            obs[name] = torch.from_numpy(values)
        return obs

    def _check(self, actions: object) -> None:
        for row in range(self.num_envs):
            action = _row_of(actions, row)
            assert self.action_space.contains(action), f"{action} is not in {self.action_space}"
            mask = self._obs.get("action_mask")
            if mask is not None:
                column = int(action) - int(self.action_space.start)
                assert mask[row, column], f"{action} is forbidden by {mask[row]}"


def _row_of(values: object, row: int) -> object:
    """Return one row of a batch of tensors, or of a tuple or dict of them, as arrays."""
    if isinstance(values, tuple):
        return tuple(_row_of(part, row) for part in values)
    if isinstance(values, dict):
        return {name: _row_of(part, row) for name, part in values.items()}
    array = values[row].numpy()
    return array[()] if array.ndim == 0 else array
