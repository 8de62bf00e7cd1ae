"""Action masks in infos: in resumed runs, and in evaluations from the command line."""

from __future__ import annotations

import gymnasium as gym
import pytest
from mask_places_env import Elsewhere, Placed

import rlcatalog
from rlcatalog_cli import main
from rlcatalog_ppo import PPO, checkpoints

SMALL = {"num_envs": 2, "rollout_length": 20, "minibatch_size": 20, "num_epochs": 1, "seed": 0}


def make_env():
    """Return an environment whose infos forbid the second of three actions."""
    return Placed({"info": [1, 0, 1]})


def test_run_without_masks_resumes_with_masks_from_infos(tmp_path):
    """Earlier versions did not read masks in infos, so their checkpoints have none."""
    algo = PPO(make_env, SMALL)
    algo.train()
    state = algo.state()
    state["collector"]["mask"] = None
    checkpoints.write(tmp_path, algo.policy, state)
    algo.stop()

    resumed = PPO.restore(tmp_path, make_env)
    rollout = resumed._collector.collect(3)
    resumed.stop()

    # The first step takes its mask from the checkpoint, where nothing was forbidden.
    assert rollout.mask[0].all()
    later_masks = rollout.mask[1:].astype(int).tolist()
    assert later_masks == [[[1, 0, 1], [1, 0, 1]], [[1, 0, 1], [1, 0, 1]]]


@pytest.fixture
def masked_id(monkeypatch):
    """The id of an environment with masks in its infos, which raises at a forbidden action."""
    spec = gym.envs.registration.EnvSpec("Masked-v0", Elsewhere, kwargs={"name": "dict"})
    monkeypatch.setitem(gym.registry, spec.id, spec)
    return spec.id


@pytest.mark.parametrize("form", ["saved", "exported"])
def test_evaluate_command_reads_masks(form, masked_id, tmp_path):
    """The environment raises an error at a forbidden action."""
    policy = rlcatalog.build(env=Elsewhere("dict"), config={"fcnet_hiddens": [8]})
    if form == "saved":
        path = tmp_path / "policy"
        policy.save(path)
    else:
        path = tmp_path / "policy.onnx"
        policy.export(path)

    with pytest.raises(SystemExit) as exit_info:
        main(["evaluate", str(path), "--env", masked_id, "--explore", "--quiet"])

    assert not exit_info.value.code
