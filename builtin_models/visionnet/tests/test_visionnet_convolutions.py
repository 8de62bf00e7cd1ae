"""Convolutions and pools: values and sizes; the default filters, the presets, and suggestions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
import torch
from hypothesis import example, given, settings, strategies as st
from properties import share

from rlcatalog.errors import ConfigError
from rlcatalog_visionnet.convolutions import ConvSpec, PoolSpec, as_config, derived, working_list
from rlcatalog_visionnet.plan import plan_layers
from rlcatalog_visionnet.tf import Conv as TFConv, Pool as TFPool
from rlcatalog_visionnet.torch import Conv as TorchConv, Pool as TorchPool

RANDOM = np.random.default_rng(0)


# --- one convolution ------------------------------------------------------------------------------


def draw(*shape):
    """Return random numbers."""
    return RANDOM.normal(size=shape).astype(np.float32)


def run_torch_conv(spec, x, weight, bias):
    """Convolve maps [B, H, W, C] in PyTorch."""
    conv = TorchConv(spec)
    with torch.no_grad():
        conv.weight.copy_(torch.from_numpy(weight))
        conv.bias.copy_(torch.from_numpy(bias))
        output = conv(torch.from_numpy(x).permute(0, 3, 1, 2))
    return output.permute(0, 2, 3, 1).numpy()


def run_tf_conv(spec, x, weight, bias):
    """Convolve maps [B, H, W, C] in TensorFlow."""
    conv = TFConv(spec)
    conv.kernel.assign(weight.transpose(2, 3, 1, 0))
    conv.bias.assign(bias)
    return conv(tf.constant(x)).numpy()


pairs = st.tuples(st.integers(1, 6), st.integers(1, 6))


@settings(max_examples=share(80), deadline=None)
@given(
    size=st.tuples(st.integers(1, 14), st.integers(1, 14)),
    kernel=pairs,
    stride=pairs,
    padding=st.sampled_from(["valid", "same"]),
)
@example(size=(10, 9), kernel=(1, 2), stride=(3, 4), padding="same")  # stride over kernel
@example(size=(2, 3), kernel=(5, 5), stride=(1, 1), padding="same")  # kernel over image
@example(size=(5, 6), kernel=(5, 6), stride=(1, 1), padding="valid")  # one window: the image
@example(size=(5, 4), kernel=(3, 2), stride=(3, 3), padding="valid")  # one window: a part of it
@example(size=(3, 2), kernel=(4, 5), stride=(9, 9), padding="same")  # one window with margins
@example(size=(3, 4), kernel=(1, 2), stride=(9, 9), padding="same")  # one window in the corner
def test_convolution_matches_tf_nn(size, kernel, stride, padding):
    spec = ConvSpec(2, 3, kernel, stride, padding, size)  # 2 inputs, 3 outputs
    if min(spec.size) < 1:  # without padding, the kernel does not fit into the image
        assert kernel[0] > size[0] or kernel[1] > size[1]
        return
    x = draw(2, *size, 2)
    weight = draw(3, 2, *kernel)
    bias = draw(3)

    torch_output = run_torch_conv(spec, x, weight, bias)
    tf_output = run_tf_conv(spec, x, weight, bias)

    expected = tf.nn.conv2d(x, weight.transpose(2, 3, 1, 0), stride, padding.upper()) + bias
    assert expected.shape == (2, *spec.size, 3)
    np.testing.assert_allclose(torch_output, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(tf_output, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "size", [(1, 1), (2, 2), (1, 4), (5, 2), (5, 7), (6, 9), (9, 6), (8, 8)], ids=str
)
def test_pool_matches_tf_nn(size):
    x = draw(2, *size, 3) - 5  # all negative: zeros of padding would be the largest

    torch_output = TorchPool(PoolSpec(3, size))(torch.from_numpy(x).permute(0, 3, 1, 2))
    tf_output = TFPool()(tf.constant(x))

    expected = tf.nn.max_pool2d(x, 3, 2, "SAME")
    assert expected.shape[1:3] == PoolSpec(3, size).size
    np.testing.assert_array_equal(torch_output.permute(0, 2, 3, 1), expected)
    np.testing.assert_array_equal(tf_output, expected)


# --- default filters ------------------------------------------------------------------------------

#: RLlib's default filters, written down a second time: size → filters.
RLLIB_FILTERS = {
    (480, 640): [[16, [24, 32], [14, 18]], [32, [6, 6], 4], [256, [9, 9], 1]],
    (240, 320): [[16, [12, 16], [7, 9]], [32, [6, 6], 4], [256, [9, 9], 1]],
    (96, 96): [[16, [8, 8], 4], [32, [4, 4], 2], [256, [11, 11], 2]],
    (84, 84): [[16, [8, 8], 4], [32, [4, 4], 2], [256, [11, 11], 1]],
    (64, 64): [[32, [4, 4], 2], [64, [4, 4], 2], [128, [4, 4], 2], [256, [4, 4], 2]],
    (42, 42): [[16, [4, 4], 2], [32, [4, 4], 2], [256, [11, 11], 1]],
    (10, 10): [[16, [5, 5], 2], [32, [5, 5], 2]],
}


def list_filters(layers):
    """Return convolutions as a list for the config."""
    return as_config([(layer.channels, layer.kernel, layer.stride) for layer in layers])


@pytest.mark.parametrize("size", RLLIB_FILTERS, ids=str)
@pytest.mark.parametrize("layout", ["hwc", "chw"])
def test_default_filters_are_those_of_rllib(size, layout):
    shape = (*size, 4) if layout == "hwc" else (4, *size)

    layers = plan_layers({"image_layout": layout}, shape, num_outputs=2).layers

    assert list_filters(layers) == RLLIB_FILTERS[size]
    *paddings, last_padding = [layer.padding for layer in layers]
    assert set(paddings) == {"same"}
    assert last_padding == "valid"


@pytest.mark.parametrize("size", RLLIB_FILTERS, ids=str)
def test_default_filters_of_rllib_end_with_one_place(size):
    layers = plan_layers({}, (*size, 4), num_outputs=2).layers

    if size == (64, 64):
        assert layers[-1].size == (3, 3)  # as in RLlib
    else:
        assert layers[-1].size == (1, 1)


@pytest.mark.parametrize("size", [(84, 84), (42, 42)], ids=str)
def test_derived_filters_agree_with_rllib(size):
    assert as_config(derived(size, None)) == RLLIB_FILTERS[size]


@pytest.mark.parametrize(
    ("size", "filters"),
    [
        ((210, 160), [[16, [8, 8], 4], [32, [8, 4], [4, 2]], [64, [4, 4], 2], [256, [7, 10], 1]]),
        ((7, 7), [[16, [3, 3], 1], [32, [3, 3], 1], [256, [7, 7], 1]]),
        ((3, 3), [[16, [3, 3], 1], [32, [3, 3], 1], [256, [3, 3], 1]]),
        ((1, 84), [[16, [1, 8], [1, 4]], [32, [1, 4], [1, 2]], [256, [1, 11], 1]]),
        (
            (512, 512),
            [[16, [8, 8], 4], [32, [8, 8], 4], [64, [4, 4], 2], [64, [4, 4], 2], [256, [8, 8], 1]],
        ),
    ],
    ids=str,
)
def test_derived_filters_for_other_sizes(size, filters):
    assert as_config(derived(size, None)) == filters


def check_default_filters(size, channels, padding):
    """Check that the filters reduce an image to 1x1, see every pixel, and are not too large."""
    network_plan = plan_layers({"conv_padding": padding}, (*size, channels), 2)
    layers = network_plan.layers
    features = 256
    if size == (10, 10) and padding is None:
        features = 32  # as in RLlib's filters for this size
    assert layers[-1].size == (1, 1)
    assert network_plan.output.num_inputs == features
    assert 2 <= len(layers) <= 6
    for layer in layers:
        assert layer.kernel[0] <= layer.size_in[0]
        assert layer.kernel[1] <= layer.size_in[1]
    for layer in layers[:-1]:
        # Windows that overlap or touch see every pixel.
        assert layer.stride[0] <= layer.kernel[0]
        assert layer.stride[1] <= layer.kernel[1]
    weights = sum(math.prod((layer.inputs, layer.channels, *layer.kernel)) for layer in layers)
    assert weights < 2.2e6 + 16 * 64 * channels


@pytest.mark.parametrize("padding", [None, "same", "valid"])
def test_default_filters_fit_every_small_image(padding):
    for height in range(1, 34):
        for width in range(1, 34):
            check_default_filters((height, width), 3, padding)


sizes_without_rllib_filters = st.tuples(st.integers(1, 512), st.integers(1, 512)).filter(
    lambda size: size not in RLLIB_FILTERS
)


@settings(max_examples=share(150), deadline=None)
@given(
    size=sizes_without_rllib_filters,
    channels=st.integers(1, 12),
    padding=st.sampled_from([None, "same", "valid"]),
)
def test_default_filters_fit_images_of_any_size(size, channels, padding):
    check_default_filters(size, channels, padding)


# --- presets --------------------------------------------------------------------------------------


def test_nature_has_the_layers_of_the_paper():
    network_plan = plan_layers({"conv_filters": "nature"}, (84, 84, 4), num_outputs=6)

    layers = network_plan.layers
    assert list_filters(layers) == [[32, [8, 8], 4], [64, [4, 4], 2], [64, [3, 3], 1]]
    assert [layer.size for layer in layers] == [(20, 20), (9, 9), (7, 7)]
    assert [layer.padding for layer in layers] == ["valid", "valid", "valid"]
    assert network_plan.output.num_inputs == 7 * 7 * 64
    assert [layer.size for layer in network_plan.output.hidden] == [512]


def test_nature_has_the_parameters_of_the_paper(framework, build_net):
    model = build_net(framework, (84, 84, 4), num_outputs=6, conv_filters="nature")

    parameters = sum(array.size for array in model.get_weights().values())

    # The original network has 1,687,206 with 6 actions; the value layer has 512 + 1.
    assert parameters == 1_687_206 + 513


def test_impala_has_the_layers_of_the_paper():
    network_plan = plan_layers({"conv_filters": "impala"}, (84, 84, 4), num_outputs=6)

    # Three times: a convolution, a pooling that halves the size, two residual blocks.
    layers = [(type(layer).__name__, layer.channels, layer.size) for layer in network_plan.layers]
    assert layers == [
        ("ConvSpec", 16, (84, 84)),
        ("PoolSpec", 16, (42, 42)),
        ("ResidualSpec", 16, (42, 42)),
        ("ResidualSpec", 16, (42, 42)),
        ("ConvSpec", 32, (42, 42)),
        ("PoolSpec", 32, (21, 21)),
        ("ResidualSpec", 32, (21, 21)),
        ("ResidualSpec", 32, (21, 21)),
        ("ConvSpec", 32, (21, 21)),
        ("PoolSpec", 32, (11, 11)),
        ("ResidualSpec", 32, (11, 11)),
        ("ResidualSpec", 32, (11, 11)),
    ]
    assert [layer.size for layer in network_plan.output.hidden] == [256]
    assert network_plan.activation == "relu"


# --- suggestions ----------------------------------------------------------------------------------


@settings(max_examples=share(150), deadline=None)
@given(
    size=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    filters=st.lists(st.tuples(st.integers(1, 9), pairs, pairs), min_size=1, max_size=4),
    padding=st.sampled_from([None, "same", "valid"]),
)
def test_filters_fit_or_an_error_suggests_others_that_do(size, filters, padding):
    def layers_of(filters):
        # Without the layout, (1, 3, 3) would be an image with one channel in front.
        config = {"conv_filters": filters, "conv_padding": padding, "image_layout": "hwc"}
        return plan_layers(config, (*size, 3), num_outputs=2).layers

    suggested = as_config(working_list(filters, size, padding))

    try:
        layers = layers_of(as_config(filters))
    except ConfigError as error:
        message = str(error)
    else:
        assert layers[-1].size == (1, 1)  # they fit
        return

    assert f"This list fits: {suggested}." in message
    assert layers_of(suggested)[-1].size == (1, 1)
