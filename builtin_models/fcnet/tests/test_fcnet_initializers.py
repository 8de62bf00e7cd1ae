"""Initializers: the distribution of each, in both frameworks, and the layers they apply to."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from scipy import stats

from rlcatalog.errors import ConfigError
from rlcatalog.models import DenseSpec
from rlcatalog_tf import nn as tf_nn
from rlcatalog_torch import nn as torch_nn

pytestmark = pytest.mark.twins


def normal(std, mean=0.0):
    return stats.norm(mean, std)


def uniform(bound):
    return stats.uniform(-bound, 2 * bound)


def truncated(mean, std):
    return stats.truncnorm(-2, 2, mean, std)


#: The number of inputs, and of inputs and outputs, of weights with the shape [60, 150].
INPUTS = 150
FAN_SUM = 60 + 150
DISTRIBUTIONS = [
    ("xavier_uniform", {}, uniform(np.sqrt(6 / FAN_SUM))),
    ("xavier_uniform", {"gain": 3.0}, uniform(3 * np.sqrt(6 / FAN_SUM))),
    ("xavier_normal", {}, normal(np.sqrt(2 / FAN_SUM))),
    ("xavier_normal", {"gain": 0.1}, normal(0.1 * np.sqrt(2 / FAN_SUM))),
    ("kaiming_uniform", {}, uniform(np.sqrt(6 / INPUTS))),
    ("kaiming_normal", {}, normal(np.sqrt(2 / INPUTS))),
    ("fan_in_uniform", {}, uniform(np.sqrt(1 / INPUTS))),
    ("fan_in_uniform", {"gain": 4.0}, uniform(4 * np.sqrt(1 / INPUTS))),
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


def compute_row_norms(weights):
    return np.linalg.norm(weights, axis=1)


# --- distributions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "config", "distribution"), DISTRIBUTIONS, ids=lambda value: str(value)[:20]
)
def test_initializer_draws_from_its_distribution(framework, name, config, distribution):
    values = initialize(framework, (60, 150), name, config).astype(np.float64)

    assert compute_p_value(values, distribution) > 1e-3
    low, high = distribution.support()
    assert values.min() >= low - 1e-6
    assert values.max() <= high + 1e-6
    # The comparison is sharp enough: values that are 10 % too large do not pass it.
    center = distribution.mean()
    too_large = center + 1.1 * (values - center)
    assert compute_p_value(too_large, distribution) < 1e-3


def test_bias_initializer_receives_the_number_of_inputs(framework):
    spec = DenseSpec(4000, bias="fan_in_uniform", bias_config={"gain": 2.0})

    if framework == "torch":
        bias = torch_nn.dense(9, spec).bias.detach().numpy()
    else:
        bias = tf_nn.Dense(9, spec).bias.numpy()

    # The bound is gain / sqrt(inputs) = 2 / sqrt(9).
    assert compute_p_value(bias.astype(np.float64), uniform(2 / 3)) > 1e-3


def test_fan_in_initializer_rejects_a_bias_without_inputs(framework):
    with pytest.raises(ConfigError, match="needs the number of inputs"):
        initialize(framework, (8,), "fan_in_uniform")


@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        # A kernel of 3x5 reads 15 numbers of each of 4 inputs, and is read by 15 of 12 outputs.
        pytest.param("xavier_uniform", uniform(np.sqrt(6 / (15 * 4 + 15 * 12))), id="xavier"),
        pytest.param("kaiming_normal", normal(np.sqrt(2 / (15 * 4))), id="kaiming"),
    ],
)
def test_initializer_counts_the_kernel_of_a_convolution(framework, name, distribution):
    values = initialize(framework, (12, 4, 3, 5), name)

    assert compute_p_value(values, distribution) > 1e-3


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


def test_normc_scales_rows_and_not_columns(framework):
    values = initialize(framework, (60, 150), "normc", {"std": 0.5})

    np.testing.assert_allclose(compute_row_norms(values), 0.5, rtol=1e-5)
    assert compute_row_norms(values.T).std() > 0.005


def test_normc_draws_directions_uniformly(framework):
    points = initialize(framework, (3000, 3), "normc", {"std": 1.0})

    # Each coordinate of a uniform point on the unit sphere is uniform in [-1, 1].
    for coordinate in points.T:
        assert compute_p_value(coordinate, uniform(1)) > 1e-3


@pytest.mark.parametrize("gain", [1.0, 2.0])
def test_orthogonal_rows_are_orthogonal_if_there_are_fewer(framework, gain):
    matrix = initialize(framework, (4, 9), "orthogonal", {"gain": gain})

    np.testing.assert_allclose(matrix @ matrix.T, gain**2 * np.eye(4), atol=1e-5)


@pytest.mark.parametrize("gain", [1.0, 2.0])
def test_orthogonal_columns_are_orthogonal_if_there_are_fewer(framework, gain):
    matrix = initialize(framework, (9, 4), "orthogonal", {"gain": gain})

    np.testing.assert_allclose(matrix.T @ matrix, gain**2 * np.eye(4), atol=1e-5)


def test_orthogonal_kernels_are_rows(framework):
    kernels = initialize(framework, (4, 2, 3, 3), "orthogonal")

    rows = kernels.reshape(4, 2 * 3 * 3)
    np.testing.assert_allclose(rows @ rows.T, np.eye(4), atol=1e-5)


def test_orthogonal_prefers_no_direction(framework):
    draws = []
    for seed in range(150):
        draws.append(initialize(framework, (3, 3), "orthogonal", seed=seed))
    matrices = np.stack(draws)

    # Rows of a random rotation are uniform on the sphere: each entry is uniform in [-1, 1].
    for row, column in ((0, 0), (1, 2), (2, 2)):
        assert compute_p_value(matrices[:, row, column], uniform(1)) > 1e-3


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


def test_fresh_hidden_layers_have_rows_of_norm_one(framework, build_net):
    model = build_net(framework, fcnet_hiddens=[8], post_fcnet_hiddens=[6], vf_share_layers=False)

    weights = model.get_weights()
    for layer in ("hidden.layers.0", "hidden.layers.1", "value_hidden.layers.0"):
        np.testing.assert_allclose(compute_row_norms(weights[f"{layer}.weight"]), 1, rtol=1e-5)


def test_fresh_output_layers_have_rows_of_norm_one_hundredth(framework, build_net):
    weights = build_net(framework, fcnet_hiddens=[8]).get_weights()

    for layer in ("outputs.logits", "outputs.value"):
        np.testing.assert_allclose(compute_row_norms(weights[f"{layer}.weight"]), 0.01, rtol=1e-5)


def test_fresh_biases_and_log_stds_are_zero(framework, build_net):
    weights = build_net(framework, fcnet_hiddens=[8], free_log_std=True).get_weights()

    vectors = {name: array for name, array in weights.items() if array.ndim == 1}
    assert "hidden.layers.0.bias" in vectors
    assert "outputs.free_log_std.log_std" in vectors
    for name, array in vectors.items():
        np.testing.assert_array_equal(array, 0, err_msg=name)


def test_no_final_linear_keeps_the_initializer_of_the_layer(framework, build_net):
    weights = build_net(framework, fcnet_hiddens=[8, 4], no_final_linear=True).get_weights()

    # The last hidden layer is the output: its rows have norm 1, not 0.01 as in an output layer.
    np.testing.assert_allclose(compute_row_norms(weights["outputs.logits.weight"]), 1, rtol=1e-5)


@pytest.mark.parametrize("stack", ["hidden", "value_hidden"])
def test_initializers_of_the_config_reach_their_layers(framework, stack, build_net):
    weights = build_net(
        framework,
        fcnet_hiddens=[8, 7],
        fcnet_weights_initializer="constant",
        fcnet_weights_initializer_config={"val": 0.25},
        fcnet_bias_initializer="ones",
        post_fcnet_hiddens=[6],
        post_fcnet_weights_initializer="orthogonal_",
        post_fcnet_weights_initializer_config={"gain": 3.0},
        post_fcnet_bias_initializer="constant",
        post_fcnet_bias_initializer_config={"val": 5.0},
        vf_share_layers=False,
    ).get_weights()

    for layer in (f"{stack}.layers.0", f"{stack}.layers.1"):
        np.testing.assert_array_equal(weights[f"{layer}.weight"], 0.25)
        np.testing.assert_array_equal(weights[f"{layer}.bias"], 1)
    post_weight = weights[f"{stack}.layers.2.weight"]
    # Orthogonal rows, times the gain 3.
    np.testing.assert_allclose(post_weight @ post_weight.T, 3**2 * np.eye(6), atol=1e-4)
    np.testing.assert_array_equal(weights[f"{stack}.layers.2.bias"], 5)


def test_initializers_of_hidden_layers_miss_the_output_layer(framework, build_net):
    weights = build_net(
        framework,
        fcnet_hiddens=[8],
        fcnet_weights_initializer="constant",
        post_fcnet_hiddens=[6],
        post_fcnet_weights_initializer="constant",
    ).get_weights()

    # By default the rows of the output layer have the norm 0.01.
    np.testing.assert_allclose(compute_row_norms(weights["outputs.logits.weight"]), 0.01, rtol=1e-5)


@pytest.mark.parametrize(
    ("framework", "initializer"),
    [
        pytest.param("torch", torch.nn.init.ones_, id="torch"),
        pytest.param("tf", tf.keras.initializers.Constant(1.0), id="keras"),
    ],
)
def test_initializer_may_be_a_function_of_the_framework(framework, initializer, build_net):
    model = build_net(framework, fcnet_hiddens=[8], fcnet_weights_initializer=initializer)

    weight = model.get_weights()["hidden.layers.0.weight"]
    np.testing.assert_array_equal(weight, np.ones((8, 3)))


@pytest.mark.parametrize(
    ("framework", "initializer"),
    [
        pytest.param("torch", torch_nn.normc_initializer(0.5), id="torch"),
        pytest.param("tf", tf_nn.normc_initializer(0.5), id="tf"),
    ],
)
def test_initializer_may_be_normc_initializer_of_rllib(framework, initializer, build_net):
    model = build_net(framework, fcnet_hiddens=[8], fcnet_weights_initializer=initializer)

    weight = model.get_weights()["hidden.layers.0.weight"]
    np.testing.assert_allclose(compute_row_norms(weight), 0.5, rtol=1e-5)


# --- init -----------------------------------------------------------------------------------------


def singular_values(weight):
    return np.linalg.svd(weight, compute_uv=False)


def test_init_orthogonal_has_the_gain_of_each_layer(framework, build_net):
    weights = build_net(
        framework,
        fcnet_hiddens=[8],
        post_fcnet_hiddens=[6],
        vf_share_layers=False,
        init="orthogonal",
    ).get_weights()

    gains = {
        "hidden.layers.0": 2**0.5,
        "hidden.layers.1": 2**0.5,
        "value_hidden.layers.0": 2**0.5,
        "value_hidden.layers.1": 2**0.5,
        "outputs.logits": 0.01,
        "outputs.value": 1.0,
    }
    for layer, gain in gains.items():
        values = singular_values(weights[f"{layer}.weight"])
        np.testing.assert_allclose(values, gain, rtol=1e-4)
        assert not weights[f"{layer}.bias"].any()


def test_init_fan_in_uniform_reaches_every_layer(framework, build_net):
    weights = build_net(framework, fcnet_hiddens=[400], init="fan_in_uniform").get_weights()

    inputs = {"hidden.layers.0": 3, "outputs.logits": 400, "outputs.value": 400}
    for layer, fan_in in inputs.items():
        largest = np.abs(weights[f"{layer}.weight"]).max()
        bound = fan_in**-0.5
        assert 0.9 * bound < largest <= bound * (1 + 1e-6)
        assert weights[f"{layer}.bias"].any()


def test_initializer_key_wins_over_init(framework, build_net):
    weights = build_net(
        framework,
        fcnet_hiddens=[8],
        fcnet_weights_initializer="constant",
        fcnet_weights_initializer_config={"val": 0.25},
        init="fan_in_uniform",
    ).get_weights()

    assert (weights["hidden.layers.0.weight"] == 0.25).all()
    # The key for weights leaves the biases to `init`.
    assert weights["hidden.layers.0.bias"].any()


def test_unknown_init_is_an_error(build_net):
    with pytest.raises(ConfigError, match="model config key 'init'"):
        build_net("torch", init="ortho")
