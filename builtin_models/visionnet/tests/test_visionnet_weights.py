"""Weights of the convolutional network: initial values, layout, memory layout, and the value."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import tensorflow as tf
import torch
from builders import to_array
from model_runs import (
    add_to_weights,
    assert_close,
    compute_gradients,
    run_model,
    set_random_weights,
)
from scipy import stats

#: Three images 13x9 with two channels.
IMAGES = np.random.default_rng(0).integers(0, 256, (3, 13, 9, 2), np.uint8)
THREE_CONVOLUTIONS = [[6, 4, 2], [16, 3, 1], [8, [7, 5], 1]]


# --- initial values -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filters", "name", "fan_sum"),
    [
        # A kernel of 3x3 reads 9 numbers of each input, and 9 of each output read a number.
        pytest.param("nature", "convs.layers.2.weight", 9 * (64 + 64), id="convolution"),
        # The dense layer reads 2x1 places of 64 maps.
        pytest.param("nature", "hidden.layers.0.weight", 2 * 1 * 64 + 512, id="dense"),
        pytest.param("impala", "convs.layers.6.first.weight", 9 * (32 + 32), id="residual"),
    ],
)
def test_initial_kernels_are_glorot_uniform(framework, filters, name, fan_sum, build_net):
    torch.manual_seed(0)
    tf.random.set_seed(0)

    kernel = build_net(framework, (48, 40, 4), conv_filters=filters).get_weights()[name]

    bound = np.sqrt(6 / fan_sum)
    glorot_uniform = stats.uniform(-bound, 2 * bound)
    values = kernel.ravel()[:20_000].astype(np.float64)
    assert stats.kstest(values, glorot_uniform.cdf).pvalue > 1e-4
    # The comparison is sharp enough: values that are 10 % too large do not pass it.
    assert stats.kstest(values * 1.1, glorot_uniform.cdf).pvalue < 1e-4


@pytest.mark.parametrize("filters", ["nature", "impala"])
def test_initial_biases_are_zero(framework, filters, build_net):
    weights = build_net(framework, (48, 40, 4), conv_filters=filters).get_weights()

    biases = {name: array for name, array in weights.items() if name.endswith("bias")}
    assert len(biases) > 4
    for name, bias in biases.items():
        np.testing.assert_array_equal(bias, 0, err_msg=name)


def test_initial_output_layers_have_rows_of_norm_one_hundredth(framework, build_net):
    weights = build_net(framework, (13, 9, 2)).get_weights()

    for name in ("outputs.logits.weight", "outputs.value.weight"):
        norms = np.linalg.norm(weights[name], axis=1)
        np.testing.assert_allclose(norms, 0.01, rtol=1e-5)


@pytest.mark.parametrize(
    "layer",
    [
        "convs.layers.0",
        "convs.layers.2",
        "value_convs.layers.0",
        "hidden.layers.0",  # the dense layer of "nature"
        "value_hidden.layers.0",
    ],
)
def test_conv_initializers_reach_all_layers_of_a_preset(framework, layer, build_net):
    weights = build_net(
        framework,
        (40, 40, 1),
        conv_filters="nature",
        conv_kernel_initializer="constant",
        conv_kernel_initializer_config={"val": 0.25},
        conv_bias_initializer="ones",
        vf_share_layers=False,
    ).get_weights()

    np.testing.assert_array_equal(weights[f"{layer}.weight"], 0.25)
    np.testing.assert_array_equal(weights[f"{layer}.bias"], 1)


@pytest.mark.parametrize("name", ["hidden.layers.1.weight", "outputs.logits.weight"])
def test_conv_initializers_miss_post_layers_and_outputs(framework, name, build_net):
    weights = build_net(
        framework,
        (40, 40, 1),
        conv_filters="nature",
        conv_kernel_initializer="ones",
        post_fcnet_hiddens=[6],
    ).get_weights()

    assert (weights[name] != 1).all()


def test_convolution_as_output_keeps_its_initializer(framework, build_net):
    weights = build_net(
        framework,
        (13, 9, 2),
        num_outputs=6,
        conv_kernel_initializer="ones",
        no_final_linear=True,
        free_log_std=True,
    ).get_weights()

    # The last of the default filters is the output; it covers 7x9 places of 32 maps.
    kernel = weights["outputs.logits.weight"]
    assert kernel.shape == (3, 32, 7, 9)  # 3 means; the 3 log stds have no inputs
    np.testing.assert_array_equal(kernel, 1)


def test_torch_initializer_receives_kernels_in_torch_layout(build_net):
    shapes = []

    def record_shape(tensor):
        shapes.append(tuple(tensor.shape))

    filters = [[6, 4, 2], [16, 3, 1], [8, [7, 5], 1]]  # [channels, kernel, stride]
    build_net("torch", (13, 9, 2), conv_filters=filters, conv_kernel_initializer=record_shape)

    # [outputs, inputs, height, width]
    assert shapes == [(6, 2, 4, 4), (16, 6, 3, 3), (8, 16, 7, 5)]


def test_keras_initializer_receives_kernels_in_keras_layout(build_net):
    shapes = []

    def record_shape(shape, dtype=None):
        shapes.append(tuple(shape))
        return tf.zeros(shape)

    filters = [[6, 4, 2], [16, 3, 1], [8, [7, 5], 1]]  # [channels, kernel, stride]
    build_net("tf", (13, 9, 2), conv_filters=filters, conv_kernel_initializer=record_shape)

    # [height, width, inputs, outputs]
    assert shapes == [(4, 4, 2, 6), (3, 3, 6, 16), (7, 5, 16, 8)]


def test_get_weights_has_kernels_in_torch_layout(framework, build_net):
    filters = [[6, 4, 2], [16, 3, 1], [8, [7, 5], 1]]  # [channels, kernel, stride]

    weights = build_net(framework, (13, 9, 2), conv_filters=filters).get_weights()

    # [outputs, inputs, height, width]
    assert weights["convs.layers.0.weight"].shape == (6, 2, 4, 4)
    assert weights["convs.layers.1.weight"].shape == (16, 6, 3, 3)
    assert weights["convs.layers.2.weight"].shape == (8, 16, 7, 5)


def test_activation_with_parameters_is_trained(build_net):
    model = build_net(
        "torch",
        (13, 9, 2),
        conv_filters=THREE_CONVOLUTIONS,
        conv_activation=torch.nn.PReLU,
        vf_share_layers=False,
    )
    set_random_weights(model, scale=0.1)

    gradients = compute_gradients(model, IMAGES)

    slopes = [gradient for name, gradient in gradients.items() if "activate" in name]
    assert len(slopes) == 6  # 3 layers of the policy and 3 of the value, none shared
    assert all(slope != 0 for slope in slopes)


# --- memory layout --------------------------------------------------------------------------------


def has_kernels_with_channels_last(model):
    """Return whether all kernels lie in memory as PyTorch's fastest convolutions read them."""
    kernels = [weight for weight in model.parameters() if weight.dim() == 4]
    assert kernels
    return all(kernel.is_contiguous(memory_format=torch.channels_last) for kernel in kernels)


