"""The convolutional network's options in pairs, against `tf.nn`, and its gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from model_runs import assert_same_gradients, run_model, set_random_weights
from pairwise import pairwise
from scipy import special

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "softmax": lambda x: special.softmax(x, axis=-1),
}
FILTERS = {
    "default": None,
    "to 1x1": [[6, [4, 3], [2, 3]], [5, 3, 2], [7, [4, 2], [4, 2]]],
    "stride over kernel": [[6, [2, 3], [3, 1]], [5, [1, 2], 2]],
    "impala": "impala",
}
#: The default filters for 13x9 by padding, worked out by hand.
DEFAULT_FILTERS = {
    None: [[16, [4, 3], [2, 1]], [32, [3, 3], 1], [256, [7, 9], 1]],
    "valid": [[16, [4, 3], [2, 1]], [32, [3, 3], 1], [256, [3, 5], 1]],
    "same": [[16, [4, 3], [2, 1]], [32, [3, 3], 1], [256, [7, 9], [7, 9]]],
}


def is_valid(case):
    """Return whether the network takes a combination; the others are errors, tested elsewhere."""
    if case["filters"] == "impala":
        return case["conv_padding"] is None
    if case["filters"] == "stride over kernel":
        has_dense_output = bool(case["post_fcnet_hiddens"]) or not case["no_final_linear"]
        return case["conv_flatten"] and has_dense_output
    if case["filters"] == "to 1x1":
        return case["conv_padding"] != "valid"  # its last kernel would not fit
    return True


#: Few combinations in which each valid pair of values occurs.
CASES = pairwise(
    {
        "filters": list(FILTERS),
        "conv_activation": ["relu", "softmax"],
        "conv_padding": [None, "same", "valid"],
        "conv_flatten": [False, True],
        "image_layout": ["hwc", "chw"],
        "vf_share_layers": [True, False],
        "free_log_std": [False, True],
        "no_final_linear": [False, True],
        "post_fcnet_hiddens": [[], [8, 6]],
    },
    is_valid,
)


def build_and_draw(build_net, framework, case, num_outputs):
    """Build a network of a case for images 13x9 with two channels; return it and three images."""
    config = {key: value for key, value in case.items() if key != "filters"}
    config["conv_filters"] = FILTERS[case["filters"]]
    shape = (2, 13, 9) if case["image_layout"] == "chw" else (13, 9, 2)
    model = build_net(framework, shape, num_outputs, **config)
    images = np.random.default_rng(0).integers(0, 256, (3, *shape), np.uint8)
    return set_random_weights(model, scale=0.1), images


# --- tf.nn ----------------------------------------------------------------------------------------


class SlowNetwork:
    """The network in float64, layer by layer, from its weights."""

    def __init__(self, weights, activation):
        self.weights = {name: array.astype(np.float64) for name, array in weights.items()}
        self.activate = ACTIVATIONS[activation]

    def convolve(self, name, x, stride=1, padding="same"):
        kernel = self.weights[f"{name}.weight"].transpose(2, 3, 1, 0)
        return tf.nn.conv2d(x, kernel, stride, padding.upper()) + self.weights[f"{name}.bias"]

    def apply_filters(self, stack, x, filters, padding=None):
        """Apply convolutions of a list; without padding, the last one is "valid"."""
        for i, (_, _, stride) in enumerate(filters):
            is_last = i == len(filters) - 1
            default_padding = "valid" if is_last else "same"
            maps = self.convolve(f"{stack}.layers.{i}", x, stride, padding or default_padding)
            x = self.activate(maps)
        return x

    def apply_impala(self, stack, x):
        for section in range(3):
            maps = self.convolve(f"{stack}.layers.{4 * section}", x)
            x = tf.nn.max_pool2d(maps, 3, 2, "SAME")
            for block in (2, 3):
                name = f"{stack}.layers.{4 * section + block}"
                inner = self.activate(self.convolve(f"{name}.first", self.activate(x)))
                x = x + self.convolve(f"{name}.second", inner)
        return self.activate(x)

    def apply_dense(self, name, x):
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def apply_hidden(self, stack, x, activations):
        x = np.reshape(x, (len(x), -1))
        for i, activation in enumerate(activations):
            x = activation(self.apply_dense(f"{stack}.layers.{i}", x))
        return x


def compute_slowly(model, case, images):
    """Return outputs and values of a model; for a trunk, features and None."""
    network = SlowNetwork(model.get_weights(), case["conv_activation"])
    is_trunk = model.outputs is None
    x = images / 255
    if case["image_layout"] == "chw":
        x = x.transpose(0, 2, 3, 1)
    padding = case["conv_padding"]
    filters = FILTERS[case["filters"]] or DEFAULT_FILTERS[padding]
    is_impala = filters == "impala"
    activations = [ACTIVATIONS["relu"] for _ in case["post_fcnet_hiddens"]]
    if is_impala:
        activations.insert(0, network.activate)  # of the preset's own dense layer
    # With no_final_linear the last dense layer is the output; without one, the last convolution.
    last_layer_is_output = case["no_final_linear"] and not is_trunk
    last_conv_is_output = last_layer_is_output and not activations
    output_activation = None
    if last_layer_is_output and activations:
        output_activation = activations.pop()

    def compute_features(prefix):
        if is_impala:
            maps = network.apply_impala(f"{prefix}convs", x)
        elif last_conv_is_output:
            # Those before the last one keep their padding.
            maps = network.apply_filters(f"{prefix}convs", x, filters[:-1], padding or "same")
        else:
            maps = network.apply_filters(f"{prefix}convs", x, filters, padding)
        return maps, network.apply_hidden(f"{prefix}hidden", maps, activations)

    maps, features = compute_features("")
    if is_trunk:
        return features, None
    if last_conv_is_output:
        stride = filters[-1][2]
        last_maps = network.convolve("outputs.logits", maps, stride, padding or "valid")
        output = network.activate(last_maps)[:, 0, 0]
    else:
        output = network.apply_dense("outputs.logits", features)
        if output_activation is not None:
            output = output_activation(output)
    if case["free_log_std"]:
        log_std = network.weights["outputs.free_log_std.log_std"]
        output = np.concatenate([output, np.tile(log_std, (len(x), 1))], axis=1)
    value_features = features
    if not case["vf_share_layers"]:
        _, value_features = compute_features("value_")
    return output, network.apply_dense("outputs.value", value_features)[:, 0]


def assert_close(result, expected):
    """Compare arrays, relative to the largest number."""
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("case", CASES)
def test_outputs_and_values_match_tf_nn(framework, case, build_net):
    model, images = build_and_draw(build_net, framework, case, num_outputs=4)

    results = run_model(model, images)

    outputs, values = compute_slowly(model, case, images)
    assert_close(results.outputs, outputs)
    assert_close(results.values, values)


@pytest.mark.parametrize("case", CASES)
def test_features_of_a_trunk_match_tf_nn(framework, case, build_net):
    trunk, images = build_and_draw(build_net, framework, case, num_outputs=None)

    results = run_model(trunk, images)

    features, _ = compute_slowly(trunk, case, images)
    assert trunk.num_outputs == features.shape[1]
    assert_close(results.outputs, features)


@pytest.mark.parametrize("filters", [None, "impala"], ids=["default", "impala"])
@pytest.mark.parametrize("share", [True, False], ids=["shared-value", "separate-value"])
def test_gradients_are_the_same_in_both_frameworks(filters, share, build_net):
    config = {"conv_filters": filters, "vf_share_layers": share}
    torch_net = set_random_weights(build_net("torch", (13, 9, 2), **config), scale=0.1)
    tf_net = set_random_weights(build_net("tf", (13, 9, 2), **config), scale=0.1)
    images = np.random.default_rng(0).integers(0, 256, (3, 13, 9, 2), np.uint8)

    assert_same_gradients(tf_net, torch_net, images)


def test_trunk_has_weights_of_convolutions_only(framework, build_net):
    trunk = build_net(
        framework,
        (13, 9, 2),
        num_outputs=None,  # a trunk, without logits and value
        conv_filters=[[8, [13, 9], 1]],
        vf_share_layers=False,
        free_log_std=True,
        no_final_linear=True,
    )

    assert list(trunk.get_weights()) == ["convs.layers.0.weight", "convs.layers.0.bias"]
