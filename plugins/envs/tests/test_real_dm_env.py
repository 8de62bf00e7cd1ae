"""dm_control and bsuite with the real packages, in the group `robots` of `make environments`."""

from __future__ import annotations

import numpy as np
import pytest

from rlcatalog.catalog import make_env
from rlcatalog_ppo import PPO

pytest.importorskip("shimmy", reason="shimmy is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")  # the packages' own

SMALL = {"num_envs": 2, "rollout_length": 64, "minibatch_size": 64, "seed": 0}


@pytest.mark.parametrize(
    ("env_id", "env_config", "model"),
    [
        ("shimmy:bsuite/catch-v0", {}, {}),
        ("shimmy:bsuite/memory_len-v0", {"memory_length": 5}, {"use_lstm": True}),
        ("shimmy:dm_control/cartpole-swingup-v0", {}, {}),
    ],
)
def test_resumed_run_equals_an_uninterrupted_one(env_id, env_config, model, tmp_path):
    uninterrupted = PPO(env_id, {**SMALL, "env_config": env_config, "model": model})
    uninterrupted.train()
    uninterrupted.save_checkpoint(tmp_path / "run")
    uninterrupted.train()

    resumed = PPO.restore(tmp_path / "run")  # also sets PyTorch's generator
    resumed.train()

    assert resumed.new_episode_reasons == {}
    for name, weights in uninterrupted.policy.model.state_dict().items():
        np.testing.assert_array_equal(resumed.policy.model.state_dict()[name], weights)
    uninterrupted.stop()
    resumed.stop()


def test_objects_with_the_interface_are_adapted():
    suite = pytest.importorskip("dm_control.suite")
    bsuite = pytest.importorskip("bsuite")

    for env in (suite.load("cartpole", "swingup"), bsuite.load_from_id("catch/0")):
        adapted = make_env(env)
        obs, _ = adapted.reset(seed=0)
        adapted.step(adapted.action_space.sample())
        assert adapted.observation_space.contains(obs)