def load_state_dict(model, build_another):
    other = build_another()
    other.load_state_dict(model.state_dict())
    return other


def set_weights(model, build_another):
    other = build_another()
    other.set_weights(model.get_weights())
    return other


def copy_by_pickle(model, build_another):
    return pickle.loads(pickle.dumps(model))


def copy_deeply(model, build_another):
    return copy.deepcopy(model)


def train_without_change(model, build_another):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    outputs, _ = model({"obs": torch.from_numpy(IMAGES)})
    (outputs.sum() + model.value_function().sum()).backward()
    optimizer.step()
    return model


@pytest.mark.parametrize(
    "copy_model",
    [load_state_dict, set_weights, copy_by_pickle, copy_deeply, train_without_change],
)
def test_copies_keep_channels_last(copy_model, build_net):
    def build():
        return build_net("torch", (13, 9, 2), conv_filters=THREE_CONVOLUTIONS)

    model = build()
    before = run_model(model, IMAGES)  # copies must cope with the outputs it keeps
    assert has_kernels_with_channels_last(model)

    other = copy_model(model, build)

    assert has_kernels_with_channels_last(other)
    assert_close(run_model(other, IMAGES).outputs, before.outputs)


@pytest.fixture
def model_with_channels_first(build_net):
    """A network with weights in PyTorch's usual layout, as an assigned state dict has them."""
    model = build_net("torch", (13, 9, 2), conv_filters=THREE_CONVOLUTIONS)
    weights = {}
    for name, weight in model.named_parameters():
        weights[name] = weight.detach().clone(memory_format=torch.contiguous_format)
    model.load_state_dict(weights, assign=True)
    assert not has_kernels_with_channels_last(model)
    return model


def test_kernels_with_channels_first_give_the_same_results(model_with_channels_first, build_net):
    model = build_net("torch", (13, 9, 2), conv_filters=THREE_CONVOLUTIONS)
    model.set_weights(model_with_channels_first.get_weights())

    results = run_model(model_with_channels_first, IMAGES)

    assert_close(results.outputs, run_model(model, IMAGES).outputs)


def test_kernels_with_channels_first_have_gradients(model_with_channels_first):
    gradients = compute_gradients(model_with_channels_first, IMAGES)

    assert all(gradient.any() for gradient in gradients.values())


@pytest.mark.parametrize("filters", [None, "nature", "impala"])
def test_fused_adam_updates_like_plain_adam(filters, build_net):
    # Fused Adam on the CPU errs if a weight and its gradient differ in memory layout.
    images = np.random.default_rng(0).integers(0, 256, (4, 42, 42, 2), np.uint8)
    fused_net = build_net("torch", (42, 42, 2), conv_filters=filters)
    plain_net = copy.deepcopy(fused_net)

    train_three_steps(fused_net, torch.optim.Adam(fused_net.parameters(), 1e-2, fused=True), images)
    train_three_steps(plain_net, torch.optim.Adam(plain_net.parameters(), 1e-2), images)

    expected = plain_net.get_weights()
    for name, weight in fused_net.get_weights().items():
        # Adam divides by the size of a gradient, so rounding may move a weight whose gradient is
        # almost 0. A wrong layout moves nearly all of them.
        is_equal = np.isclose(weight, expected[name], rtol=1e-3, atol=1e-4)
        assert is_equal.mean() > 0.999, name


def train_three_steps(net, optimizer, images):
    for _ in range(3):
        outputs, _ = net({"obs": torch.from_numpy(images)})
        optimizer.zero_grad()
        (outputs.square().sum() + net.value_function().sum()).backward()
        optimizer.step()


# --- the value ------------------------------------------------------------------------------------


@pytest.mark.parametrize("no_final_linear", [False, True])
@pytest.mark.parametrize("share", [True, False], ids=["shared-value", "separate-value"])
def test_value_function_runs_no_second_pass(framework, share, no_final_linear, build_net):
    model = build_net(framework, (13, 9, 2), vf_share_layers=share, no_final_linear=no_final_linear)
    set_random_weights(model, scale=0.1)
    values = run_model(model, IMAGES).values

    # A second pass through the convolutions would give other values.
    add_to_weights(model, 1, prefixes=["convs", "value_convs"])

    assert_close(to_array(model.value_function()), values)
    assert not np.allclose(run_model(model, IMAGES).values, values)
