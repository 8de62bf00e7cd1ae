"""The tasks: environments, how far returns reach in them, how long is trained, with which settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Catch(gym.Env[Any, Any]):
    """A ball falls through a board of 10 rows and 5 columns, and a paddle at the bottom is to be under it.

    After Mnih et al. (2014). Observations are images of 64 x 64 pixels; catching pays 1, missing -1. With 42 x 42
    pixels RLlib's own net would take some twenty times as long: its last layer there is 11 x 11 x 32 x 256.
    """

    observation_space = spaces.Box(0, 255, (64, 64, 1), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.row, self.column, self.paddle = 0, int(self.np_random.integers(5)), 2
        return self.image(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.paddle = min(4, max(0, self.paddle + int(action) - 1))
        self.row += 1
        over = self.row == 9
        return self.image(), (1.0 if self.paddle == self.column else -1.0) * over, over, False, {}

    def image(self) -> Any:
        board = np.zeros((64, 64, 1), np.uint8)
        for row, column in ((self.row, self.column), (9, self.paddle)):
            board[6 * row + 2 : 6 * row + 8, 12 * column + 2 : 12 * column + 14] = 255
        return board


def minigrid() -> Any:
    """A room of MiniGrid's, its view as a vector between 0 and 1: neither engine's own net is made for 7 x 7 pixels."""
    from minigrid.wrappers import ImgObsWrapper

    env = gym.wrappers.FlattenObservation(ImgObsWrapper(gym.make("MiniGrid-Empty-5x5-v0")))
    box = spaces.Box(0, 1, env.observation_space.shape, np.float32)  # type: ignore[arg-type]
    return gym.wrappers.TransformObservation(env, lambda obs: np.asarray(obs, np.float32) / 10, box)


@dataclass(frozen=True)
class Task:
    """What is trained.

    Attributes:
        make: Makes the environment.
        low: What is paid for acting at random.
        high: What is paid at best.
        steps: Engine → environment steps to train for; ours as many as Stable-Baselines3.
        settings: Hyperparameters of all engines, under the names of PPO's paper.
        seeds: The same for seeds: ten or more where a run takes less than a minute, else five.
        claimed: Whether a claim is made.
    """

    make: Callable[[], Any]
    low: float
    high: float
    steps: dict[str, int]
    settings: dict[str, Any] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=lambda: {"sb3": 10, "rllib": 10})
    claimed: bool = True

    def steps_of(self, engine: str) -> int:
        """Return the steps of an engine."""
        return self.steps.get(engine, self.steps["sb3"])

    def seeds_of(self, engine: str) -> int:
        """Return the number of seeds of an engine."""
        return self.seeds.get(engine, self.seeds["sb3"])


def _gym(name: str) -> Callable[[], Any]:
    return lambda: gym.make(name)


def _breakout() -> Any:
    import ale_py

    gym.register_envs(ale_py)
    env = gym.make("ALE/Breakout-v5", frameskip=1, repeat_action_probability=0)
    env = gym.wrappers.AtariPreprocessing(env, terminal_on_life_loss=False, screen_size=84)
    env = gym.wrappers.FrameStackObservation(env, 4)
    box = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    return gym.wrappers.TransformObservation(env, lambda frames: np.moveaxis(frames, 0, -1), box)


def scaled(env: Any) -> Any:
    """Return an environment with images between 0 and 1, as RLlib's own net wants them; others as they are."""
    shape = env.observation_space.shape
    if len(shape) != 3:
        return env
    box = spaces.Box(0, 1, shape, np.float32)
    return gym.wrappers.TransformObservation(env, lambda image: np.asarray(image, np.float32) / 255, box)


TASKS = {
    "CartPole-v1": Task(_gym("CartPole-v1"), 22, 500, {"sb3": 20_000, "rllib": 40_000}),
    # Now and then a seed never finds the top, under any engine: ten would be too few to say how often.
    "Acrobot-v1": Task(_gym("Acrobot-v1"), -500, -75, {"sb3": 40_000, "rllib": 40_000}, {"gamma": 0.99, "lr": 1e-3},
                       {"sb3": 20, "rllib": 10}),
    "Pendulum-v1": Task(
        _gym("Pendulum-v1"), -1250, -150, {"sb3": 120_000, "rllib": 60_000},
        {"gamma": 0.9, "lr": 1e-3, "length": 256, "minibatch": 256},
    ),
    "MountainCarContinuous-v0": Task(
        _gym("MountainCarContinuous-v0"), -35, 95, {"sb3": 40_000, "rllib": 40_000},
        {"gamma": 0.99, "length": 256, "minibatch": 256},
    ),
    # With 1e-3 as learning rate, policies of all engines are at times lost again after the task is solved.
    "MiniGrid-Empty-5x5-v0": Task(minigrid, 0.2, 0.96, {"sb3": 20_000, "rllib": 20_000}),
    "InvertedPendulum-v5": Task(
        _gym("InvertedPendulum-v5"), 6, 1000, {"sb3": 40_000, "rllib": 40_000}, {"lr": 1e-3}
    ),
    # Returns go up and down between updates, under any engine: one that is looked at after a bad one counts less.
    "Catch": Task(Catch, -0.6, 1, {"sb3": 15_000, "rllib": 15_000}, {"lr": 1e-3, "gamma": 0.95},
                  {"sb3": 20, "rllib": 5}),
    "Breakout": Task(  # RLlib's own net takes more than four times as long for a step
        _breakout, 1, 400, {"sb3": 300_000, "rllib": 10_000},
        {"length": 128, "epochs": 4, "minibatch": 256, "gamma": 0.99}, {"sb3": 1, "rllib": 1}, claimed=False,
    ),
}  # fmt: skip
