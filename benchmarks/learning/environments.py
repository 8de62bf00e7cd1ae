"""Environments of the comparison: makers of those that need wrappers, and the view that an engine
has of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlcatalog_cli import import_modules


class Catch(gym.Env[Any, Any]):
    """A ball falls through a board of 10 rows and 5 columns, and a paddle at the bottom is to be
    under it.

    After Mnih et al. (2014). Observations are images of 64 x 64 pixels; catching pays 1, missing
    -1. With 42 x 42 pixels RLlib's own net would take some twenty times as long: its last layer
    there is 11 x 11 x 32 x 256.
    """

    observation_space = spaces.Box(0, 255, (64, 64, 1), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
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


@dataclass(frozen=True)
class Registered:
    """Maker of a registered environment.

    Attributes:
        name: Its Gymnasium id.
        modules: Modules that register it when they are imported, or whose `register_envs` does.
    """

    name: str
    modules: tuple[str, ...] = ()

    def __call__(self) -> Any:
        import_modules(self.modules)
        return gym.make(self.name)


def minigrid() -> Any:
    """A room of MiniGrid's, its view as a vector between 0 and 1: neither engine's own net is made
    for 7 x 7 pixels.
    """
    from minigrid.wrappers import ImgObsWrapper

    env: Any = gym.make("MiniGrid-Empty-5x5-v0")
    env = gym.wrappers.FlattenObservation(ImgObsWrapper(env))  # type: ignore[no-untyped-call]
    box = spaces.Box(0, 1, env.observation_space.shape, np.float32)
    return gym.wrappers.TransformObservation(env, lambda obs: np.asarray(obs, np.float32) / 10, box)


def minigrid_dict() -> Any:
    """Return MiniGrid-Empty-Random-5x5 with its image and direction as they are, without the
    mission.

    Stable-Baselines3 supports no text. The mission is one sentence here, the same in every episode.
    """
    import minigrid  # noqa: F401  registers

    env = gym.make("MiniGrid-Empty-Random-5x5-v0")
    inner: Any = env.observation_space
    parts = {name: inner[name] for name in ("image", "direction")}
    return gym.wrappers.TransformObservation(
        env, lambda obs: {name: obs[name] for name in parts}, spaces.Dict(parts)
    )


def minigrid_numbers() -> Any:
    """Return `minigrid_dict` with the image as plain numbers, which MultiInputPolicy flattens.

    As an image it would go to a NatureCNN, whose first kernel of 8 x 8 does not fit into 7 x 7.
    """
    env = minigrid_dict()
    parts = dict(env.observation_space.spaces)
    parts["image"] = spaces.Box(0, 255, parts["image"].shape, np.float32)
    return gym.wrappers.TransformObservation(
        env, lambda obs: {**obs, "image": obs["image"].astype(np.float32)}, spaces.Dict(parts)
    )


def breakout() -> Any:
    """Return Breakout of the Arcade Learning Environment, with the usual preprocessing."""
    import ale_py

    gym.register_envs(ale_py)
    env = gym.make("ALE/Breakout-v5", frameskip=1, repeat_action_probability=0)
    env = gym.wrappers.AtariPreprocessing(env, terminal_on_life_loss=False, screen_size=84)
    env = gym.wrappers.FrameStackObservation(env, 4)
    box = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    return gym.wrappers.TransformObservation(env, lambda frames: np.moveaxis(frames, 0, -1), box)


def masked() -> Any:
    """Return the masked environment of sb3-contrib's documentation, which draws from its own
    generator.

    sb3-contrib's draws from global generators, so equal seeds would not give equal episodes.
    """
    from sb3_contrib.common.envs import InvalidActionEnvDiscrete

    class Seeded(InvalidActionEnvDiscrete):
        def _choose_next_state(self) -> None:
            self.state = int(self.np_random.integers(len(self.possible_actions)))
            others = self.possible_actions[self.possible_actions != self.state]
            self.invalid_actions = self.np_random.choice(
                others, self.n_invalid_actions, replace=False
            ).tolist()

    return Seeded(dim=80, n_invalid_actions=60)


class MaskInObservation(gym.Wrapper[Any, Any, Any, Any]):
    """Wrapper that adds `action_masks()` to the observation: `{"obs": …, "action_mask": …}`."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        mask = spaces.MultiBinary(int(env.action_space.n))  # type: ignore[attr-defined]
        self.observation_space = spaces.Dict({"obs": env.observation_space, "action_mask": mask})

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**options)
        return self._with_mask(obs), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, *rest = self.env.step(action)
        return self._with_mask(obs), *rest  # type: ignore[return-value]

    def _with_mask(self, obs: Any) -> dict[str, Any]:
        return {
            "obs": obs,
            "action_mask": np.array(self.env.get_wrapper_attr("action_masks")(), np.int8),
        }


def scaled(env: Any) -> Any:
    """Return an environment with images between 0 and 1, as RLlib's own net wants them; others as
    they are.
    """
    shape = env.observation_space.shape
    if shape is None or len(shape) != 3:
        return env
    box = spaces.Box(0, 1, shape, np.float32)
    return gym.wrappers.TransformObservation(
        env, lambda image: np.asarray(image, np.float32) / 255, box
    )
