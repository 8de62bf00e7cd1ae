"""Policies that an earlier version saved act as they did.

`saved_policies` beside this file contains policies of both frameworks, as rlcatalog 0.1.0 saved
them, and in `acts.json` what each did in five steps of two episodes, without exploring.

Crosses: policy, torch, tf.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import rlcatalog

FOLDERS = sorted(path.parent for path in Path(__file__).parent.glob("saved_policies/*/acts.json"))


DTYPES = {"action_mask": np.int8, "kind": np.int64, "x": np.float32}


def to_arrays(obs):
    """Return observations with arrays in place of the lists of JSON."""
    if isinstance(obs, list):
        return np.asarray(obs, np.float32)
    return {key: np.asarray(values, DTYPES[key]) for key, values in obs.items()}


def read_steps(folder):
    return json.loads((folder / "acts.json").read_text(encoding="utf-8"))


def test_saved_policies_are_of_both_frameworks():
    assert len(FOLDERS) == 10
    assert {folder.name.rpartition("-")[2] for folder in FOLDERS} == {"torch", "tf"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_steps_of_a_saved_policy_differ(folder):
    # Otherwise, they would not show that a policy acts as it did.
    inputs = [json.dumps(step["dist_inputs"]) for step in read_steps(folder)]
    assert len(set(inputs)) == len(inputs)


def assert_acts_as_recorded(step, recorded):
    """Compare a step with that in `acts.json`."""
    for name in ("raw_action", "logp", "value", "dist_inputs"):
        array = getattr(step, name)
        np.testing.assert_allclose(array, recorded[name], rtol=1e-4, atol=1e-5, err_msg=name)
    if isinstance(step.action, tuple):
        assert [part.tolist() for part in step.action] == recorded["action"]
    else:
        np.testing.assert_allclose(step.action, recorded["action"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_saved_policy_acts_as_it_did(folder):
    policy = rlcatalog.load(folder)

    state = None
    for recorded in read_steps(folder):
        obs = to_arrays(recorded["obs"])
        step = policy.act(obs, state, prev_reward=recorded["prev_reward"], explore=False)
        assert_acts_as_recorded(step, recorded)
        state = step.state
