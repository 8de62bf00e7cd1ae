"""Comparison of exported and frozen policies with the original: rounding passes, faults do not."""

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

TWO_FEATURES = Box(-1, 1, (2,), np.float32)
UNIT = Box(-1, 1, (2,), np.float32)
WIDE = Box(-1e6, 3, (2,), np.float32)
NARROW = Box(-1e-6, 1e-6, (2,), np.float32)
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


def build_squashed_policy(framework="torch", *, actions=UNIT, log_std):
    """Build a policy with a squashed Gaussian; a large `log_std` draws close to the bounds."""
    policy = rlcatalog.build(TWO_FEATURES, actions, {"fcnet_hiddens": [4], **SQUASHED}, framework)
    weights = {name: array.copy() for name, array in policy.model.get_weights().items()}
    for name, array in weights.items():
        if array.shape == (4,) and "logits" in name:
            array[2:] = log_std
    policy.model.set_weights(weights)
    return policy


# --- actions close to their bounds ----------------------------------------------------------------


@pytest.mark.slow  # the tests below check the rules of the comparison
@pytest.mark.parametrize(
    ("framework", "actions"),
    [("tf", UNIT), ("torch", WIDE), ("torch", UNIT), ("tf", WIDE)],
    ids=["tf-unit", "torch-wide", "torch-unit", "tf-wide"],
)
def test_policy_that_draws_close_to_its_bounds_is_exported(framework, actions, tmp_path):
    if framework == "tf":
        pytest.importorskip("tf2onnx")
    policy = build_squashed_policy(framework, actions=actions, log_std=2.0)

    # Raises an error if the file acts differently.
    policy.export(tmp_path / "policy.onnx")


@pytest.mark.parametrize("log_std", [1.0, 2.0])
def test_policy_that_draws_close_to_its_bounds_stays_frozen(log_std):
    frozen = build_squashed_policy(log_std=log_std).freeze(8, seed=0)
    random = np.random.default_rng(0)

    for _ in range(64):
        frozen.act(random.uniform(-1, 1, (8, 2)).astype(np.float32))

    assert frozen.reason is None


# --- log densities --------------------------------------------------------------------------------


@pytest.fixture(params=DISTRIBUTIONS)
def build_and_draw(request):
    """Build a policy with a certain distribution, and draw 64 actions for random parameters.

    Returns:
        The policy, and the outputs of a step: parameters, raw actions and log densities.
    """

    def build(framework, scale):
        actions, config = DISTRIBUTIONS[request.param]
        policy = rlcatalog.build(TWO_FEATURES, actions, {"fcnet_hiddens": [4], **config}, framework)
        random = np.random.default_rng(0)
        shape = (64, policy.resolution.num_outputs)
        params = random.uniform(-1, 1, shape).astype(np.float32) * scale
        tensor = params
        if framework == "torch":
            import torch

            tensor = torch.from_numpy(params)
        sample = policy.stored_dist(tensor, policy.model).sample()
        raw_action = np.asarray(sample).reshape(64, -1)
        logp = policy.backend.log_density(params, raw_action.astype(np.float32))
        return policy, {"dist_inputs": params, "raw_action": raw_action, "logp": logp}

    return build


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("scale", [0.5, 2, 6])
def test_log_density_in_double_precision_agrees(framework, scale, build_and_draw):
    policy, step = build_and_draw(framework, scale)

    params = step["dist_inputs"].astype(np.float64)
    raw_action = step["raw_action"].astype(np.float32).astype(np.float64)
    logp = policy.backend.log_density(params, raw_action).astype(np.float32)

    assert disagreement(policy, step, {**step, "logp": logp}) == ""


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
# Not 6: where a scale is e^-6, rounding the mean alone changes the density as much.
@pytest.mark.parametrize("scale", [0.5, 2])
def test_log_density_that_is_0_001_off_disagrees(framework, scale, build_and_draw):
    policy, step = build_and_draw(framework, scale)
    moderate_rows = np.flatnonzero(abs(step["logp"]) < 20)[:8]

    for row in moderate_rows:
        logp = step["logp"].copy()
        logp[row] += 1e-3
        message = disagreement(policy, step, {**step, "logp": logp})
        assert message.startswith(f"logp[{row}] is")


# --- faults ---------------------------------------------------------------------------------------


