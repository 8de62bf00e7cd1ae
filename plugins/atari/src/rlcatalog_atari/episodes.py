"""Wrappers that decide where episodes of Atari games begin and end."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Array

#: Joystick positions for continuous Atari actions: radius, angle, button.
_JOYSTICK = {"NOOP": (0.0, 0.0, 0.0), "FIRE": (0.0, 0.0, 1.0)}

_Wrapper = gymnasium.Wrapper[Any, Any, Any, Any]


def action_of(env: gymnasium.Env[Any, Any], meaning: str) -> Any:
    """Return an Atari environment's action `"NOOP"` or `"FIRE"`: its index, or the position of the
    joystick in a continuous game; None if there is no such action.

    Args:
        env: The environment. If a wrapper has changed the action space, the actions' meanings are
            unknown.
        meaning: Name of the action.
    """
    game: Any = env.unwrapped
    if env.action_space != game.action_space:  # changed by a wrapper
        return None
    if game.continuous:
        return np.array(_JOYSTICK[meaning], np.float32)
    meanings = game.get_action_meanings()
    if meaning not in meanings:
        return None
    return meanings.index(meaning)


class FireOnReset(_Wrapper, RecordConstructorArgs):
    """Wrapper that presses FIRE once after each reset, because games such as Breakout do not start
    on their own.

    The wrapper discards the reward for this press. If the press ends the game, the next game starts
    without a press.

    Args:
        env: An Atari environment that has the action FIRE.

    Raises:
        NotServedError: The environment has no such action.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self._fire = _find_action(env, "FIRE", type(self).__name__)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        _, info = self.env.reset(seed=seed, options=options)
        obs, _, terminated, truncated, after = self.env.step(self._fire)
        if terminated or truncated:
            return self.env.reset(options=options)
        return obs, {**info, **after}

    def get_state(self) -> None:
        """Return the wrapper's state, which is empty, for resuming a run (see
        `rlcatalog train --resume`).
        """

    def set_state(self, state: None) -> None:
        """Do nothing."""


class TerminalOnLifeLoss(_Wrapper, RecordConstructorArgs):
    """Wrapper that ends the episode when a life is lost; the next reset continues the same game.

    That reset takes one no-op step and discards the reward for it. A new game starts after game
    over, when a seed is given, or when `reset` does not follow a lost life. (With
    `terminal_on_life_loss`, Gymnasium's AtariPreprocessing starts a new game after each lost life,
    so an agent only ever sees the first life.)

    Args:
        env: An Atari environment.

    Raises:
        NotServedError: A wrapper has changed the environment's actions, so the index of the no-op
            is unknown.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self._noop = _find_action(env, "NOOP", type(self).__name__)
        self._lives = 0
        #: Whether the last episode ended with a lost life, so that its game can continue.
        self._game_continues = False

    def step(self, action: int | Array) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        lives = self._count_lives()
        is_over = terminated or truncated
        # Some games show 0 lives for a few frames before they are over; the game itself then ends
        # the episode.
        self._game_continues = 0 < lives < self._lives and not is_over
        self._lives = lives
        return obs, reward, terminated or self._game_continues, truncated, info

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        first_step = None
        if self._game_continues and seed is None:
            first_step = self._continue_game()
        if first_step is None:  # no game continues, or its first step ended it
            first_step = self.env.reset(seed=seed, options=options)
        self._lives = self._count_lives()
        self._game_continues = False
        return first_step

    def get_state(self) -> dict[str, Any]:
        """Return the wrapper's state, for resuming a run (see `rlcatalog train --resume`)."""
        return {"lives": self._lives, "goes_on": self._game_continues}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state that `get_state` returned."""
        self._lives = state["lives"]
        self._game_continues = state["goes_on"]

    def _continue_game(self) -> tuple[Any, dict[str, Any]] | None:
        """Take one step with the no-op action (NOOP). Return None if the step ends the game."""
        obs, _, terminated, truncated, info = self.env.step(self._noop)
        if terminated or truncated:
            return None
        return obs, info

    def _count_lives(self) -> int:
        game: Any = self.env.unwrapped
        return int(game.ale.lives())


def _find_action(env: gymnasium.Env[Any, Any], meaning: str, who: str) -> Any:
    """Return the action that `action_of` returns; raise an error that names the wrapper `who` if
    there is none.
    """
    action = action_of(env, meaning)
    if action is None:
        raise NotServedError(
            f"{who} needs the action {meaning}, but {env} has the action space {env.action_space},"
            " in which its index is unknown. Apply this wrapper before the wrapper that changes"
            " the actions."
        )
    return action
