"""The adapter for EnvPool with the real package, in the group `envpool` of `make environments`."""

from __future__ import annotations

import numpy as np
import pytest

from rlcatalog.catalog import make_env
from rlcatalog_ppo import PPO

envpool = pytest.importorskip("envpool", reason="envpool is not installed")

#: Gymnasium's remarks on the bounds of EnvPool's spaces.
pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered:UserWarning")


def test_reset_of_some_environments_goes_on():
    envs = make_env("envpool:CartPole-v1", {"num_envs": 3, "seed": 0})
    envs.reset()
    actions = np.ones(3, np.int64)
    obs_before, *_ = envs.step(actions)
    rows = np.array([True, False, True])

    obs, infos = envs.reset(options={"reset_mask": rows})
    _, _, _, _, next_infos = envs.step(actions)

    np.testing.assert_array_equal(obs[1], obs_before[1])
    assert (obs[rows] != obs_before[rows]).any(1).all()
    np.testing.assert_array_equal(infos["elapsed_step"], [0, 0, 0])
    np.testing.assert_array_equal(next_infos["elapsed_step"], [1, 2, 1])
    envs.close()


def test_observations_are_in_the_mended_space():
    envs = make_env("envpool:CartpoleSwingup-v1", {"num_envs": 2})

    obs, _ = envs.reset()

    assert np.isneginf(envs.single_observation_space["position"].low).all()
    assert envs.observation_space.contains(obs)
    envs.close()


@pytest.mark.parametrize("seed", [0, 1])
def test_runs_with_one_seed_are_equal(seed):
    config = {"num_envs": 4, "rollout_length": 64, "minibatch_size": 64, "seed": seed}
    results = []
    for _ in range(2):
        algo = PPO("envpool:CartPole-v1", config)
        results.append([algo.train()["episode_return_mean"], *algo.evaluate(4)])
        results[-1].extend(algo.evaluate(4))  # plays the same episodes
        algo.stop()

    assert results[0] == results[1]
    assert results[0][1:5] == results[0][5:]


def test_image_is_read_as_channels_first():
    config = {"num_envs": 2, "rollout_length": 8, "minibatch_size": 8}

    algo = PPO("envpool:Pong-v5", config)

    assert algo.policy.config["image_layout"] == "chw"
    algo.train()
    algo.stop()


def test_masks_in_infos_are_respected():
    config = {"num_envs": 4, "rollout_length": 64, "minibatch_size": 64, "seed": 0}
    algo = PPO("envpool:Play2048-v1", config)

    algo.train()

    assert algo._collector._env_masks.columns.shape == (4, 4)
    assert not algo._collector._env_masks.columns.all()  # some move is impossible
    algo.stop()
