"""The convolutional network's options in pairs, against NumPy and between the frameworks."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

from rlcatalog import Request, SpaceInfo
from rlcatalog.catalog import default_catalog
from rlcatalog_tf import VisionNetwork as TFNet
from rlcatalog_torch import VisionNetwork as TorchNet
from rlcatalog_visionnet.plugin import describe

# --- options in pairs -----------------------------------------------------------------------------

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
OPTIONS = {
    "conv_filters": list(FILTERS),
    "conv_activation": ["relu", "tanh", "softmax"],
    "conv_padding": [None, "same", "valid"],
    "conv_flatten": [False, True],
    "image_layout": ["hwc", "chw"],
    "image_scale": [None, False, 0.5],
    "dtype": [np.uint8, np.float32],
    "vf_share_layers": [True, False],
    "free_log_std": [False, True],
    "no_final_linear": [False, True],
    "post_fcnet_hiddens": [[], [8, 6]],
    "num_outputs": [4, None],
}


def is_valid(case):
    """Return whether the network takes a combination; the others are errors, tested elsewhere."""
    filters = case["conv_filters"]
    if filters == "impala":
        return case["conv_padding"] is None
    if filters == "stride over kernel":
        has_dense_output = bool(
            case["post_fcnet_hiddens"] or not case["no_final_linear"] or case["num_outputs"] is None
        )
        return case["conv_flatten"] and has_dense_output
    if filters == "to 1x1":
        return case["conv_padding"] != "valid"  # its last kernel would not fit
    return True


def list_pairs(case):
    """Return all pairs of (key, value) in a combination."""
    values = [(key, repr(value)) for key, value in case.items()]
    return set(itertools.combinations(values, 2))


def list_valid_cases():
    cases = []
    for values in itertools.product(*OPTIONS.values()):
        case = dict(zip(OPTIONS, values, strict=True))
        if is_valid(case):
            cases.append(case)
    return cases


def choose_cases():
    """Return few combinations with all pairs of values, found greedily in a sample."""
    sample = random.Random(0).sample(list_valid_cases(), 500)
    pairs = [list_pairs(case) for case in sample]
    chosen = []
    covered = set()
    while True:
        best = max(range(len(sample)), key=lambda i: len(pairs[i] - covered))
        if pairs[best] <= covered:
            return chosen
        covered |= pairs[best]
        chosen.append(sample[best])


CASES = choose_cases()


def label(case):
    return "-".join(str(getattr(value, "__name__", value)) for value in case.values())


def test_cases_cover_all_valid_pairs_of_values():
    covered = set()
    for case in CASES:
        covered |= list_pairs(case)

    valid = set()
    for case in list_valid_cases():
        valid |= list_pairs(case)

    assert covered == valid
    assert len(CASES) < 40


def test_some_pairs_of_values_are_not_valid():
    named_values = []
    for key, values in OPTIONS.items():
        named_values.append([(key, repr(value)) for value in values])
    all_pairs = set()
    for first, second in itertools.combinations(named_values, 2):
        all_pairs.update(itertools.product(first, second))

    covered = set()
    for case in CASES:
        covered |= list_pairs(case)

    assert covered < all_pairs


# --- building a case ------------------------------------------------------------------------------


def make_config(case):
    config = {key: case[key] for key in OPTIONS if key not in ("num_outputs", "dtype")}
    config["conv_filters"] = FILTERS[case["conv_filters"]]
    return config


def get_shape(case):
    """Return the shape of images 13x9 with two channels."""
    return (2, 13, 9) if case["image_layout"] == "chw" else (13, 9, 2)


@pytest.fixture
def build_case(build_net):
    def build(cls, case, seed=0):
        return build_net(
            cls, get_shape(case), make_config(case), case["num_outputs"], case["dtype"], seed
        )

    return build


@pytest.fixture
def draw_case(draw_images):
    """Draw three images for a case."""

    def draw(case):
        return draw_images(get_shape(case), case["dtype"])

    return draw


# --- NumPy ----------------------------------------------------------------------------------------


def scale_images(case, images):
    """Return images as float64, [B, H, W, C], scaled."""
    x = images.astype(np.float64)
    if case["image_layout"] == "chw":
        x = x.transpose(0, 2, 3, 1)
    if case["image_scale"] is None:
        return x / 255 if case["dtype"] == np.uint8 else x
    if case["image_scale"] is False:
        return x
    return x * case["image_scale"]


def compute_by_hand(case, network, images):
    """Return outputs and values of a NumPy network, in float64."""
    x = scale_images(case, images)
    padding = case["conv_padding"]
    filters = FILTERS[case["conv_filters"]]
    if filters is None:
        filters = DEFAULT_FILTERS[padding]
    is_impala = filters == "impala"
    activations = [network.activate_post for _ in case["post_fcnet_hiddens"]]
    if is_impala:
        activations.insert(0, network.activate)  # of the preset's own dense layer
    # With no_final_linear the last dense layer is the output; without one, the last convolution.
    last_layer_is_output = case["no_final_linear"] and case["num_outputs"] is not None
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
    if case["num_outputs"] is None:
        return features, None
    if last_conv_is_output:
        stride = filters[-1][2]
        last_maps = network.convolve("outputs.logits", maps, stride, padding or "valid")
        assert last_maps.shape[1:3] == (1, 1)
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


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
@pytest.mark.parametrize("case", CASES, ids=label)
def test_outputs_and_values_match_numpy(
    case, cls, assert_same_results, build_case, numpy_network, draw_case, run_net
):
    model = build_case(cls, case, seed=1)
    images = draw_case(case)

    results = run_net(model, images)

    network = numpy_network(model.get_weights(), case["conv_activation"])
    output, value = compute_by_hand(case, network, images)
    assert model.num_outputs == output.shape[1]
    assert_same_results(results, (output, value))


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
@pytest.mark.parametrize("case", CASES, ids=label)
def test_row_alone_matches_its_row_of_a_batch(
    case, cls, assert_same_results, build_case, draw_case, run_net
):
    model = build_case(cls, case)
    images = draw_case(case)
    output, value = run_net(model, images)

    alone = run_net(model, images[1:2])

    expected_value = None if value is None else value[1:2]
    assert_same_results(alone, (output[1:2], expected_value))


# --- PyTorch against TensorFlow -------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=label)
def test_frameworks_have_the_same_weights_in_one_order(case, build_case):
    torch_net = build_case(TorchNet, case)
    tf_net = build_case(TFNet, case)

    torch_shapes = {name: array.shape for name, array in torch_net.get_weights().items()}
    tf_shapes = {name: array.shape for name, array in tf_net.get_weights().items()}

    assert torch_shapes == tf_shapes
    assert list(torch_net.variables(as_dict=True)) == list(torch_shapes)
    assert list(tf_net.variables(as_dict=True)) == list(torch_shapes)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_frameworks_agree_after_weights_are_swapped(
    case, assert_same_results, build_case, draw_case, run_net
):
    torch_net = build_case(TorchNet, case, seed=1)
    tf_net = build_case(TFNet, case, seed=2)
    torch_weights = torch_net.get_weights()
    tf_weights = tf_net.get_weights()
    images = draw_case(case)
    torch_results = run_net(torch_net, images)
    tf_results = run_net(tf_net, images)

    tf_net.set_weights(torch_weights)
    torch_net.set_weights(tf_weights)

    assert_same_results(run_net(tf_net, images), torch_results)
    assert_same_results(run_net(torch_net, images), tf_results)


def compute_torch_gradients(model, images, factors):
    """Return the gradients of weighted outputs and squared values, by name."""
    output, _ = model({"obs": torch.from_numpy(images)})
    loss = (output * torch.from_numpy(factors)).sum()
    if model.outputs is not None:
        loss = loss + model.value_function().square().sum()
    weights = model.trainable_variables(as_dict=True)
    gradients = torch.autograd.grad(loss, list(weights.values()))
    return {name: gradient.numpy() for name, gradient in zip(weights, gradients, strict=True)}


def compute_tf_gradients(model, images, factors):
    """Return the same in TensorFlow, in PyTorch's layout."""
    with tf.GradientTape() as tape:
        output, _ = model({"obs": tf.constant(images)})
        loss = tf.reduce_sum(output * factors)
        if model.outputs is not None:
            loss += tf.reduce_sum(tf.square(model.value_function()))
    variables = model.trainable_variables(as_dict=True)
    gradients = tape.gradient(loss, list(variables.values()))
    torch_axes = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}  # by number of axes
    arrays = {}
    for name, gradient in zip(variables, gradients, strict=True):
        arrays[name] = gradient.numpy().transpose(torch_axes[len(gradient.shape)])
    return arrays


