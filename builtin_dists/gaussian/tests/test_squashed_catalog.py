"""The squashed Gaussian in the catalog and in policies: the spaces and options it takes."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog import ModelCatalog
from rlcatalog.errors import ConfigError, UnsupportedSpaceError
from rlcatalog.spaces import SpaceInfo


@pytest.mark.parametrize(("shape", "width"), [((), 1), ((2, 3), 6)], ids=str)
def test_output_shape_is_a_mean_and_a_deviation_per_value(framework, shape, width):
    box = spaces.Box(-0.5, 3, shape, np.float32)

    assert framework.load("SquashedGaussian").required_model_output_shape(box, {}) == 2 * width


def test_catalog_prefers_diag_gaussian(framework):
    box = spaces.Box(-1, 1, (2,), np.float32)

    dist_class, _ = ModelCatalog.get_action_dist(box, {}, framework=framework.name)

    assert dist_class.__name__ == "DiagGaussian"


def test_config_chooses_squashing_and_limits(framework):
    box = spaces.Box(-1, 1, (2,), np.float32)
    config = {"custom_action_dist": "squashed_gaussian", "gaussian_log_std_max": 1.0}

    dist_class, size = ModelCatalog.get_action_dist(box, config, framework=framework.name)
    dist = dist_class(np.full((1, 4), 50, np.float32))

    assert size == 4
    assert dist_class.raw_kind == "bounded"
    assert framework.numpy(dist.log_std).max() == 1


@pytest.mark.parametrize(
    "box",
    [
        spaces.Box(np.float32([-1, -np.inf]), np.float32([1, 1]), dtype=np.float32),
        spaces.Box(np.float32([-1, 1]), np.float32([1, 1]), dtype=np.float32),
        spaces.Box(np.float32([-1, -3e38]), np.float32([1, 3e38]), dtype=np.float32),
        spaces.Box(np.float64([-1, 1]), np.float64([1, 1 + 1e-12]), dtype=np.float64),
    ],
    ids=["unbounded", "single value", "too wide", "too narrow"],
)
def test_box_without_finite_bounds_is_an_error(framework, box):
    cls = framework.load("SquashedGaussian")

    # The second value of each box is the wrong one.
    with pytest.raises(UnsupportedSpaceError, match=r"needs finite bounds.*at \[1\]") as caught:
        cls.required_model_output_shape(box, {})
    assert str(caught.value).startswith("action: SquashedGaussian")
    with pytest.raises(UnsupportedSpaceError, match="needs finite bounds"):
        cls.options_for(SpaceInfo.read(box, "action"), {})


def test_discrete_space_is_an_error(framework):
    with pytest.raises(UnsupportedSpaceError, match="needs a Box of floats, found Discrete"):
        framework.load("SquashedGaussian").required_model_output_shape(spaces.Discrete(3), {})


def test_equal_bounds_are_an_error(framework):
    with pytest.raises(ConfigError, match="low must be below high"):
        framework.load("SquashedGaussian")(np.zeros((7, 6), np.float32), None, low=1.0, high=1.0)


def test_bounds_of_wrong_size_are_an_error(framework):
    inputs = np.zeros((7, 6), np.float32)  # of three values

    with pytest.raises(ConfigError, match="have 3 values"):
        framework.load("SquashedGaussian")(inputs, None, low=np.float32([-3, -2]))
