"""What is compared where a policy is exported or frozen: rounding near a bound passes, a fault is
found.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")

from masked_env import MASKED

import rlcatalog
from rlcatalog.actions import ActionMasks
from rlcatalog.errors import CatalogWarning
from rlcatalog.spaces import Simplex, SpaceInfo
from rlcatalog_export.agreement import disagreement
from rlcatalog_export.file_check import random_masks

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

OBS = Box(-1, 1, (2,), np.float32)
WIDE, NARROW = Box(-1e6, 3, (2,), np.float32), Box(-1e-6, 1e-6, (2,), np.float32)
SQUASHED = {"custom_action_dist": "squashed_gaussian"}
DISTRIBUTIONS = {
    "squashed": (Box(-1, 1, (3,), np.float32), SQUASHED),
    "squashed, wide": (WIDE, SQUASHED),
    "squashed, narrow": (NARROW, SQUASHED),
    "beta": (Box(-1, 1, (3,), np.float32), {"custom_action_dist": "beta"}),
    "gaussian": (Box(-1, 1, (3,), np.float32), {}),
    "dirichlet": (Simplex((3,)), {}),
    "categorical": (Discrete(3), {}),
}
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def near_a_bound(framework, action=OBS, log_std=1.0):
    """Return a policy of a squashed Gaussian that is drawn close to its bounds."""
    policy = rlcatalog.build(OBS, action, {"fcnet_hiddens": [4], **SQUASHED}, framework)
    weights = {name: array.copy() for name, array in policy.model.get_weights().items()}
    for name, array in weights.items():
        if array.shape == (4,) and "logits" in name:
            array[2:] = log_std
    policy.model.set_weights(weights)
    return policy


@pytest.mark.attack  # rules of the comparison are seen above
@pytest.mark.parametrize(
    ("framework", "action"), [("tf", OBS), ("torch", WIDE), ("torch", OBS), ("tf", WIDE)], ids=str
)
def test_a_policy_that_draws_close_to_its_bounds_is_exported(framework, action, tmp_path):
    if framework == "tf":
        pytest.importorskip("tf2onnx")
    near_a_bound(framework, action, log_std=2.0).export(tmp_path / "policy.onnx")


@pytest.mark.parametrize("log_std", [1.0, 2.0])
def test_a_frozen_policy_that_draws_close_to_its_bounds_stays_frozen(log_std):
    frozen, rng = near_a_bound("torch", log_std=log_std).freeze(8, seed=0), np.random.default_rng(0)
    for _ in range(64):
        frozen.act(rng.uniform(-1, 1, (8, 2)).astype(np.float32))
    assert frozen.reason is None


def drawn(policy, scale, framework):
    """Return parameters from a wide range, and actions that are drawn under them."""
    params = (
        np.random.default_rng(0)
        .uniform(-1, 1, (64, policy.resolution.num_outputs))
        .astype(np.float32)
        * scale
    )
    given = params
    if framework == "torch":
        import torch

        given = torch.from_numpy(params)
    raw = np.asarray(policy.stored_dist(given, policy.model).sample()).reshape(64, -1)
    return {"dist_inputs": params, "raw_action": raw}


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_density_of_another_rounding_agrees_and_a_wrong_one_does_not(name, framework):
    action, config = DISTRIBUTIONS[name]
    policy = rlcatalog.build(OBS, action, {"fcnet_hiddens": [4], **config}, framework)
    for scale in (0.5, 2, 6):
        step = drawn(policy, scale, framework)
        params, raw = step["dist_inputs"], step["raw_action"].astype(np.float32)
        right = {**step, "logp": policy.backend.log_density(params, raw)}
        exact = policy.backend.log_density(
            params.astype(np.float64), raw.astype(np.float64)
        ).astype(np.float32)
        assert disagreement(policy, right, {**step, "logp": exact}) == ""
        # Where a scale is e^-6, rounding the mean alone moves the density as far.
        for row in np.flatnonzero(abs(right["logp"]) < 20)[:8] if scale < 6 else ():
            wrong = right["logp"].copy()
            wrong[row] += 1e-3
            assert disagreement(policy, right, {**step, "logp": wrong}).startswith(
                f"logp[{row}] is"
            )


@pytest.mark.parametrize("log_std", [0.0, 2.0])
def test_faults_of_a_squashed_gaussian_are_found(log_std):
    policy = near_a_bound("torch", log_std=log_std)
    step = policy.act(np.zeros((8, 2), np.float32))
    right = {name: getattr(step, name) for name in ("dist_inputs", "raw_action", "logp", "value")}
    assert disagreement(policy, right, right) == ""
    params, raw = right["dist_inputs"], right["raw_action"]
    jacobian = np.log(np.maximum(1 - raw.astype(np.float64) ** 2, 1e-7)).sum(1).astype(np.float32)
    scaled = params.copy()
    scaled[:, 2:] += 1e-3
    wrong = {
        "the scale": {"dist_inputs": scaled},
        "the scale, scored by it": {
            "dist_inputs": scaled,
            "logp": policy.backend.log_density(scaled, raw),
        },
        "the Jacobian": {"logp": right["logp"] + jacobian},
        "the action": {"raw_action": raw * np.float32(0.999)},
        "the value": {"value": right["value"] + np.float32(1e-3)},
    }
    for what, outputs in wrong.items():
        assert disagreement(policy, right, {**right, **outputs}), what


def test_actions_between_narrow_bounds_are_compared_in_their_unit():
    policy = near_a_bound("torch", NARROW, 0.0)
    step = policy.act(np.zeros((8, 2), np.float32))
    right = {"dist_inputs": step.dist_inputs, "raw_action": step.raw_action, "logp": step.logp}
    moved = step.raw_action * np.float32(0.99)
    wrong = {
        **right,
        "raw_action": moved,
        "logp": policy.backend.log_density(step.dist_inputs, moved),
    }
    assert disagreement(policy, right, wrong).startswith("raw_action[0, 0] is")


def test_a_frozen_policy_says_what_differed():
    policy = near_a_bound("torch", log_std=0.0)
    frozen = policy.freeze(2)
    obs = np.zeros((2, 2), np.float32)
    policy.model.set_weights(
        {name: array + 0.5 for name, array in policy.model.get_weights().items()}
    )
    with pytest.warns(
        CatalogWarning,
        match=r"policy: (dist_inputs\[0, 0\]|value\[0\]) is .* instead of .* in step 1;",
    ):
        frozen.act(obs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frozen.act(obs)


@pytest.mark.parametrize("name", MASKED)
def test_random_masks_leave_something_of_every_choice(name):
    masks = ActionMasks(SpaceInfo.read(MASKED[name][0]))
    mask = random_masks(masks, 2000, np.random.default_rng(0), forbidden=0.9)
    # Which refuses a row that allows nothing.
    np.testing.assert_array_equal(masks.matrix(mask), mask)
    parts = dict(masks.by_choice(mask))
    assert [(path, part.shape[1]) for path, part in parts.items()] == list(masks.choices)
    np.testing.assert_array_equal(np.concatenate(list(parts.values()), axis=1), mask)
    for part in parts.values():  # one value for sure, of the others a tenth
        n = part.shape[1]
        assert part.mean() == pytest.approx((1 + 0.1 * (n - 1)) / n, abs=0.03)
        assert part.any(axis=0).all()
