"""Atari games for the tests: making, reusing and inspecting them."""

from __future__ import annotations

from collections import defaultdict

import ale_py
import gymnasium
import pytest

import rlcatalog

gymnasium.register_envs(ale_py)


@pytest.fixture(scope="module")
def unused_games():
    """Games that no test uses at the moment, by their id and arguments."""
    return defaultdict(list)


@pytest.fixture
def wrap_game(unused_games):
    """Make a game and wrap it: `wrap_game("ALE/Pong-v5", config, obs_type="ram")`.

    Games are used again by later tests, because to load one takes as long as a short test.
    """
    used = []

    def make(env_id, config=None, **kwargs):
        key = (env_id, *sorted(kwargs.items()))
        if unused_games[key]:
            game = unused_games[key].pop()
        else:
            game = gymnasium.make(env_id, **kwargs)
        used.append((key, game))
        return rlcatalog.wrap_env(game, config)

    yield make
    for key, game in used:
        unused_games[key].append(game)


@pytest.fixture
def list_wrappers():
    """Return the names of the wrappers around an environment, without those of gymnasium.make."""

    def names(env):
        wrappers = []
        while env is not env.unwrapped:
            wrappers.append(type(env).__name__)
            env = env.env
        return [name for name in wrappers if name not in ("OrderEnforcing", "PassiveEnvChecker")]

    return names
