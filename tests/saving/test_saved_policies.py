"""Policies that were saved once load and act the same.

`saved_policies` beside this file holds policies of both frameworks, as rlcatalog 0.1.0 saves them,
and what each did, deterministically, at five steps of two episodes.

Crosses: policy, torch, tf.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import rlcatalog

FOLDERS = sorted(path.parent for path in Path(__file__).parent.glob("saved_policies/*/acts.json"))


def arrays(obs):
    """Observations as they were given: JSON holds lists."""
    if isinstance(obs, list):
        return np.asarray(obs, np.float32)
    dtypes = {"action_mask": np.int8, "kind": np.int64, "x": np.float32}
    return {key: np.asarray(values, dtypes[key]) for key, values in obs.items()}


def test_there_are_policies_of_both_frameworks():
    assert len(FOLDERS) == 10
    assert {folder.name.rpartition("-")[2] for folder in FOLDERS} == {"torch", "tf"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_saved_policy_acts_as_it_did(folder):
    policy, state = rlcatalog.load(folder), None
    steps = json.loads((folder / "acts.json").read_text(encoding="utf-8"))
    # They tell one step from another.
    assert len({json.dumps(step["dist_inputs"]) for step in steps}) == len(steps)
    for step in steps:
        found = policy.act(
            arrays(step["obs"]), state, prev_reward=step["prev_reward"], explore=False
        )
        state = found.state
        for name in ("raw_action", "logp", "value", "dist_inputs"):
            np.testing.assert_allclose(
                getattr(found, name), step[name], rtol=1e-4, atol=1e-5, err_msg=name
            )
        if isinstance(found.action, tuple):
            assert [part.tolist() for part in found.action] == step["action"]
        else:
            np.testing.assert_allclose(found.action, step["action"], rtol=1e-4, atol=1e-5)
