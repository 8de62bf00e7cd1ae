"""What the tests of the Atari package share: games, and what an emulator says about itself."""

from __future__ import annotations

from collections import defaultdict

import ale_py
import gymnasium
import pytest

import rlcatalog

gymnasium.register_envs(ale_py)


@pytest.fixture(scope="module")
def games():
    """Games that no test uses, by what they were made with: to load one takes as long as a short
    test.
    """
    return defaultdict(list)


@pytest.fixture
def wrapped(games):
    """Wrap a game that no other env of the test has: `wrapped(id, config, **kwargs of the
    environment)`.
    """
    lent = []

    def make(env_id, config=None, **kwargs):
        key = (env_id, *sorted(kwargs.items()))
        game = games[key].pop() if games[key] else gymnasium.make(env_id, **kwargs)
        lent.append((key, game))
        return rlcatalog.wrap_env(game, config)

    yield make
    for key, game in lent:
        games[key].append(game)


@pytest.fixture
def layers():
    """Name the wrappers around an environment, the outermost first, gymnasium's own
    two left out.
    """

    def names(env):
        found = []
        while env is not env.unwrapped:
            found.append(type(env).__name__)
            env = env.env
        return [name for name in found if name not in ("OrderEnforcing", "PassiveEnvChecker")]

    return names
