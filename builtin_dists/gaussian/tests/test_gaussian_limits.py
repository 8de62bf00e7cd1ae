"""Limits on the diagonal Gaussian's log standard deviations, from the config."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog import ModelCatalog, build
from rlcatalog.errors import ActionRangeWarning, ConfigError

BOX = spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # The class itself allows -40 to 40.
        ({"gaussian_log_std_min": -2.0}, [-2, -2, 1, 40]),
        ({"gaussian_log_std_max": 0.5}, [-40, -3, 0.5, 0.5]),
        ({"gaussian_log_std_min": -5, "gaussian_log_std_max": 2}, [-5, -3, 1, 2]),
        ({"gaussian_log_std_min": -90.0, "gaussian_log_std_max": 90.0}, [-40, -3, 1, 40]),
    ],
    ids=["min", "max", "min and max", "beyond 40"],
)
def test_limits_of_config_clip_log_std(framework, config, expected):
    box = spaces.Box(-1, 1, (4,), np.float32)
    dist_class, _ = ModelCatalog.get_action_dist(box, config, framework=framework.name)

    dist = dist_class(np.float32([[0, 0, 0, 0, -100, -3, 1, 100]]))  # means, log deviations

    np.testing.assert_allclose(framework.numpy(dist.log_std)[0], expected)


def test_config_with_limits_needs_no_more_outputs():
    config = {"gaussian_log_std_min": -2.0}

    _, size = ModelCatalog.get_action_dist(BOX, config, framework="torch")

    assert size == 4  # two means, two log standard deviations


def test_config_without_limits_gives_the_class_itself(framework):
    dist_class, _ = ModelCatalog.get_action_dist(BOX, {}, framework=framework.name)

    assert dist_class is framework.load("DiagGaussian")


def test_min_above_max_in_config_is_an_error(framework):
    config = {"gaussian_log_std_min": 1.0, "gaussian_log_std_max": 0.0}

    with pytest.raises(ConfigError, match="gaussian_log_std_min must not be above") as caught:
        build(BOX, BOX, config, framework.name)

    assert "gaussian_log_std_max" in str(caught.value)


def test_min_above_max_in_options_is_an_error(framework):
    with pytest.raises(ConfigError, match="log_std_min must not be above"):
        framework.load("DiagGaussian")(
            np.zeros((1, 2), np.float32), log_std_min=1.0, log_std_max=0.0
        )


def test_policy_draws_within_limits(framework):
    config = {"gaussian_log_std_max": -8.0, "fcnet_hiddens": [4]}
    with pytest.warns(ActionRangeWarning, match="standard deviation 0.000335"):  # exp(-8)
        policy = build(BOX, BOX, config, framework.name)

    step = policy.act(np.zeros((50, 2), np.float32))

    means = step.dist_inputs[:, :2]
    assert np.abs(step.raw_action - means).max() < 6 * np.exp(-8)  # six standard deviations