@pytest.mark.parametrize("case", CASES[::3], ids=label)
def test_frameworks_have_the_same_gradients(case, build_case, draw_case):
    torch_net = build_case(TorchNet, case, seed=1)
    tf_net = build_case(TFNet, case, seed=1)
    images = draw_case(case)
    factors = np.random.default_rng(3).normal(size=(len(images), torch_net.num_outputs))
    factors = factors.astype(np.float32)

    torch_gradients = compute_torch_gradients(torch_net, images, factors)
    tf_gradients = compute_tf_gradients(tf_net, images, factors)

    assert list(torch_gradients) == list(tf_gradients)
    for name, gradient in torch_gradients.items():
        assert np.abs(gradient).sum() > 0, name
        scale = max(1, np.abs(gradient).max())
        np.testing.assert_allclose(
            gradient / scale, tf_gradients[name] / scale, rtol=0, atol=1e-4, err_msg=name
        )


@pytest.mark.parametrize("case", CASES[::4], ids=label)
def test_traced_network_matches_the_eager_one(
    case, assert_same_results, build_case, draw_case, run_net
):
    model = build_case(TFNet, case, seed=2)
    images = draw_case(case)

    @tf.function(
        input_signature=[tf.TensorSpec([None, *images.shape[1:]], images.dtype)], autograph=False
    )
    def run_traced(x):
        output, _ = model({"obs": x})
        return output, tf.zeros([0]) if model.outputs is None else model.value_function()

    for rows in (1, 3):
        output, value = run_traced(tf.constant(images[:rows]))
        values = None if model.outputs is None else value.numpy()
        assert_same_results((output.numpy(), values), run_net(model, images[:rows]))


# --- the description ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=label)
def test_describe_lists_the_shapes_of_the_layers(case, build_case, draw_case):
    config = default_catalog().parse_config(make_config(case))
    space = SpaceInfo.read(spaces.Box(0, 255, get_shape(case), np.uint8))
    request = Request(space, None, config, None, get_shape(case), case["num_outputs"])
    model = build_case(TorchNet, case)
    shapes = []

    def record_shape(module, inputs, output):
        shape = tuple(output.shape[1:])
        if len(shape) == 3 and case["image_layout"] == "hwc":
            channels, height, width = shape
            shape = (height, width, channels)
        shapes.append(shape)

    layers = [*model.convs.layers, model.convs, *model.hidden.layers]
    if model.value_convs is not None:
        layers += [*model.value_convs.layers, model.value_convs, *model.value_hidden.layers]
    for layer in layers:
        layer.register_forward_hook(record_shape)
    output, _ = model({"obs": torch.from_numpy(draw_case(case))})
    if case["num_outputs"] is not None:
        shapes += [tuple(model.value_function().shape[1:]), tuple(output.shape[1:])]

    assert [stage.shape for stage in describe(request)] == shapes