@pytest.fixture(params=[0.0, 2.0], ids=["log_std-0", "log_std-2"])
def squashed_step(request):
    """A policy with a squashed Gaussian, and the outputs of a step."""
    policy = build_squashed_policy(log_std=request.param)
    step = policy.act(np.zeros((8, 2), np.float32))
    outputs = {
        "dist_inputs": step.dist_inputs,
        "raw_action": step.raw_action,
        "logp": step.logp,
        "value": step.value,
    }
    return policy, outputs


def test_same_outputs_agree(squashed_step):
    policy, outputs = squashed_step

    assert disagreement(policy, outputs, outputs) == ""


def test_other_log_std_disagrees(squashed_step):
    policy, outputs = squashed_step
    params = outputs["dist_inputs"].copy()
    params[:, 2:] += 1e-3

    assert disagreement(policy, outputs, {**outputs, "dist_inputs": params})


def test_other_log_std_disagrees_with_its_own_log_density(squashed_step):
    policy, outputs = squashed_step
    params = outputs["dist_inputs"].copy()
    params[:, 2:] += 1e-3
    logp = policy.backend.log_density(params, outputs["raw_action"])

    assert disagreement(policy, outputs, {**outputs, "dist_inputs": params, "logp": logp})


def test_log_density_without_its_jacobian_disagrees(squashed_step):
    policy, outputs = squashed_step
    raw_action = outputs["raw_action"].astype(np.float64)
    jacobian = np.log(np.maximum(1 - raw_action**2, 1e-7)).sum(1).astype(np.float32)

    assert disagreement(policy, outputs, {**outputs, "logp": outputs["logp"] + jacobian})


def test_other_action_disagrees(squashed_step):
    policy, outputs = squashed_step
    raw_action = outputs["raw_action"] * np.float32(0.999)

    assert disagreement(policy, outputs, {**outputs, "raw_action": raw_action})


def test_other_value_disagrees(squashed_step):
    policy, outputs = squashed_step
    value = outputs["value"] + np.float32(1e-3)

    assert disagreement(policy, outputs, {**outputs, "value": value})


def test_actions_between_narrow_bounds_have_their_own_unit():
    policy = build_squashed_policy(actions=Box(-1e-6, 1e-6, (2,), np.float32), log_std=0.0)
    step = policy.act(np.zeros((8, 2), np.float32))
    raw_action = step.raw_action * np.float32(0.99)
    logp = policy.backend.log_density(step.dist_inputs, raw_action)

    outputs = {"dist_inputs": step.dist_inputs, "raw_action": step.raw_action, "logp": step.logp}
    message = disagreement(policy, outputs, {**outputs, "raw_action": raw_action, "logp": logp})

    assert message.startswith("raw_action[0, 0] is")


def test_frozen_policy_warns_once_of_what_differs():
    policy = build_squashed_policy(log_std=0.0)
    frozen = policy.freeze(rows=2)
    obs = np.zeros((2, 2), np.float32)
    # Without `frozen.update()`, its graph keeps the former weights.
    weights = policy.model.get_weights()
    policy.model.set_weights({name: array + 0.5 for name, array in weights.items()})

    with pytest.warns(CatalogWarning, match=r"is .* instead of .* in step 1;"):
        frozen.act(obs)

    with warnings.catch_warnings(action="error"):
        frozen.act(obs)  # raises nothing


# --- random masks ---------------------------------------------------------------------------------


@pytest.fixture(params=MASKED)
def masks(request):
    """Masks of an action space with one or several choices."""
    action_space = MASKED[request.param][0]
    return ActionMasks(SpaceInfo.read(action_space))


def draw_masks(masks):
    """Draw 2000 masks that forbid nine of ten values."""
    return random_masks(masks, 2000, np.random.default_rng(0), forbidden=0.9)


def test_random_masks_are_valid(masks):
    mask = draw_masks(masks)

    # `matrix` rejects a row that allows nothing.
    np.testing.assert_array_equal(masks.matrix(mask), mask)


def test_random_masks_have_a_part_for_each_choice(masks):
    mask = draw_masks(masks)

    parts = dict(masks.by_choice(mask))

    assert [(path, part.shape[1]) for path, part in parts.items()] == list(masks.choices)
    np.testing.assert_array_equal(np.concatenate(list(parts.values()), axis=1), mask)


def test_random_masks_allow_a_value_of_each_choice(masks):
    for _, part in masks.by_choice(draw_masks(masks)):
        values = part.shape[1]
        allowed = 1 + 0.1 * (values - 1)  # one for sure, and a tenth of the others
        assert part.mean() == pytest.approx(allowed / values, abs=0.03)
        assert part.any(axis=0).all()
