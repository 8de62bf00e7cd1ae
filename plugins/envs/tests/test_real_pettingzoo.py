"""The adapter for PettingZoo with real games, in the group `agents` of `make environments`."""

from __future__ import annotations

import numpy as np
import pytest

from rlcatalog.catalog import make_env
from rlcatalog.errors import NotServedError
from rlcatalog_envs import ParallelGames

mpe2 = pytest.importorskip("mpe2", reason="mpe2 is not installed")


def make_spread():
    from mpe2 import simple_spread_v3

    return simple_spread_v3.parallel_env()


def test_rows_are_what_the_game_returns():
    game = make_spread()
    envs = make_env(make_spread())
    expected, _ = game.reset(seed=3)

    obs, _ = envs.reset(seed=3)
    np.testing.assert_array_equal(obs, [expected[agent] for agent in game.possible_agents])

    actions = np.array([1, 2, 3])
    for _ in range(25):  # the length of a game
        next_expected, rewards, _, truncations, _ = game.step(
            dict(zip(game.possible_agents, actions, strict=True))
        )
        obs, reward, terminated, truncated, infos = envs.step(actions)
        np.testing.assert_array_equal(reward, [rewards[name] for name in game.possible_agents])
    assert truncated.all()
    assert all(truncations.values())
    assert not terminated.any()
    last = [next_expected[agent] for agent in game.possible_agents]
    np.testing.assert_array_equal([*infos["final_obs"]], last)


def test_game_with_different_agents_is_refused():
    from mpe2 import simple_tag_v3

    with pytest.raises(NotServedError, match="share one policy"):
        make_env(simple_tag_v3.parallel_env())


def test_games_with_turns_are_refused():
    from mpe2 import simple_spread_v3

    with pytest.raises(NotServedError, match="take turns"):
        make_env(simple_spread_v3.env())


def test_several_games_step_together():
    envs = ParallelGames([make_spread() for _ in range(2)])

    obs, _ = envs.reset(seed=0)

    assert obs.shape == (6, 18)
    assert not np.array_equal(obs[:3], obs[3:])
