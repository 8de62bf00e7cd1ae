"""Convolutions and pools: values and sizes; the default filters, the presets, and suggestions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
import torch
from hypothesis import given, settings, strategies as st
from properties import share
from scipy import signal

from rlcatalog.errors import ConfigError
from rlcatalog_tf import VisionNetwork as TFNet
from rlcatalog_torch import VisionNetwork as TorchNet
from rlcatalog_visionnet.convolutions import ConvSpec, PoolSpec, as_config, derived, working_list
from rlcatalog_visionnet.plan import plan
from rlcatalog_visionnet.tf import Conv as TFConv, Pool as TFPool
from rlcatalog_visionnet.torch import Conv as TorchConv, Pool as TorchPool

RANDOM = np.random.default_rng(0)


# --- one convolution ------------------------------------------------------------------------------


def draw_maps(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def draw_weights(spec):
    """Return random weights [out, in, kh, kw] and a random bias for a convolution."""
    weight = RANDOM.normal(size=TorchConv(spec).weight.shape).astype(np.float32)
    bias = RANDOM.normal(size=spec.channels).astype(np.float32)
    return weight, bias


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


@pytest.mark.parametrize("run_conv", [run_torch_conv, run_tf_conv])
@pytest.mark.parametrize(
    "spec",
    [
        # inputs, channels, kernel, stride, padding, size of the image
        ConvSpec(4, 3, (8, 8), (4, 4), "same", (21, 20)),
        ConvSpec(2, 3, (4, 4), (2, 2), "same", (21, 21)),  # margins of 1 and 2
        ConvSpec(2, 3, (4, 3), (2, 1), "valid", (9, 7)),
        ConvSpec(1, 2, (1, 2), (3, 4), "same", (10, 9)),  # strides larger than kernels
        ConvSpec(3, 2, (5, 5), (1, 1), "same", (2, 3)),  # a kernel larger than the image
        ConvSpec(2, 4, (5, 6), (1, 1), "valid", (5, 6)),  # one window: the whole image
        ConvSpec(2, 4, (3, 2), (3, 3), "valid", (5, 4)),  # one window: a part of it
        ConvSpec(2, 4, (4, 5), (9, 9), "same", (3, 2)),  # one window: the image and its margins
        ConvSpec(2, 4, (1, 2), (9, 9), "same", (3, 4)),  # one window, in the corner
    ],
    ids=lambda spec: f"{spec.size_in}-{spec.label}",
)
def test_convolution_matches_numpy(spec, run_conv, convolve_slowly):
    x = draw_maps(2, *spec.size_in, spec.inputs)
    weight, bias = draw_weights(spec)

    output = run_conv(spec, x, weight, bias)

    expected = convolve_slowly(x.astype(np.float64), weight, bias, spec.stride, spec.padding)
    assert expected.shape[1:3] == spec.size
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)


def test_convolution_in_numpy_matches_scipy(convolve_slowly):
    image = RANDOM.normal(size=(9, 8, 2))  # two channels
    weight = RANDOM.normal(size=(3, 2, 5, 3))  # three outputs

    output = convolve_slowly(image[None], weight, bias=np.zeros(3), stride=1, padding="same")

    for i in range(3):
        first = signal.correlate2d(image[:, :, 0], weight[i, 0], mode="same")
        second = signal.correlate2d(image[:, :, 1], weight[i, 1], mode="same")
        np.testing.assert_allclose(output[0, :, :, i], first + second, atol=1e-12)


pairs = st.tuples(st.integers(1, 6), st.integers(1, 6))


@settings(max_examples=share(80), deadline=None)
@given(
    size=st.tuples(st.integers(1, 14), st.integers(1, 14)),
    kernel=pairs,
    stride=pairs,
    padding=st.sampled_from(["valid", "same"]),
)
def test_any_convolution_has_the_size_of_its_spec(size, kernel, stride, padding):
    spec = ConvSpec(2, 3, kernel, stride, padding, size)
    if min(spec.size) < 1:
        assert kernel[0] > size[0] or kernel[1] > size[1]
        return
    x = draw_maps(2, *size, 2)
    weight, bias = draw_weights(spec)

    torch_output = run_torch_conv(spec, x, weight, bias)
    tf_output = run_tf_conv(spec, x, weight, bias)

    expected = tf.nn.conv2d(x, weight.transpose(2, 3, 1, 0), stride, padding.upper()) + bias
    assert expected.shape == (2, *spec.size, 3)
    assert torch_output.shape == expected.shape
    assert tf_output.shape == expected.shape
    np.testing.assert_allclose(torch_output, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(tf_output, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "size", [(1, 1), (2, 2), (1, 4), (5, 2), (5, 7), (6, 9), (9, 6), (8, 8)], ids=str
)
def test_frameworks_pool_alike_and_ignore_padding(size):
    x = draw_maps(2, *size, 3) - 5  # all negative: zeros of padding would be the largest
    spec = PoolSpec(3, size)

    torch_output = TorchPool(spec)(torch.from_numpy(x).permute(0, 3, 1, 2))
    tf_output = TFPool()(tf.constant(x))

    pooled = torch_output.permute(0, 2, 3, 1).numpy()
    np.testing.assert_array_equal(pooled, tf_output)
    assert pooled.shape[1:3] == spec.size
    assert pooled.max() < 0


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


def list_filters(network_plan):
    """Return the convolutions of a plan as a list for the config."""
    layers = network_plan.layers
    return as_config([(layer.channels, layer.kernel, layer.stride) for layer in layers])


@pytest.mark.parametrize("size", RLLIB_FILTERS, ids=str)
@pytest.mark.parametrize("layout", ["hwc", "chw"])
def test_default_filters_are_those_of_rllib(size, layout):
    shape = (*size, 4) if layout == "hwc" else (4, *size)

    network_plan = plan({"image_layout": layout}, shape, 2)

    *paddings, last_padding = [layer.padding for layer in network_plan.layers]
    last_size = (3, 3) if size == (64, 64) else (1, 1)  # as in RLlib
    channels = RLLIB_FILTERS[size][-1][0]
    assert list_filters(network_plan) == RLLIB_FILTERS[size]
    assert set(paddings) == {"same"}
    assert last_padding == "valid"
    assert network_plan.layers[-1].size == last_size
    assert network_plan.output.inputs == math.prod(last_size) * channels


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
    network_plan = plan({"conv_padding": padding}, (*size, channels), 2)
    layers = network_plan.layers
    features = 256
    if size == (10, 10) and padding is None:
        features = 32  # as in RLlib's filters for this size
    assert layers[-1].size == (1, 1)
    assert network_plan.output.inputs == features
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
def test_every_small_image_has_default_filters(padding):
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
def test_every_image_has_default_filters(size, channels, padding):
    check_default_filters(size, channels, padding)


# --- presets --------------------------------------------------------------------------------------


def test_nature_has_the_layers_of_the_paper():
    network_plan = plan({"conv_filters": "nature"}, (84, 84, 4), 6)

    assert list_filters(network_plan) == [[32, [8, 8], 4], [64, [4, 4], 2], [64, [3, 3], 1]]
    assert [layer.size for layer in network_plan.layers] == [(20, 20), (9, 9), (7, 7)]
    assert [layer.padding for layer in network_plan.layers] == ["valid", "valid", "valid"]
    assert network_plan.output.inputs == 7 * 7 * 64
    assert [layer.size for layer in network_plan.output.hidden] == [512]


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_nature_has_the_parameters_of_the_paper(cls, build_net):
    model = build_net(cls, (84, 84, 4), {"conv_filters": "nature"}, num_outputs=6)

    parameters = sum(array.size for array in model.get_weights().values())

    # The original network has 1,687,206 with 6 actions; the value layer has 512 + 1.
    assert parameters == 1_687_206 + 513


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_nature_matches_numpy(
    cls, build_net, draw_images, run_net, numpy_network, assert_same_results
):
    model = build_net(cls, (44, 38, 2), {"conv_filters": "nature"}, num_outputs=6)
    images = draw_images((44, 38, 2))

    results = run_net(model, images)

    network = numpy_network(model.get_weights())
    filters = [[32, 8, 4], [64, 4, 2], [64, 3, 1]]
    maps = network.apply_filters("convs", images / 255, filters, "valid")
    features = network.apply_hidden("hidden", maps, [network.activate])
    logits = network.apply_dense("outputs.logits", features)
    value = network.apply_dense("outputs.value", features)[:, 0]
    assert_same_results(results, (logits, value))


def test_impala_has_the_layers_of_the_paper():
    network_plan = plan({"conv_filters": "impala"}, (84, 84, 4), 6)

    layers = network_plan.layers
    kinds = [type(layer).__name__ for layer in layers]
    assert kinds == ["ConvSpec", "PoolSpec", "ResidualSpec", "ResidualSpec"] * 3
    assert [layer.channels for layer in layers[::4]] == [16, 32, 32]  # convolutions
    assert [layer.size for layer in layers[1::4]] == [(42, 42), (21, 21), (11, 11)]  # pools
    assert network_plan.output.inputs == 11 * 11 * 32
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
    shape = (*size, 3)
    # Without the layout, (1, 3, 3) would be an image with one channel in front.
    config = {"conv_padding": padding, "image_layout": "hwc"}
    requested = as_config(filters)
    suggested = as_config(working_list(filters, size, padding))

    try:
        network_plan = plan({**config, "conv_filters": requested}, shape, 2)
    except ConfigError as error:
        message = str(error)
    else:
        assert network_plan.layers[-1].size == (1, 1)
        return

    assert f"This list fits: {suggested}." in message
    assert suggested != requested
    network_plan = plan({**config, "conv_filters": suggested}, shape, 2)
    assert network_plan.layers[-1].size == (1, 1)
