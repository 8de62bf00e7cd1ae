"""Saves keep the defaults of the version that wrote them.

`saved_defaults` beside this file holds checkpoints, saved policies and exported files of both
frameworks, and what each policy did. `make_defaults.py` wrote them at commit ba7aa046. Their model
configs leave the following to that version's defaults, so whatever loads them must still know them:

- visionnet divides uint8 images by 255, whatever their bounds; fcnet reads uint8 as it is.
- The channels of an image are its last axis. An observation of rank 4 is flattened.
- MeanStdFilter normalises images, pixel by pixel.
- Actions are clipped to their bounds.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from default_cases import CASES

import rlcatalog
from rlcatalog_ppo import PPO

HERE = Path(__file__).parent
FOLDERS = sorted(path.parent for path in HERE.glob("saved_defaults/*/acts.json"))
#: Not every case has a file in the format of its framework, because these files are large.
PROGRAMS = sorted(HERE.glob("saved_defaults/*/policy.pt2"))
SAVED_MODELS = sorted(HERE.glob("saved_defaults/*/policy-savedmodel"))
#: Metrics that differ from run to run.
TIMES = ("time_total_s", "steps_per_second")
NEEDS_EXPORT = "needs rlcatalog-export, which is not installed here"

each_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def find_case(folder):
    """Return the case that a folder, such as `image-torch`, was written for."""
    return CASES[folder.name.rpartition("-")[0]]


def read_acts(folder):
    """Return what the policy did when it was saved."""
    return json.loads((folder / "acts.json").read_text(encoding="utf-8"))


def check_steps(actor, folder):
    """Let a policy or an actor act, and compare each step with what the policy did."""
    state = None
    for expected in read_acts(folder)["steps"]:
        obs = find_case(folder).draw_observations(expected["obs_seed"])
        step = actor.act(obs, state, prev_reward=expected["prev_reward"], explore=False)
        state = step.state
        for name in ("action", "raw_action", "logp", "value", "dist_inputs"):
            np.testing.assert_allclose(
                getattr(step, name), expected[name], rtol=1e-4, atol=1e-5, err_msg=name
            )


def check_metrics(metrics, expected):
    """Compare the metrics of a training iteration with those that the first run had there."""
    for name in expected.keys() - {"info", *TIMES}:
        assert metrics[name] == pytest.approx(expected[name], rel=1e-4), name
    learned, expected_learned = metrics["info"]["learner"], expected["info"]["learner"]
    for name in expected_learned:
        # Processors round in different ways, and each update repeats what the last one rounded.
        # The policy's loss and the divergence are near 0, as differences of nearly equal numbers.
        number = pytest.approx(expected_learned[name], rel=1e-3, abs=1e-4)
        assert learned[name] == number, name


def test_saved_defaults_are_there_in_both_frameworks():
    names = {f"{case}-{framework}" for case in CASES for framework in ("torch", "tf")}
    assert {folder.name for folder in FOLDERS} == names
    assert len(PROGRAMS) == len(SAVED_MODELS) == 5


@each_folder
def test_saved_defaults_tell_observations_apart(folder):
    dist_inputs = [step["dist_inputs"] for step in read_acts(folder)["steps"]]
    ranges = np.ptp(np.concatenate(dist_inputs), axis=0)
    assert ranges.min() > 0.1


@each_folder
def test_saved_policy_keeps_its_defaults(folder):
    check_steps(rlcatalog.load(folder / "checkpoint/policy"), folder)


@each_folder
def test_checkpoint_keeps_its_defaults(folder):
    algo = PPO.restore(folder / "checkpoint", find_case(folder).make_env)
    check_steps(algo.policy, folder)
    check_metrics(algo.train(), read_acts(folder)["metrics"])
    algo.stop()


@each_folder
def test_onnx_file_keeps_its_defaults(folder):
    pytest.importorskip("onnxruntime", reason=NEEDS_EXPORT)
    check_steps(rlcatalog.Actor(folder / "policy.onnx"), folder)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.parent.name)
def test_pt2_file_keeps_its_defaults(path):
    pytest.importorskip("rlcatalog_export", reason=NEEDS_EXPORT)
    check_steps(rlcatalog.Actor(path), path.parent)


@pytest.mark.parametrize("path", SAVED_MODELS, ids=lambda path: path.parent.name)
def test_saved_model_keeps_its_defaults(path):
    pytest.importorskip("rlcatalog_export", reason=NEEDS_EXPORT)
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    check_steps(rlcatalog.Actor(path), path.parent)
