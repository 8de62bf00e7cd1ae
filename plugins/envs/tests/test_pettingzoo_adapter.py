"""Parallel games of PettingZoo: a row for each agent, which share one policy."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from other_environments import Spread, TurnBased

import rlcatalog
from rlcatalog.catalog import count_envs, make_env
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog_envs import ParallelGames

NO_ACTIONS = np.zeros(3, np.int64)


def test_agents_have_a_row_each():
    envs = make_env(Spread())

    obs, _ = envs.reset(seed=0)

    assert count_envs(envs) == 3
    np.testing.assert_array_equal(obs[:, 0], [0, 1, 2])  # their numbers
    assert make_env(envs) is envs


def test_build_and_explain_take_the_agents_spaces():
    policy = rlcatalog.build(env=Spread(), config={"fcnet_hiddens": [4]})

    assert policy.observation_space.shape == (3,)
    assert rlcatalog.explain(env=Spread()).env == "spread_v0"


def test_rewards_and_actions_belong_to_their_rows():
    envs = make_env(Spread())
    envs.reset(seed=0)

    _, rewards, _, _, _ = envs.step(np.array([1, 0, 1]))

    np.testing.assert_array_equal(rewards, [1, 10, 21])


def test_game_begins_anew_in_the_step_that_ends_it():
    envs = make_env(Spread(length=2))
    first_obs, _ = envs.reset(seed=0)
    envs.step(NO_ACTIONS)

    obs, _, terminated, truncated, infos = envs.step(NO_ACTIONS)

    assert envs.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    assert not terminated.any()
    assert truncated.all()
    np.testing.assert_array_equal(obs[:, 1], [0, 0, 0])  # the first step of the next game
    assert obs[0, 2] != first_obs[0, 2]  # which draws another number
    np.testing.assert_array_equal([final[1] for final in infos["final_obs"]], [2, 2, 2])
    assert infos["_final_obs"].all()


def test_observations_are_new_arrays():
    envs = make_env(Spread())
    obs, _ = envs.reset(seed=0)

    envs.step(NO_ACTIONS)

    np.testing.assert_array_equal(obs[:, 1], [0, 0, 0])


def test_masks_in_infos_become_rows():
    envs = make_env(Spread(masks=True))
    _, infos = envs.reset(seed=0)
    _, _, _, _, next_infos = envs.step(np.array([1, 0, 1]))

    np.testing.assert_array_equal(infos["action_mask"], np.ones((3, 2)))
    np.testing.assert_array_equal(next_infos["action_mask"], [[1, 0], [0, 1], [1, 0]])
    assert next_infos["_action_mask"].all()


def test_several_games_are_one_vector_environment():
    games = [Spread(length=2), Spread(length=3)]
    envs = ParallelGames(games)
    envs.reset(seed=5)
    actions = np.array([0, 0, 0, 1, 1, 1])

    envs.step(actions)
    _, rewards, _, truncated, infos = envs.step(actions)

    assert envs.num_envs == 6
    np.testing.assert_array_equal(rewards, [0, 10, 20, 1, 11, 21])
    np.testing.assert_array_equal(truncated, [True] * 3 + [False] * 3)
    assert [final is not None for final in infos["final_obs"]] == [True] * 3 + [False] * 3


def test_seed_reaches_the_first_game_and_others_differ():
    games = [Spread(), Spread()]

    ParallelGames(games).reset(seed=5)

    assert games[0].seeds == [5]
    assert games[1].seeds[0] not in (None, 5)


@pytest.mark.parametrize(
    ("game", "problem"),
    [
        pytest.param(
            Spread(other_space=spaces.Discrete(2)),
            r"agent 'agent_2' has the observation space .* RLlib",
            id="other-spaces",
        ),
        pytest.param(TurnBased(), "take turns", id="turns"),
    ],
)
def test_game_whose_agents_cannot_share_rows_is_refused(game, problem):
    with pytest.raises(NotServedError, match=problem):
        make_env(game)


def test_agent_that_leaves_early_is_refused():
    envs = make_env(Spread(leaves=1))
    envs.reset(seed=0)

    with pytest.raises(NotServedError, match=r"'agent_2' left .*supersuit\.black_death_v3"):
        envs.step(NO_ACTIONS)


def test_reset_of_some_rows_is_refused():
    envs = make_env(Spread())
    envs.reset(seed=0)

    with pytest.raises(ConfigError, match="agents of a game begin together"):
        envs.reset(options={"reset_mask": np.array([True, False, False])})


def test_empty_list_of_games_is_refused():
    with pytest.raises(NotServedError, match="at least one game"):
        ParallelGames([])


def test_closing_closes_the_games():
    games = [Spread(), Spread()]

    ParallelGames(games).close()

    assert all(game.is_closed for game in games)
