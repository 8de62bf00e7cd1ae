"""Environments that `gymnasium.make` cannot create by id alone, for `make environments`.

`tools/environments.toml` names the functions. Third-party packages are imported where they are
needed, because each is installed in one group only.
"""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium
import numpy as np

Env = gymnasium.Env[Any, Any]


class OnePlayer(gymnasium.Env[Any, Any]):
    """Game of PettingZoo as its first player sees it; the other players move at random.

    Observations and action masks stay as PettingZoo has them.

    Args:
        game: The game, in PettingZoo's form for players that take turns (`AECEnv`).
    """

    def __init__(self, game: Any) -> None:
        self._game = game
        self._player = game.possible_agents[0]
        self.observation_space = game.observation_space(self._player)
        self.action_space = game.action_space(self._player)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin a game, and play until it is the player's turn.

        A game that is over before that is not shown.
        """
        super().reset(seed=seed)
        over = True
        while over:
            self._game.reset(seed=seed, options=options)
            obs, _, terminated, truncated, info = self._play_others()
            over = terminated or truncated
            seed = None  # the same seed could begin the same game for ever
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move, and play until it is the player's turn again or the game is over."""
        self._game.step(int(action))
        return self._play_others()

    def close(self) -> None:
        """Close the game."""
        self._game.close()

    def _play_others(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move for the other players, and return what the player sees then."""
        while self._game.agent_selection != self._player:
            obs, _, terminated, truncated, info = self._game.last()
            over = terminated or truncated
            self._game.step(None if over else self._random_move(obs, info))
        obs, reward, terminated, truncated, info = self._game.last()
        return obs, float(reward), terminated, truncated, info

    def _random_move(self, obs: Any, info: dict[str, Any]) -> int:
        """Return a random move that is allowed."""
        mask = obs["action_mask"] if "action_mask" in obs else info["action_mask"]
        return int(self.np_random.choice(np.flatnonzero(mask)))


class Crafter(gymnasium.Env[Any, Any]):
    """The game Crafter, which has the interface of gym before 0.26, in Gymnasium's form."""

    def __init__(self) -> None:
        self._game = self._make(seed=None)
        shape = self._game.observation_space.shape
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(int(self._game.action_space.n))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; with a seed, in a new game."""
        super().reset(seed=seed)
        if seed is not None:
            self._game = self._make(seed)
        return self._game.reset(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        obs, reward, done, info = self._game.step(action)
        dead = info["discount"] == 0
        return obs, float(reward), dead, done and not dead, info

    def _make(self, seed: int | None) -> Any:
        """Make a game."""
        import crafter

        return crafter.Env(seed=seed)


def make_board_game(game: str) -> Env:
    """Make a classic game of PettingZoo for one player."""
    return OnePlayer(importlib.import_module(f"pettingzoo.classic.{game}").env())


def make_stacked_atari(game: str) -> Env:
    """Make an Atari game with Gymnasium's preprocessing and four frames stacked."""
    import ale_py
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    gymnasium.register_envs(ale_py)
    env = gymnasium.make(f"ALE/{game}-v5", frameskip=1)
    return FrameStackObservation(AtariPreprocessing(env), 4)


def make_minigrid_image(id: str) -> Env:
    """Make a grid world of MiniGrid that shows its image alone, without the mission."""
    import minigrid
    from minigrid.wrappers import ImgObsWrapper

    gymnasium.register_envs(minigrid)
    return ImgObsWrapper(gymnasium.make(id))


def make_gray_highway(id: str) -> Env:
    """Make an environment of highway-env that shows four stacked gray images, as its guide does."""
    import highway_env

    gymnasium.register_envs(highway_env)
    observation = {
        "type": "GrayscaleObservation",
        "observation_shape": (128, 64),
        "stack_size": 4,
        "weights": [0.2989, 0.5870, 0.1140],  # red, green and blue
    }
    return gymnasium.make(id, config={"observation": observation})


def make_crafter() -> Env:
    """Make Crafter."""
    return Crafter()


def make_single_objective(id: str) -> Env:
    """Make an environment of MO-Gymnasium whose reward is the sum of its objectives."""
    import mo_gymnasium
    from mo_gymnasium.wrappers import LinearReward

    env = mo_gymnasium.make(id)
    weights = np.ones(env.unwrapped.reward_space.shape)
    return LinearReward(env, weights)


def make_trading() -> Env:
    """Make gym-trading-env's environment on 500 prices of a random walk."""
    import gym_trading_env  # noqa: F401  (registers the environment)
    import pandas as pd

    walk = np.random.default_rng(0).normal(size=500).cumsum()
    prices = 100 * np.exp(walk / 100)
    table = pd.DataFrame({"open": prices, "high": prices, "low": prices, "close": prices})
    table["feature_change"] = table["close"].pct_change().fillna(0.0)
    table.index = pd.date_range("2026-01-01", periods=len(table), freq="h")
    return gymnasium.make("TradingEnv", df=table, positions=[-1, 0, 1], verbose=0)


def make_registered(module: str, id: str) -> Env:
    """Make an environment whose package registers it in a function `register_envs`."""
    importlib.import_module(module).register_envs()
    return gymnasium.make(id)


def make_motor(id: str) -> Env:
    """Make a motor of gym-electric-motor without its dashboard."""
    import gym_electric_motor

    return gym_electric_motor.make(id)


def make_retro(game: str) -> Env:
    """Make a game whose ROM stable-retro ships."""
    import stable_retro

    return stable_retro.make(game)
