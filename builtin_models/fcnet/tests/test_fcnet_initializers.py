"""Initialisers: each draws from its distribution, in both frameworks, and reaches its layers."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from scipy import stats

from rlcatalog.errors import ConfigError
from rlcatalog.models import DenseSpec
from rlcatalog_tf import FullyConnectedNetwork as TFNet, nn as tf_nn
from rlcatalog_torch import FullyConnectedNetwork as TorchNet, nn as torch_nn

pytestmark = pytest.mark.twins

OBS, ACTIONS = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4)


ROWS, COLUMNS = 60, 150


def normal(std, mean=0.0):
    return stats.norm(mean, std)


def uniform(bound):
    return stats.uniform(-bound, 2 * bound)


def truncated(mean, std):
    return stats.truncnorm(-2, 2, mean, std)


BOTH = ROWS + COLUMNS
DISTRIBUTIONS = [
    ("xavier_uniform", {}, uniform(np.sqrt(6 / BOTH))),
    ("xavier_uniform", {"gain": 3.0}, uniform(3 * np.sqrt(6 / BOTH))),
    ("xavier_normal", {}, normal(np.sqrt(2 / BOTH))),
    ("xavier_normal", {"gain": 0.1}, normal(0.1 * np.sqrt(2 / BOTH))),
    ("kaiming_uniform", {}, uniform(np.sqrt(6 / COLUMNS))),
    ("kaiming_normal", {}, normal(np.sqrt(2 / COLUMNS))),
    ("fan_in_uniform", {}, uniform(np.sqrt(1 / COLUMNS))),
    ("fan_in_uniform", {"gain": 4.0}, uniform(4 * np.sqrt(1 / COLUMNS))),
    ("uniform", {}, uniform(0.05)),
    ("uniform", {"a": 1.0, "b": 3.0}, stats.uniform(1, 2)),
    ("normal", {}, normal(0.05)),
    ("normal", {"mean": 2.0, "std": 0.5}, normal(0.5, 2.0)),
    ("truncated_normal", {}, truncated(0, 0.05)),
    ("truncated_normal", {"mean": -1.0, "std": 2.0}, truncated(-1, 2)),
]


def initialized(framework, shape, name, config=None, seed=0):
    if framework == "torch":
        torch.manual_seed(seed)
        tensor = torch.full(shape, torch.nan)
        torch_nn.initialize(tensor, name, config or {})
        return tensor.numpy()
    tf.random.set_seed(seed)
    return tf_nn.initial_value(shape, name, config or {}).numpy()


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    ("name", "config", "truth"), DISTRIBUTIONS, ids=lambda value: str(value)[:20]
)
def test_an_initialiser_draws_from_its_distribution(framework, name, config, truth):
    values = initialized(framework, (ROWS, COLUMNS), name, config).astype(np.float64)
    assert values.shape == (ROWS, COLUMNS)
    assert stats.kstest(values.ravel(), truth.cdf).pvalue > 1e-3
    low, high = truth.support()
    assert values.min() >= low - 1e-6
    assert values.max() <= high + 1e-6
    # The control: the test would see a scale that is 5 % off.
    assert (
        stats.kstest((values.ravel() - truth.mean()) * 1.1 + truth.mean(), truth.cdf).pvalue < 1e-3
    )


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_a_bias_is_told_how_many_inputs_its_layer_has(framework):
    spec = DenseSpec(4000, bias="fan_in_uniform", bias_config={"gain": 2.0})
    layer = torch_nn.dense(9, spec) if framework == "torch" else tf_nn.Dense(9, spec)
    values = (
        (layer.bias.detach() if framework == "torch" else layer.bias).numpy().astype(np.float64)
    )
    assert stats.kstest(values, uniform(2 / 3).cdf).pvalue > 1e-3
    with pytest.raises(ConfigError, match="needs the number of inputs"):
        initialized(framework, (8,), "fan_in_uniform")


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_fans_of_a_convolution(framework):
    # [out, in, height, width]: 12 outputs and 4 inputs, each through a field of 15.
    values = initialized(framework, (12, 4, 3, 5), "xavier_uniform")
    assert stats.kstest(values.ravel(), uniform(np.sqrt(6 / (15 * 16))).cdf).pvalue > 1e-3
    values = initialized(framework, (12, 4, 3, 5), "kaiming_normal")
    assert stats.kstest(values.ravel(), normal(np.sqrt(2 / 60)).cdf).pvalue > 1e-3


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_constants(framework):
    np.testing.assert_array_equal(initialized(framework, (2, 3), "zeros"), np.zeros((2, 3)))
    np.testing.assert_array_equal(initialized(framework, (2, 3), "ones"), np.ones((2, 3)))
    np.testing.assert_array_equal(
        initialized(framework, (2, 3), "constant", {"val": 2.5}), np.full((2, 3), 2.5)
    )
    np.testing.assert_array_equal(initialized(framework, (2, 3), "constant"), np.zeros((2, 3)))


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("std", [1.0, 0.01])
def test_normc_gives_each_output_row_its_norm(framework, std):
    values = initialized(framework, (ROWS, COLUMNS), "normc", {"std": std})
    np.testing.assert_allclose(np.linalg.norm(values, axis=1), std, rtol=1e-5)
    assert np.linalg.norm(values, axis=0).std() > 0.01 * std  # columns are not normalised
    # Directions are uniform: the coordinates of a point on a sphere in three dimensions are
    # uniform.
    rows = initialized(framework, (3000, 3), "normc", {"std": std}) / std
    for coordinate in rows.T:
        assert stats.kstest(coordinate, uniform(1).cdf).pvalue > 1e-3


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (5, 5), (4, 2, 3, 3)])
@pytest.mark.parametrize("gain", [1.0, 2.0])
def test_orthogonal_is_orthogonal(framework, shape, gain):
    values = (
        initialized(framework, shape, "orthogonal", {"gain": gain})
        .reshape(shape[0], -1)
        .astype(np.float64)
    )
    gram = values @ values.T if values.shape[0] <= values.shape[1] else values.T @ values
    np.testing.assert_allclose(gram, gain**2 * np.eye(len(gram)), atol=1e-5)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_orthogonal_prefers_no_direction(framework):
    draws = np.stack(
        [initialized(framework, (3, 3), "orthogonal", seed=seed) for seed in range(150)]
    )
    for i, j in ((0, 0), (1, 2), (2, 2)):
        assert stats.kstest(draws[:, i, j], uniform(1).cdf).pvalue > 1e-3


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    ("name", "neutral"),
    [
        ("xavier_uniform_", "xavier_uniform"),
        ("glorot_uniform", "xavier_uniform"),
        ("he_normal", "kaiming_normal"),
        ("Normc", "normc"),
        ("trunc_normal_", "truncated_normal"),
    ],
)
def test_names_of_both_worlds(framework, name, neutral):
    np.testing.assert_array_equal(
        initialized(framework, (4, 5), name), initialized(framework, (4, 5), neutral)
    )


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_a_fresh_network(cls):
    config = {
        "fcnet_hiddens": [8],
        "post_fcnet_hiddens": [6],
        "vf_share_layers": False,
        "free_log_std": True,
    }
    weights = cls(OBS, ACTIONS, 4, config, "net").get_weights()
    for name, array in weights.items():
        if name.endswith(("bias", "log_std")):
            np.testing.assert_array_equal(array, 0, err_msg=name)
        else:
            norm = 0.01 if name in ("outputs.logits.weight", "outputs.value.weight") else 1.0
            np.testing.assert_allclose(np.linalg.norm(array, axis=1), norm, rtol=1e-5, err_msg=name)
    # The layer that becomes the output under no_final_linear keeps its own initialiser.
    weights = cls(OBS, ACTIONS, 4, {**config, "no_final_linear": True}, "net").get_weights()
    np.testing.assert_allclose(
        np.linalg.norm(weights["outputs.logits.weight"], axis=1), 1, rtol=1e-5
    )


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_initialisers_of_the_config_reach_their_layers(cls):
    config = {
        "fcnet_hiddens": [8, 7],
        "fcnet_weights_initializer": "constant",
        "fcnet_weights_initializer_config": {"val": 0.25},
        "fcnet_bias_initializer": "ones",
        "post_fcnet_hiddens": [6],
        "post_fcnet_weights_initializer": "orthogonal_",
        "post_fcnet_weights_initializer_config": {"gain": 3.0},
        "post_fcnet_bias_initializer": "uniform",
        "post_fcnet_bias_initializer_config": {"a": 5.0, "b": 6.0},
        "vf_share_layers": False,
    }
    weights = cls(OBS, ACTIONS, 4, config, "net").get_weights()
    for stack in ("hidden", "value_hidden"):
        for layer in (0, 1):
            np.testing.assert_array_equal(weights[f"{stack}.layers.{layer}.weight"], 0.25)
            np.testing.assert_array_equal(weights[f"{stack}.layers.{layer}.bias"], 1)
        post = weights[f"{stack}.layers.2.weight"]
        np.testing.assert_allclose(post @ post.T, 9 * np.eye(6), atol=1e-4)
        assert (weights[f"{stack}.layers.2.bias"] >= 5).all()
        assert (weights[f"{stack}.layers.2.bias"] <= 6).all()
    np.testing.assert_allclose(
        np.linalg.norm(weights["outputs.logits.weight"], axis=1), 0.01, rtol=1e-5
    )


def test_initialisers_of_the_framework():
    config = {"fcnet_hiddens": [8], "fcnet_weights_initializer": torch.nn.init.ones_}
    np.testing.assert_array_equal(
        TorchNet(OBS, ACTIONS, 4, config, "net").get_weights()["hidden.layers.0.weight"],
        np.ones((8, 3)),
    )
    torch.manual_seed(0)
    config["fcnet_weights_initializer"] = torch_nn.normc_initializer(0.5)
    weights = TorchNet(OBS, ACTIONS, 4, config, "net").get_weights()
    np.testing.assert_allclose(
        np.linalg.norm(weights["hidden.layers.0.weight"], axis=1), 0.5, rtol=1e-5
    )
    config["fcnet_weights_initializer"] = tf_nn.normc_initializer(0.5)
    weights = TFNet(OBS, ACTIONS, 4, config, "net").get_weights()
    np.testing.assert_allclose(
        np.linalg.norm(weights["hidden.layers.0.weight"], axis=1), 0.5, rtol=1e-5
    )
    config["fcnet_weights_initializer"] = tf.keras.initializers.Constant(0.5)
    weights = TFNet(OBS, ACTIONS, 4, config, "net").get_weights()
    np.testing.assert_array_equal(weights["hidden.layers.0.weight"], np.full((8, 3), 0.5))
