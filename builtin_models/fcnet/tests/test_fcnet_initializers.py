"""Initializers: the distribution of each, in both frameworks, and the layers they apply to."""

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

OBS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Discrete(4)

#: The shape of the weights that are drawn: 60 outputs, 150 inputs.
ROWS = 60
COLUMNS = 150


def normal(std, mean=0.0):
    return stats.norm(mean, std)


def uniform(bound):
    return stats.uniform(-bound, 2 * bound)


def truncated(mean, std):
    return stats.truncnorm(-2, 2, mean, std)


FAN_SUM = ROWS + COLUMNS
DISTRIBUTIONS = [
    ("xavier_uniform", {}, uniform(np.sqrt(6 / FAN_SUM))),
    ("xavier_uniform", {"gain": 3.0}, uniform(3 * np.sqrt(6 / FAN_SUM))),
    ("xavier_normal", {}, normal(np.sqrt(2 / FAN_SUM))),
    ("xavier_normal", {"gain": 0.1}, normal(0.1 * np.sqrt(2 / FAN_SUM))),
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


def initialize(framework, shape, name, config=None, seed=0):
    """Return weights that the initializer with this name draws, as an array."""
    if framework == "torch":
        torch.manual_seed(seed)
        tensor = torch.full(shape, torch.nan)
        torch_nn.initialize(tensor, name, config or {})
        return tensor.numpy()
    tf.random.set_seed(seed)
    return tf_nn.initial_value(shape, name, config or {}).numpy()


def compute_p_value(values, distribution):
    """Return the p-value of the Kolmogorov-Smirnov test that the values follow it."""
    return stats.kstest(values.ravel(), distribution.cdf).pvalue


# --- distributions --------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    ("name", "config", "distribution"), DISTRIBUTIONS, ids=lambda value: str(value)[:20]
)
def test_initializer_draws_from_its_distribution(framework, name, config, distribution):
    values = initialize(framework, (ROWS, COLUMNS), name, config).astype(np.float64)

    assert values.shape == (ROWS, COLUMNS)
    assert compute_p_value(values, distribution) > 1e-3
    low, high = distribution.support()
    assert values.min() >= low - 1e-6
    assert values.max() <= high + 1e-6
    # The test would see a scale that is 10 % too large.
    center = distribution.mean()
    rescaled = (values - center) * 1.1 + center
    assert compute_p_value(rescaled, distribution) < 1e-3


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_bias_initializer_receives_the_number_of_inputs(framework):
    spec = DenseSpec(4000, bias="fan_in_uniform", bias_config={"gain": 2.0})

    if framework == "torch":
        bias = torch_nn.dense(9, spec).bias.detach().numpy()
    else:
        bias = tf_nn.Dense(9, spec).bias.numpy()

    # The bound is gain / sqrt(inputs) = 2 / sqrt(9).
    assert compute_p_value(bias.astype(np.float64), uniform(2 / 3)) > 1e-3


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_fan_in_initializer_rejects_a_bias_without_inputs(framework):
    with pytest.raises(ConfigError, match="needs the number of inputs"):
        initialize(framework, (8,), "fan_in_uniform")


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        # Of 4 inputs and 12 outputs, each with a kernel of 3 x 5:
        pytest.param(
            "xavier_uniform", uniform(np.sqrt(6 / (15 * 4 + 15 * 12))), id="xavier_uniform"
        ),
        pytest.param("kaiming_normal", normal(np.sqrt(2 / (15 * 4))), id="kaiming_normal"),
    ],
)
def test_initializer_counts_the_kernel_of_a_convolution(framework, name, distribution):
    # [outputs, inputs, height, width]
    values = initialize(framework, (12, 4, 3, 5), name)

    assert compute_p_value(values, distribution) > 1e-3


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    ("name", "config", "number"),
    [
        pytest.param("zeros", {}, 0, id="zeros"),
        pytest.param("ones", {}, 1, id="ones"),
        pytest.param("constant", {"val": 2.5}, 2.5, id="constant"),
        pytest.param("constant", {}, 0, id="constant-by-default"),
    ],
)
def test_initializer_fills_with_a_constant(framework, name, config, number):
    values = initialize(framework, (2, 3), name, config)

    np.testing.assert_array_equal(values, np.full((2, 3), number))


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("std", [1.0, 0.01])
def test_normc_scales_rows_and_not_columns(framework, std):
    values = initialize(framework, (ROWS, COLUMNS), "normc", {"std": std})

    np.testing.assert_allclose(np.linalg.norm(values, axis=1), std, rtol=1e-5)
    assert np.linalg.norm(values, axis=0).std() > 0.01 * std


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("std", [1.0, 0.01])
def test_normc_draws_directions_uniformly(framework, std):
    points = initialize(framework, (3000, 3), "normc", {"std": std}) / std

    # Each coordinate of a uniform point on the unit sphere is uniform in [-1, 1].
    for coordinate in points.T:
        assert compute_p_value(coordinate, uniform(1)) > 1e-3


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (5, 5), (4, 2, 3, 3)], ids=str)
@pytest.mark.parametrize("gain", [1.0, 2.0])
def test_orthogonal_rows_or_columns_are_orthogonal(framework, shape, gain):
    values = initialize(framework, shape, "orthogonal", {"gain": gain})

    matrix = values.reshape(shape[0], -1).astype(np.float64)
    if matrix.shape[0] > matrix.shape[1]:
        matrix = matrix.T  # more rows than columns: the columns are orthogonal
    np.testing.assert_allclose(matrix @ matrix.T, gain**2 * np.eye(len(matrix)), atol=1e-5)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_orthogonal_prefers_no_direction(framework):
    draws = []
    for seed in range(150):
        draws.append(initialize(framework, (3, 3), "orthogonal", seed=seed))
    matrices = np.stack(draws)

    # Rows of a random rotation are uniform on the sphere: each entry is uniform in [-1, 1].
    for row, column in ((0, 0), (1, 2), (2, 2)):
        assert compute_p_value(matrices[:, row, column], uniform(1)) > 1e-3


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("xavier_uniform_", "xavier_uniform"),
        ("glorot_uniform", "xavier_uniform"),
        ("he_normal", "kaiming_normal"),
        ("Normc", "normc"),
        ("trunc_normal_", "truncated_normal"),
    ],
)
def test_initializer_accepts_names_of_both_frameworks(framework, spelling, name):
    values = initialize(framework, (4, 5), spelling)

    np.testing.assert_array_equal(values, initialize(framework, (4, 5), name))


