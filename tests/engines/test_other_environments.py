"""Our PPO in environments of other kinds, which adapters turn into Gymnasium's form.

Crosses: ppo, runs, envs.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from command_line import rlcatalog
from environment_makers import TorchReach
from other_environments import Pool, Spread, install_module

from rlcatalog.errors import CatalogWarning, ConfigError
from rlcatalog_envs import ParallelGames
from rlcatalog_ppo import PPO
from rlcatalog_runs.seeds import SeedStream, derive_seed

SMALL = {
    "rollout_length": 32,
    "minibatch_size": 32,
    "seed": 0,
    "framework": "torch",
    "model": {"fcnet_hiddens": [4]},
}


@pytest.fixture
def pools(monkeypatch):
    """The pools that the module envpool has made, with `envpool.make` that makes them."""
    made = []

    def make(name, env_type, **arguments):
        made.append(Pool(**arguments))
        return made[-1]

    install_module(monkeypatch, "envpool", make=make)
    return made


# --- EnvPool --------------------------------------------------------------------------------------


def test_pool_is_trained_in_all_its_environments():
    pool = Pool(num_envs=3, limit=4)

    algo = PPO(pool, SMALL)
    result = algo.train()

    assert algo.config.num_envs == 3
    # Environments 0 to 2 end after 2, 3 and 4 steps, and every step pays 1. The step after an end
    # only resets: counted, it would pay 0 and make the episodes longer.
    assert set(algo._collector.episodes.metrics()) >= {"episode_return_mean"}
    assert result["episode_return_mean"] == result["episode_len_mean"]
    assert 2 < result["episode_len_mean"] < 4
    algo.stop()
    assert not pool.is_closed  # the caller goes on with it


def test_masks_of_a_pool_are_respected():
    pool = Pool(num_envs=2, masks=True)
    algo = PPO(pool, SMALL)

    algo.train()

    # Even steps forbid action 0, except where the environment ignores the action. Environment 1
    # ends after 3 steps, so its episodes take action 1 at step 0 and at step 2.
    steps_of_first_env = [actions[0] for actions in pool.actions]
    assert steps_of_first_env[0] == 1
    assert pool.actions[0][1] == 1
    assert pool.actions[2][1] == 1
    algo.stop()


def test_id_makes_one_pool_with_the_runs_seed(pools):
    algo = PPO("envpool:Count-v1", {**SMALL, "num_envs": 5})

    algo.train()
    algo.evaluate(4)

    training, evaluation = pools
    assert training.num_envs == 5
    assert training.config["seed"] == derive_seed(0, SeedStream.ENVIRONMENTS)
    assert evaluation.num_envs == 4
    assert evaluation.config["seed"] == derive_seed(0, SeedStream.EVALUATION)
    assert evaluation.is_closed
    algo.stop()
    assert training.is_closed


def test_seed_in_the_env_config_is_kept(pools):
    config = {**SMALL, "num_envs": 2, "env_config": {"seed": 7, "num_threads": 1}}

    PPO("envpool:Count-v1", config).stop()

    assert pools[0].config["seed"] == 7
    assert pools[0].config["num_threads"] == 1


def test_pool_cannot_run_in_processes(pools):
    with pytest.raises(ConfigError, match="vector: expected 'sync'"):
        PPO("envpool:Count-v1", {**SMALL, "vector": "async"})

    assert pools[0].is_closed


def test_checkpoint_with_an_id_makes_the_pool_again(pools, tmp_path):
    algo = PPO("envpool:Count-v1", {**SMALL, "num_envs": 2})
    algo.train()
    with pytest.warns(CatalogWarning, match="does not report its state"):
        algo.save_checkpoint(tmp_path / "run")

    with pytest.warns(CatalogWarning, match="does not report its state"):
        resumed = PPO.restore(tmp_path / "run")

    assert resumed.config.num_envs == 2
    assert len(pools) == 2
    algo.stop()
    resumed.stop()


@pytest.mark.usefixtures("blank_curves")
def test_command_line_takes_the_id(pools, tmp_path):
    run = tmp_path / "run"
    options = ["--steps", "256", "--seed", "0", "--set", "num_envs=2", "--eval-every", "128"]

    training = rlcatalog("train", "envpool:Count-v1", *options, "--out", str(run))
    evaluation = rlcatalog("evaluate", str(run), "--episodes", "2", "--json")

    assert training.returncode == 0, training.stderr
    assert evaluation.returncode == 0, evaluation.stderr
    # Only the prefix tells EnvPool's environment from the one of Gymnasium.
    assert json.loads((run / "config.json").read_text())["env"] == "envpool:Count-v1"
    assert json.loads(evaluation.stdout)["lengths"] == [2, 3]
    assert all(pool.is_closed for pool in pools)


# --- PettingZoo -----------------------------------------------------------------------------------


def test_agents_of_a_game_train_one_policy():
    games = [Spread(length=3, masks=True) for _ in range(2)]
    algo = PPO(ParallelGames(games), SMALL)

    result = algo.train()

    assert algo.config.num_envs == 6
    assert result["timesteps_total"] == 6 * algo.config.rollout_length
    assert result["episode_len_mean"] == 3.0
    algo.stop()


def test_function_that_makes_a_game_is_evaluated_in_another():
    algo = PPO(lambda: Spread(length=3), {**SMALL, "num_envs": 3})

    returns = algo.evaluate(3)

    # An agent is paid ten times its number, and 0 or 1 for its action, in each of 3 steps.
    assert [value // 30 for value in returns] == [0, 1, 2]
    algo.stop()


# --- tensors --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:TorchReach returns tensors")
def test_simulator_trains_a_memory_under_its_mask():
    model = {"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 8}
    algo = PPO(TorchReach(num_envs=4), {**SMALL, "model": model})

    result = algo.train()

    assert algo.policy.memory
    assert result["timesteps_total"] == 4 * algo.config.rollout_length
    assert np.isfinite(result["info"]["learner"]["policy_loss"])
    assert 0 < result["episode_len_mean"] <= 20
    algo.stop()
