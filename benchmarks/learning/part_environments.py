"""Environments of the tasks that need one part of rlcatalog, and the views of them that other
libraries need.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from rlcatalog_ppo.zoo_environments import Reset, Step, Weeds, Workshop


class JoinedWorkshop(gym.Wrapper[Any, Any, Any, Any]):
    """View of a `Workshop` for MaskablePPO, which takes a MultiDiscrete and one joined mask."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = MultiDiscrete([Workshop.MACHINES, Workshop.TOOLS])
        self.action_space = MultiDiscrete([Workshop.MACHINES, Workshop.TOOLS])

    def reset(self, **options: Any) -> Reset:
        obs, info = self.env.reset(**options)
        return obs["order"], info

    def step(self, action: Any) -> Any:
        machine, tool = action
        obs, *rest = self.env.step({"machine": machine, "tool": tool})
        return obs["order"], *rest

    def action_masks(self) -> np.ndarray[Any, Any]:
        """Return both masks, one after the other."""
        masks = self.env.get_wrapper_attr("masks")
        return np.concatenate([masks["machine"], masks["tool"]]).astype(bool)


class NumbersForTools(gym.ActionWrapper[Any, Any, Any]):
    """View of `Weeds` for algorithms with one Box: the tool is the largest of four numbers."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.action_space = Box(-1, 1, (2 + 1 + Weeds.TOOLS,), np.float32)

    def action(self, action: Any) -> Any:
        return int(np.argmax(action[2:])), action[:2]


class StepsForVelocities(gym.ActionWrapper[Any, Any, Any]):
    """View of `Weeds` for algorithms with a MultiDiscrete: each velocity is one of five."""

    VELOCITIES = np.linspace(-1, 1, 5, dtype=np.float32)

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.action_space = MultiDiscrete([1 + Weeds.TOOLS, 5, 5])

    def action(self, action: Any) -> Any:
        return int(action[0]), self.VELOCITIES[action[1:]]


class Duet(gym.Env[Any, Any]):
    """Two performers choose one of four songs, in two rounds; the same song pays 1 the first time.

    examples/autoregressive_action_dist.py derives that independent choices reach at most
    sqrt(32 / 27), and choices that depend on each other 1.75.
    """

    SONGS = 4
    observation_space = Box(0, 1, (1,), np.float32)  # always 1
    action_space = Tuple([Discrete(SONGS), Discrete(SONGS)])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.played: list[int] = []
        self.rounds = 0
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Step:
        first, second = map(int, action)
        is_new = first == second and first not in self.played
        if first == second:
            self.played.append(first)
        self.rounds += 1
        return np.ones(1, np.float32), float(is_new), False, self.rounds == 2, {}


class PairsOfSongs(gym.ActionWrapper[Any, Any, Any]):
    """View of a `Duet` for algorithms with a MultiDiscrete."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.action_space = MultiDiscrete([Duet.SONGS, Duet.SONGS])

    def action(self, action: Any) -> Any:
        return tuple(action)


class Recall(gym.Env[Any, Any]):
    """The first step shows one of four symbols; after `GAP` empty steps, naming it pays 1."""

    SYMBOLS, GAP = 4, 30
    EMPTY, QUESTION = SYMBOLS, SYMBOLS + 1
    observation_space = Discrete(SYMBOLS + 2)
    action_space = Discrete(SYMBOLS)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.symbol = int(self.np_random.integers(self.SYMBOLS))
        self.steps = 0
        return self.symbol, {}

    def step(self, action: Any) -> Step:
        is_answer = self.steps == self.GAP + 1
        reward = float(is_answer and int(action) == self.symbol)
        self.steps += 1
        obs = self.QUESTION if self.steps == self.GAP + 1 else self.EMPTY
        return obs, reward, is_answer, False, {}


class Candidates(gym.Env[Any, Any]):
    """One of 1,000 candidates is chosen, whose features should fit a request.

    The candidates are the same in all episodes. A choice pays the cosine of the angle between the
    request and the candidate's features.
    """

    CANDIDATES, FEATURES, STEPS = 1000, 8, 10
    #: The features of all candidates, of length 1.
    TABLE = np.random.default_rng(0).normal(size=(CANDIDATES, FEATURES)).astype(np.float32)
    TABLE /= np.linalg.norm(TABLE, axis=1, keepdims=True)
    observation_space = Dict(
        {
            "avail_actions": Box(-1, 1, (CANDIDATES, FEATURES), np.float32),
            "action_mask": MultiBinary(CANDIDATES),
            "request": Box(-1, 1, (FEATURES,), np.float32),
        }
    )
    action_space = Discrete(CANDIDATES)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.steps = 0
        return self.ask(), {}

    def step(self, action: Any) -> Step:
        reward = float(self.TABLE[action] @ self.request)
        self.steps += 1
        return self.ask(), reward, False, self.steps == self.STEPS, {}

    def ask(self) -> dict[str, Any]:
        """Draw a request, a random direction, and return the observation."""
        drawn = self.np_random.normal(size=self.FEATURES)
        self.request = (drawn / np.linalg.norm(drawn)).astype(np.float32)
        return {
            "avail_actions": self.TABLE.copy(),
            "action_mask": np.ones(self.CANDIDATES, np.int8),
            "request": self.request,
        }


class RequestOnly(gym.ObservationWrapper[Any, Any, Any]):
    """View of `Candidates` for a flat softmax: the candidates never change, so it needs no list."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = env.observation_space["request"]  # type: ignore[index]

    def observation(self, observation: Any) -> Any:
        return observation["request"]
