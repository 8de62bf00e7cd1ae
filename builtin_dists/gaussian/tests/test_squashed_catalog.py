"""The squashed Gaussian through the catalog: which spaces it takes, and what policies
do with it.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import stats

from rlcatalog import ModelCatalog, build
from rlcatalog.errors import ConfigError, NotServedError, UnsupportedSpaceError
from rlcatalog.spaces import SpaceInfo
from rlcatalog_gaussian.tf import SquashedGaussian as TFSquashed
from rlcatalog_gaussian.torch import SquashedGaussian as TorchSquashed

INPUTS = np.zeros((7, 6), np.float32)
frameworks = pytest.mark.parametrize("cls", [TorchSquashed, TFSquashed], ids=["torch", "tf"])


def array(value):
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value.numpy()


def scored(raw, inputs, low, high):
    """The density by the change of variables, from the exact distances to the bounds."""
    mean, log_std = np.split(inputs.astype(np.float64), 2, axis=1)
    below, above = raw.astype(np.float64) - low, high - raw.astype(np.float64)
    normal = stats.norm.logpdf((np.log(below) - np.log(above)) / 2, mean, np.exp(log_std))
    return (normal - np.log(2 * below * above / (high - low))).sum(axis=1)


@pytest.mark.parametrize(("framework", "cls"), [("torch", TorchSquashed), ("tf", TFSquashed)])
@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_a_policy_with_squashed_actions(framework, cls, shape):
    box = spaces.Box(np.full(shape, -0.5, "f4"), np.full(shape, 3, "f4"), dtype=np.float32)
    policy = build(
        spaces.Discrete(3),
        box,
        {"fcnet_hiddens": [4], "custom_action_dist": "squashed_gaussian"},
        framework,
    )
    step = policy.act(np.array([0, 1, 2, 0]))
    width = max(1, int(np.prod(shape)))
    assert step.raw_action.shape == (4, width)
    # Inside its bounds as it is.
    np.testing.assert_array_equal(step.action.reshape(4, width), step.raw_action)
    assert all(np.asarray(action) in box for action in step.action)
    expected = scored(step.raw_action, step.dist_inputs, -0.5, 3)
    np.testing.assert_allclose(step.logp, expected, rtol=1e-3, atol=1e-3)
    assert cls.required_model_output_shape(box, {}) == 2 * width


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_squashing_is_chosen_by_name_only(framework):
    box = spaces.Box(-1, 1, (2,), np.float32)
    assert ModelCatalog.get_action_dist(box, {}, framework=framework)[0].__name__ == "DiagGaussian"
    config = {"custom_action_dist": "squashed_gaussian", "gaussian_log_std_max": 1.0}
    found, size = ModelCatalog.get_action_dist(box, config, framework=framework)
    assert size == 4
    assert found.raw_kind == "bounded"
    assert float(array(found(np.full((1, 4), 50, np.float32)).log_std).max()) == 1


@frameworks
@pytest.mark.parametrize(
    "box",
    [
        spaces.Box(np.float32([-1, -np.inf]), np.float32([1, 1]), dtype=np.float32),
        spaces.Box(np.float32([-1, 1]), np.float32([1, 1]), dtype=np.float32),
        spaces.Box(np.float32([-1, -3e38]), np.float32([1, 3e38]), dtype=np.float32),
        spaces.Box(np.float64([-1, 1]), np.float64([1, 1 + 1e-12]), dtype=np.float64),
    ],
    ids=["unbounded", "a single value", "too wide", "too narrow"],
)
def test_squashing_needs_finite_bounds(cls, box):
    with pytest.raises(
        UnsupportedSpaceError, match=r"^action: SquashedGaussian needs finite bounds.*at \[1\]"
    ):
        cls.required_model_output_shape(box, {})
    with pytest.raises(UnsupportedSpaceError, match="needs finite bounds"):
        cls.options_for(SpaceInfo.read(box, "action"), {})


@frameworks
def test_squashing_refuses_other_spaces_and_bounds_with_typed_errors(cls):
    with pytest.raises(
        UnsupportedSpaceError, match="SquashedGaussian needs a Box of floats, found Discrete"
    ):
        cls.required_model_output_shape(spaces.Discrete(3), {})
    with pytest.raises(ConfigError, match="low must be below high"):
        cls(INPUTS, None, 1.0, 1.0)
    with pytest.raises(ConfigError, match="have 3 values"):
        cls(INPUTS, None, np.float32([-3, -2]))


@frameworks
def test_squashed_inputs_pass_an_empty_mask(cls):
    assert cls.masked(INPUTS, np.ones((7, 0), bool)) is INPUTS
    with pytest.raises(
        NotServedError,
        match=r"SquashedGaussian does not support action masks, .* mask with 2 columns",
    ):
        cls.masked(INPUTS, np.ones((7, 2), bool))
