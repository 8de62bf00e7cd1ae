"""The diagonal Gaussian's config keys, half precisions and empty masks; what RLlib gets wrong of
its shapes.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from scipy import stats

from rlcatalog import ModelCatalog, build
from rlcatalog.errors import ActionRangeWarning, ConfigError, NotServedError
from rlcatalog_tf import DiagGaussian as TFGaussian
from rlcatalog_torch import DiagGaussian as TorchGaussian

BOX = spaces.Box(-1, 1, (2,), np.float32)
frameworks = pytest.mark.parametrize("cls", [TorchGaussian, TFGaussian], ids=["torch", "tf"])


def array(value):
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value.numpy()


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"gaussian_log_std_min": -2.0}, [-2, -2, 1, 40]),
        ({"gaussian_log_std_max": 0.5}, [-40, -3, 0.5, 0.5]),
        ({"gaussian_log_std_min": -5, "gaussian_log_std_max": 2}, [-5, -3, 1, 2]),
        ({"gaussian_log_std_min": -90.0, "gaussian_log_std_max": 90.0}, [-40, -3, 1, 40]),
    ],
)
def test_log_standard_deviations_are_cut_off_where_the_config_says(framework, config, expected):
    found, size = ModelCatalog.get_action_dist(BOX, config, framework=framework)
    assert size == 4
    inputs = np.float32([[0, 0, -100, -3], [0, 0, 1, 100]])
    np.testing.assert_allclose(array(found(inputs).log_std).ravel(), expected)


def test_without_limits_the_class_itself_is_found():
    assert ModelCatalog.get_action_dist(BOX, {}, framework="torch")[0] is TorchGaussian


@frameworks
def test_limits_in_the_wrong_order_are_refused(cls):
    with pytest.raises(
        ConfigError, match="gaussian_log_std_min must not be above gaussian_log_std_max"
    ):
        build(
            BOX,
            BOX,
            {"gaussian_log_std_min": 1.0, "gaussian_log_std_max": 0.0},
            cls.framework_of_class,
        )
    with pytest.raises(ConfigError, match="log_std_min must not be above log_std_max"):
        cls(np.zeros((1, 2), np.float32), log_std_min=1.0, log_std_max=0.0)


@frameworks
def test_a_policy_acts_within_its_limits(cls):
    config = {"gaussian_log_std_max": -8.0, "fcnet_hiddens": [4]}
    with pytest.warns(ActionRangeWarning, match="standard deviation 0.000335"):  # exp(-8)
        policy = build(BOX, BOX, config, cls.framework_of_class)
    step = policy.act(np.zeros((50, 2), np.float32))
    assert np.abs(step.raw_action - step.dist_inputs[:, :2]).max() < 6 * np.exp(-8)
    expected = stats.norm.logpdf(step.raw_action, step.dist_inputs[:, :2], np.exp(-8.0)).sum(axis=1)
    np.testing.assert_allclose(step.logp, expected, rtol=1e-3, atol=1e-2)


@frameworks
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precisions_give_finite_numbers(cls, dtype):
    pairs = np.float32([[0, 0], [3e4, 50], [-3e4, -50], [1e-6, 12], [1, -12]])
    made = (
        torch.from_numpy(pairs).to(getattr(torch, dtype))
        if cls is TorchGaussian
        else tf.cast(pairs, dtype)
    )
    dist = cls(made)
    for sample in (dist.sample(), dist.deterministic_sample()):
        for value in (sample, dist.logp(sample), dist.entropy(), dist.kl(dist)):
            assert np.isfinite(array(value)).all()
    assert dist.inputs.dtype == made.dtype


@frameworks
def test_the_score_of_a_rank_zero_sample_is_not_a_square(cls):
    # RLlib squeezed such samples to [B], and its logp then broadcast to [B, B] and summed.
    size = ModelCatalog.get_action_dist(
        spaces.Box(-1, 1, (), np.float32), {}, framework=cls.framework_of_class
    )[1]
    inputs = np.random.default_rng(0).normal(size=(7, size)).astype(np.float32)
    dist = cls(inputs)
    sample = array(dist.sample())[:, 0]
    assert sample.shape == (7,)
    expected = stats.norm.logpdf(sample, inputs[:, 0], np.exp(inputs[:, 1]))
    np.testing.assert_allclose(array(dist.logp(sample)), expected, rtol=1e-4, atol=1e-5)


@frameworks
def test_actions_of_another_size_are_refused(cls):
    with pytest.raises((RuntimeError, tf.errors.InvalidArgumentError)):
        cls(np.zeros((4, 4), np.float32)).logp(np.zeros(4, np.float32))


@frameworks
def test_an_empty_mask_leaves_the_inputs_alone(cls):
    inputs = np.zeros((3, 4), np.float32)
    assert cls.masked(inputs, np.ones((3, 0), bool)) is inputs
    with pytest.raises(
        NotServedError, match=r"DiagGaussian does not support action masks, .* mask with 4 columns"
    ):
        cls.masked(inputs, np.ones((3, 4), bool))
