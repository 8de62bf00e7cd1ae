"""Outputs, values, gradients and activations of the fully connected network, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from builders import to_array
from model_runs import (
    assert_close,
    assert_same_gradients,
    compute_gradients,
    run_model,
    set_random_weights,
    to_tensor,
)
from pairwise import pairwise
from scipy import special, stats

from rlcatalog.config import ACTIVATIONS, INITIALIZERS
from rlcatalog_tf import nn as tf_nn
from rlcatalog_torch import nn as torch_nn

#: Sixteen observations of three numbers.
OBSERVATIONS = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)


# --- NumPy by hand --------------------------------------------------------------------------------

ACTIVATIONS_BY_HAND = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "silu": lambda x: x * special.expit(x),
    "gelu": lambda x: x * stats.norm.cdf(x),
    "sigmoid": special.expit,
    "softplus": lambda x: np.logaddexp(0, x),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "selu": lambda x: (
        1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))
    ),
    "softmax": lambda x: special.softmax(x, axis=-1),
}

#: Few configs in which each pair of values occurs.
CONFIGS = pairwise(
    {
        "fcnet_hiddens": [[], [8], [8, 6]],
        "fcnet_activation": ["tanh", "relu", "elu"],
        "post_fcnet_hiddens": [[], [5], [7, 5]],
        "post_fcnet_activation": ["relu", "softmax", "linear"],
        "no_final_linear": [False, True],
        "vf_share_layers": [True, False],
        "free_log_std": [False, True],
    },
    valid=lambda config: True,
)


def compute_by_hand(weights, num_outputs, config):
    """Return outputs and values of a network with these weights, in float64."""
    layers = [(width, config["fcnet_activation"]) for width in config["fcnet_hiddens"]]
    layers += [(width, config["post_fcnet_activation"]) for width in config["post_fcnet_hiddens"]]
    last_activation = "linear"
    if config["no_final_linear"] and num_outputs is not None and layers:
        last_activation = layers.pop()[1]

    def apply_layer(name, x):
        return x @ weights[f"{name}.weight"].T.astype(np.float64) + weights[f"{name}.bias"]

    def apply_stack(name):
        y = OBSERVATIONS.astype(np.float64)
        for i, (width, activation) in enumerate(layers):
            y = ACTIVATIONS_BY_HAND[activation](apply_layer(f"{name}.layers.{i}", y))
            assert y.shape[1] == width
        return y

    features = apply_stack("hidden")
    if num_outputs is None:
        return features, None
    output = ACTIVATIONS_BY_HAND[last_activation](apply_layer("outputs.logits", features))
    if config["free_log_std"]:
        log_std = np.tile(weights["outputs.free_log_std.log_std"], (len(output), 1))
        output = np.concatenate([output, log_std], axis=1)
    value_features = features if config["vf_share_layers"] else apply_stack("value_hidden")
    return output, apply_layer("outputs.value", value_features)[:, 0]


@pytest.mark.parametrize("config", CONFIGS)
def test_outputs_and_values_match_numpy(framework, config, build_net):
    model = set_random_weights(build_net(framework, num_outputs=4, **config))

    results = run_model(model, OBSERVATIONS)

    outputs, values = compute_by_hand(model.get_weights(), num_outputs=4, config=config)
    assert_close(results.outputs, outputs)
    assert_close(results.values, values)


@pytest.mark.parametrize("config", CONFIGS)
def test_features_of_a_trunk_match_numpy(framework, config, build_net):
    trunk = set_random_weights(build_net(framework, num_outputs=None, **config))

    results = run_model(trunk, OBSERVATIONS)

    features, _ = compute_by_hand(trunk.get_weights(), num_outputs=None, config=config)
    assert trunk.num_outputs == features.shape[1]
    assert_close(results.outputs, features)


@pytest.mark.parametrize("share", [True, False], ids=["shared-value", "separate-value"])
def test_gradients_are_the_same_in_both_frameworks(share, build_net):
    config = {"fcnet_hiddens": [8], "vf_share_layers": share, "free_log_std": True}
    torch_net = set_random_weights(build_net("torch", **config))
    tf_net = set_random_weights(build_net("tf", **config))

    assert_same_gradients(tf_net, torch_net, OBSERVATIONS)


def test_traced_network_uses_weights_set_after_tracing(build_net):
    model = build_net("tf", fcnet_hiddens=[8])
    run_traced = tf.function(lambda obs: model({"obs": obs})[0])
    run_traced(OBSERVATIONS)

    set_random_weights(model)

    assert_close(run_traced(OBSERVATIONS), run_model(model, OBSERVATIONS).outputs)


def test_calls_create_no_variables(build_net):
    def refuse_to_create(create, **kwargs):
        raise AssertionError("a call creates a variable")

    model = build_net("tf", fcnet_hiddens=[8], vf_share_layers=False, free_log_std=True)

    with tf.variable_creator_scope(refuse_to_create):
        run_model(model, OBSERVATIONS)


# --- activations ----------------------------------------------------------------------------------


def test_both_frameworks_have_every_activation():
    assert set(torch_nn.ACTIVATIONS) == set(ACTIVATIONS)
    assert set(tf_nn.ACTIVATIONS) == set(ACTIVATIONS)


def test_both_frameworks_have_every_initializer():
    assert set(torch_nn._INITIALIZERS) == set(INITIALIZERS)
    assert set(tf_nn._INITIALIZERS) == set(INITIALIZERS)


NN = {"torch": torch_nn, "tf": tf_nn}


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name != "linear"])
def test_activation_matches_its_formula(framework, name):
    activate = NN[framework].activation(name)
    numbers = np.float32([-100, -6, -1, -0.1, -1e-8, 0, 1e-8, 0.1, 1, 6, 100])
    rows = np.stack([numbers, numbers / 2], axis=1)  # two columns, for softmax

    outputs = to_array(activate(to_tensor(framework, rows)))

    expected = ACTIVATIONS_BY_HAND[name](rows.astype(np.float64))
    np.testing.assert_allclose(outputs, expected, rtol=2e-5, atol=2e-6)


def test_linear_activation_is_none(framework):
    assert NN[framework].activation("linear") is None


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("ReLU", "relu"),
        ("swish", "silu"),
        ("Tanh", "tanh"),
        ("LeakyReLU", "leaky_relu"),
        ("GELU", "gelu"),
        (None, "linear"),
        ("None", "linear"),
    ],
)
def test_activation_accepts_rllib_spellings(framework, spelling, name):
    nn = NN[framework]

    assert nn.activation(spelling) is nn.ACTIVATIONS[name]


@pytest.mark.parametrize(
    ("framework", "function"),
    [
        pytest.param("torch", torch.relu, id="torch-function"),
        pytest.param("torch", torch.nn.ReLU, id="torch-class"),
        pytest.param("torch", torch.nn.ReLU(), id="torch-module"),
        pytest.param("tf", tf.nn.relu, id="tf-function"),
        pytest.param("tf", tf.keras.activations.relu, id="keras-function"),
        pytest.param("tf", tf.keras.layers.ReLU, id="keras-class"),
    ],
)
def test_activation_may_be_a_callable(framework, function, build_net):
    by_name = set_random_weights(build_net(framework, fcnet_hiddens=[8], fcnet_activation="relu"))

    by_function = build_net(framework, fcnet_hiddens=[8], fcnet_activation=function)
    by_function.set_weights(by_name.get_weights())

    expected = run_model(by_name, OBSERVATIONS)
    assert_close(run_model(by_function, OBSERVATIONS).outputs, expected.outputs)


def test_activation_with_parameters_is_trained(build_net):
    model = build_net(
        "torch", fcnet_hiddens=[8], fcnet_activation=torch.nn.PReLU, vf_share_layers=False
    )

    gradients = compute_gradients(model, OBSERVATIONS)

    # The layers of policy and value each have their own slope.
    slopes = [gradient for name, gradient in gradients.items() if "activation" in name]
    assert len(slopes) == 2
    assert all(slope != 0 for slope in slopes)
