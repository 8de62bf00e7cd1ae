"""Masks in infos, in checkpoints and in evaluations from the command line."""

from __future__ import annotations

import gymnasium as gym
import pytest
from mask_places_env import Elsewhere, Placed

import rlcatalog
from rlcatalog_cli import main
from rlcatalog_ppo import PPO, checkpoints

QUICK = {"num_envs": 2, "rollout_length": 20, "minibatch_size": 20, "num_epochs": 1, "seed": 0}


def test_checkpoint_without_masks_goes_on_with_them(tmp_path):
    """Earlier versions did not read masks in infos, so their checkpoints have none."""

    def make():
        return Placed({"info": [1, 0, 1]})

    algo = PPO(make, QUICK)
    algo.train()
    state = algo.state()
    state["collector"]["mask"] = None
    checkpoints.write(tmp_path, algo.policy, state)
    resumed = PPO.restore(tmp_path, make)
    rollout = resumed._collector.collect(3)
    # The first step takes the mask from the checkpoint, where nothing was forbidden.
    assert rollout.mask[0].all()
    assert rollout.mask[1:].reshape(-1, 3).astype(int).tolist() == [[1, 0, 1]] * 4
    algo.stop()
    resumed.stop()


@pytest.mark.parametrize("file", ["policy", "policy.onnx"])
def test_command_evaluate_reads_masks(file, tmp_path, monkeypatch):
    """The environment raises at a forbidden action."""
    spec = gym.envs.registration.EnvSpec("Elsewhere-v0", Elsewhere, kwargs={"name": "dict"})
    monkeypatch.setitem(gym.registry, spec.id, spec)
    policy = rlcatalog.build(env=Elsewhere("dict"), config={"fcnet_hiddens": [8]})
    path = tmp_path / file
    if file == "policy":
        policy.save(path)
    else:
        policy.export(path)
    with pytest.raises(SystemExit) as end:
        main(["evaluate", str(path), "--env", "Elsewhere-v0", "--explore", "--quiet"])
    assert not end.value.code
