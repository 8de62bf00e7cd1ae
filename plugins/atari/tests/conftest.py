"""What the tests of the Atari package share: games, and what an emulator says about itself."""

from __future__ import annotations

import ale_py
import gymnasium
import pytest

import rlcatalog

gymnasium.register_envs(ale_py)


@pytest.fixture
def wrapped():
    """Make a wrapped game: `wrapped(id, config, **kwargs of the environment)`."""

    def make(env_id, config=None, **kwargs):
        return rlcatalog.wrap_env(gymnasium.make(env_id, **kwargs), config)

    return make


@pytest.fixture
def layers():
    """Name the wrappers around an environment, the outermost first, gymnasium's own two left out."""

    def names(env):
        found = []
        while env is not env.unwrapped:
            found.append(type(env).__name__)
            env = env.env
        return [name for name in found if name not in ("OrderEnforcing", "PassiveEnvChecker")]

    return names
