"""Action masks in infos: in resumed runs, and in evaluations from the command line."""

from __future__ import annotations

import gymnasium as gym
import pytest
from mask_places_env import Elsewhere, Placed

import rlcatalog
from rlcatalog_cli import main
from rlcatalog_ppo import PPO, checkpoints

TWO_ENVS = {"num_envs": 2, "rollout_length": 20, "minibatch_size": 20, "num_epochs": 1, "seed": 0}


def make_env_without_action_1():
    """Return an environment whose infos forbid the second of three actions."""
    return Placed({"info": [1, 0, 1]})


def test_run_without_masks_resumes_with_masks_from_infos(tmp_path):
    algo = PPO(make_env_without_action_1, TWO_ENVS)
    algo.train()
    state = algo.state()
    # Earlier versions did not read masks in infos, so their checkpoints have none.
    state["collector"]["mask"] = None
    checkpoints.write(tmp_path, algo.policy, state)
    algo.stop()

    resumed = PPO.restore(tmp_path, make_env_without_action_1)
    masks = resumed._collector.collect(3).mask  # of three steps in both environments
    resumed.stop()

    # No mask was saved for the first step, so all actions are allowed in it.
    assert masks[0].tolist() == [[True, True, True], [True, True, True]]
    assert masks[1].tolist() == [[True, False, True], [True, False, True]]
    assert masks[2].tolist() == [[True, False, True], [True, False, True]]


@pytest.fixture
def masked_env(monkeypatch):
    """The id of an environment with masks in its infos, which raises at a forbidden action."""
    spec = gym.envs.registration.EnvSpec("Masked-v0", Elsewhere, kwargs={"name": "dict"})
    monkeypatch.setitem(gym.registry, spec.id, spec)
    return spec.id


@pytest.mark.parametrize("file", ["policy", "policy.onnx"], ids=["saved", "exported"])
def test_evaluate_command_reads_masks_in_infos(file, masked_env, tmp_path):
    policy = rlcatalog.build(env=gym.make(masked_env), config={"fcnet_hiddens": [8]})
    path = tmp_path / file
    if file == "policy":
        policy.save(path)
    else:
        policy.export(path)

    # The environment raises an error at a forbidden action.
    with pytest.raises(SystemExit) as exit_info:
        main(["evaluate", str(path), "--env", masked_env, "--explore", "--quiet"])

    assert not exit_info.value.code