# --- layers of a network --------------------------------------------------------------------------


def build_weights(cls, config):
    """Return the initial weights of a network with 3 inputs and 4 outputs."""
    return cls(OBS, ACTIONS, 4, config, "net").get_weights()


def compute_row_norms(weights):
    return np.linalg.norm(weights, axis=1)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_fresh_network_has_normc_weights_and_zero_biases(cls):
    config = {
        "fcnet_hiddens": [8],
        "post_fcnet_hiddens": [6],
        "vf_share_layers": False,
        "free_log_std": True,
    }

    weights = build_weights(cls, config)

    for name, array in weights.items():
        if name.endswith(("bias", "log_std")):
            np.testing.assert_array_equal(array, 0, err_msg=name)
        elif name.startswith("outputs"):
            np.testing.assert_allclose(compute_row_norms(array), 0.01, rtol=1e-5, err_msg=name)
        else:
            np.testing.assert_allclose(compute_row_norms(array), 1.0, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_no_final_linear_keeps_the_initializer_of_the_layer(cls):
    config = {
        "fcnet_hiddens": [8],
        "post_fcnet_hiddens": [6],
        "no_final_linear": True,
        "vf_share_layers": False,
        "free_log_std": True,
    }

    weights = build_weights(cls, config)

    # 1 as in a hidden layer, not 0.01 as in an output layer.
    norms = compute_row_norms(weights["outputs.logits.weight"])
    np.testing.assert_allclose(norms, 1, rtol=1e-5)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
@pytest.mark.parametrize("stack", ["hidden", "value_hidden"])
def test_fcnet_initializers_reach_the_fcnet_layers(cls, stack):
    config = {
        "fcnet_hiddens": [8, 7],
        "fcnet_weights_initializer": "constant",
        "fcnet_weights_initializer_config": {"val": 0.25},
        "fcnet_bias_initializer": "ones",
        "post_fcnet_hiddens": [6],
        "vf_share_layers": False,
    }

    weights = build_weights(cls, config)

    np.testing.assert_array_equal(weights[f"{stack}.layers.0.weight"], 0.25)
    np.testing.assert_array_equal(weights[f"{stack}.layers.0.bias"], 1)
    np.testing.assert_array_equal(weights[f"{stack}.layers.1.weight"], 0.25)
    np.testing.assert_array_equal(weights[f"{stack}.layers.1.bias"], 1)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
@pytest.mark.parametrize("stack", ["hidden", "value_hidden"])
def test_post_fcnet_initializers_reach_the_post_layers(cls, stack):
    config = {
        "fcnet_hiddens": [8, 7],
        "fcnet_weights_initializer": "constant",
        "post_fcnet_hiddens": [6],
        "post_fcnet_weights_initializer": "orthogonal_",
        "post_fcnet_weights_initializer_config": {"gain": 3.0},
        "post_fcnet_bias_initializer": "uniform",
        "post_fcnet_bias_initializer_config": {"a": 5.0, "b": 6.0},
        "vf_share_layers": False,
    }

    weights = build_weights(cls, config)

    post_weight = weights[f"{stack}.layers.2.weight"]
    post_bias = weights[f"{stack}.layers.2.bias"]
    np.testing.assert_allclose(post_weight @ post_weight.T, 3**2 * np.eye(6), atol=1e-4)
    assert (post_bias >= 5).all()
    assert (post_bias <= 6).all()


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_initializers_of_hidden_layers_miss_the_output_layer(cls):
    config = {
        "fcnet_hiddens": [8],
        "fcnet_weights_initializer": "constant",
        "post_fcnet_hiddens": [6],
        "post_fcnet_weights_initializer": "orthogonal_",
        "vf_share_layers": False,
    }

    weights = build_weights(cls, config)

    norms = compute_row_norms(weights["outputs.logits.weight"])
    np.testing.assert_allclose(norms, 0.01, rtol=1e-5)  # the output layer's default


@pytest.mark.parametrize(
    ("cls", "initializer", "number"),
    [
        pytest.param(TorchNet, torch.nn.init.ones_, 1, id="torch-ones"),
        pytest.param(TFNet, tf.keras.initializers.Constant(0.5), 0.5, id="keras-constant"),
    ],
)
def test_initializer_may_be_a_function_of_the_framework(cls, initializer, number):
    config = {"fcnet_hiddens": [8], "fcnet_weights_initializer": initializer}

    weights = build_weights(cls, config)

    np.testing.assert_array_equal(weights["hidden.layers.0.weight"], np.full((8, 3), number))


@pytest.mark.parametrize(
    ("cls", "initializer"),
    [
        pytest.param(TorchNet, torch_nn.normc_initializer(0.5), id="torch"),
        pytest.param(TFNet, tf_nn.normc_initializer(0.5), id="tf"),
    ],
)
def test_initializer_may_be_normc_initializer_of_rllib(cls, initializer):
    config = {"fcnet_hiddens": [8], "fcnet_weights_initializer": initializer}

    weights = build_weights(cls, config)

    norms = compute_row_norms(weights["hidden.layers.0.weight"])
    np.testing.assert_allclose(norms, 0.5, rtol=1e-5)
