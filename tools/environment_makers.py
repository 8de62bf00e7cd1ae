"""Environments that `gymnasium.make` cannot create by id alone, for `make environments`.

`tools/environments.toml` names the functions. Third-party packages are imported where they are
needed, because each is installed in one group only.
"""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

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


class TorchCartPole:
    """CartPole as a simulator on a GPU has it: many environments in tensors.

    An environment is reset in the step that ends its episode, and its last observation is not
    returned.

    Args:
        num_envs: Number of environments.
        device: Device of the tensors.
    """

    single_observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    single_action_space = spaces.Discrete(2)

    def __init__(self, num_envs: int, device: str = "cpu") -> None:
        self.num_envs = num_envs
        self.device = torch.device(device)
        self._state = torch.zeros(num_envs, 4, device=self.device)
        self._steps = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        self._generator = torch.Generator(self.device)

    def reset(self, *, seed: int | None = None) -> tuple[torch.Tensor, dict[str, Any]]:
        """Begin all episodes."""
        if seed is not None:
            self._generator.manual_seed(seed)
        everywhere = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        self._begin(everywhere)
        return self._state, {}

    def step(
        self, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Take a step of 0.02 seconds, with the equations of Gymnasium."""
        _, velocity, angle, spin = self._state.unbind(1)
        force = torch.where(actions == 1, 10.0, -10.0)
        sin, cos = angle.sin(), angle.cos()
        push = (force + 0.05 * spin.square() * sin) / 1.1
        angular = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos.square() / 1.1))
        linear = push - 0.05 * angular * cos / 1.1
        derivative = torch.stack([velocity, linear, spin, angular], 1)
        self._state = self._state + 0.02 * derivative
        self._steps = self._steps + 1
        terminated = (self._state[:, 0].abs() > 2.4) | (self._state[:, 2].abs() > 0.2095)
        truncated = self._steps >= 500
        reward = torch.ones(self.num_envs, device=self.device)
        self._begin(terminated | truncated)
        return self._state, reward, terminated, truncated, {}

    def _begin(self, rows: torch.Tensor) -> None:
        """Begin episodes in some rows, booleans `[N]`."""
        drawn = torch.rand(self.num_envs, 4, generator=self._generator, device=self.device)
        self._state = torch.where(rows[:, None], 0.1 * drawn - 0.05, self._state)
        self._steps = torch.where(rows, 0, self._steps)


class TorchReach:
    """Walk to a target on a board of 5 x 5 fields that is shown in the first step only.

    Moves off the board are masked. As in ManiSkill, the observation before a reset is in
    `final_observation`.

    Args:
        num_envs: Number of environments.
        device: Device of the tensors.
    """

    single_observation_space = spaces.Dict(
        {
            "action_mask": spaces.MultiBinary(4),
            "position": spaces.Box(0, 4, (2,), np.float32),
            "target": spaces.Box(-1, 4, (2,), np.float32),
        }
    )
    single_action_space = spaces.Discrete(4)

    def __init__(self, num_envs: int, device: str = "cpu") -> None:
        self.num_envs = num_envs
        self.device = torch.device(device)
        self._moves = torch.tensor(
            [[1, 0], [-1, 0], [0, 1], [0, -1]], dtype=torch.float32, device=self.device
        )
        self._position = torch.zeros(num_envs, 2, device=self.device)
        self._target = torch.zeros(num_envs, 2, device=self.device)
        self._steps = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        self._generator = torch.Generator(self.device)

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Begin all episodes."""
        if seed is not None:
            self._generator.manual_seed(seed)
        everywhere = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        self._begin(everywhere)
        return self._observe(), {}

    def step(
        self, actions: torch.Tensor
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Take a step; reaching the target ends the episode, and so do 20 steps."""
        self._position = (self._position + self._moves[actions]).clamp(0, 4)
        self._steps = self._steps + 1
        terminated = (self._position == self._target).all(1)
        truncated = (self._steps >= 20) & ~terminated
        reward = terminated.float()
        infos = {"final_observation": self._observe()}
        self._begin(terminated | truncated)
        return self._observe(), reward, terminated, truncated, infos

    def _begin(self, rows: torch.Tensor) -> None:
        """Begin episodes in some rows, booleans `[N]`."""
        drawn = torch.randint(
            0, 5, (self.num_envs, 4), generator=self._generator, device=self.device
        ).float()
        self._position = torch.where(rows[:, None], drawn[:, :2], self._position)
        self._target = torch.where(rows[:, None], drawn[:, 2:], self._target)
        self._steps = torch.where(rows, 0, self._steps)

    def _observe(self) -> dict[str, torch.Tensor]:
        """Return the observations of all environments."""
        after = self._position[:, None] + self._moves
        is_on_board = ((after >= 0) & (after <= 4)).all(2)
        is_first = (self._steps == 0)[:, None]
        return {
            "action_mask": is_on_board,
            "position": self._position,
            "target": torch.where(is_first, self._target, -1.0),
        }


def make_torch_cartpole(num_envs: int) -> Any:
    """Make CartPole in tensors."""
    return TorchCartPole(num_envs)


def make_torch_reach(num_envs: int) -> Any:
    """Make the reach task in tensors."""
    return TorchReach(num_envs)


def make_parallel_game(game: str) -> Any:
    """Make a parallel game of mpe2, in the form of PettingZoo."""
    return importlib.import_module(f"mpe2.{game}").parallel_env()


def make_parallel_games(game: str, count: int) -> Any:
    """Make several games of mpe2 as one vector environment."""
    from rlcatalog_envs import ParallelGames

    return ParallelGames([make_parallel_game(game) for _ in range(count)])


def make_dm_control(domain: str, task: str) -> Any:
    """Make a task of dm_control, in its own form."""
    from dm_control import suite

    return suite.load(domain, task)


def make_bsuite(id: str) -> Any:
    """Make an experiment of bsuite, in its own form."""
    import bsuite

    return bsuite.load_from_id(id)


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
