"""Convolutions: their values and sizes against a slow one and the frameworks' own; the lists by
size and by name.
"""

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

RNG = np.random.default_rng(0)


# --- one convolution ------------------------------------------------------------------------------


def outputs_of(spec, x):
    """Weights, bias and outputs `[B, H, W, C]` of a convolution in PyTorch and in TensorFlow."""
    first, second = TorchConv(spec), TFConv(spec)
    weight = RNG.normal(size=first.weight.shape).astype(np.float32)
    bias = RNG.normal(size=spec.channels).astype(np.float32)
    with torch.no_grad():
        first.weight.copy_(torch.from_numpy(weight))
        first.bias.copy_(torch.from_numpy(bias))
        here = first(torch.from_numpy(x).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).numpy()
    second.kernel.assign(weight.transpose(2, 3, 1, 0))
    second.bias.assign(bias)
    return weight, bias, here, second(tf.constant(x)).numpy()


SPECS = [
    ConvSpec(4, 3, (8, 8), (4, 4), "same", (21, 20)),
    ConvSpec(2, 3, (4, 4), (2, 2), "same", (21, 21)),  # margins of 1 and 2
    ConvSpec(2, 3, (4, 3), (2, 1), "valid", (9, 7)),
    ConvSpec(1, 2, (1, 2), (3, 4), "same", (10, 9)),  # strides larger than kernels
    ConvSpec(3, 2, (5, 5), (1, 1), "same", (2, 3)),  # a kernel larger than the image
    ConvSpec(2, 4, (5, 6), (1, 1), "valid", (5, 6)),  # one window: the whole image
    ConvSpec(2, 4, (3, 2), (3, 3), "valid", (5, 4)),  # one window: a part of it
    ConvSpec(2, 4, (4, 5), (9, 9), "same", (3, 2)),  # one window: the image and its margins
    ConvSpec(2, 4, (1, 2), (9, 9), "same", (3, 4)),  # one window, in the corner
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.size_in}-{spec.label}")
def test_a_convolution_is_what_a_slow_one_gives(spec, convolve):
    x = RNG.normal(size=(2, *spec.size_in, spec.inputs)).astype(np.float32)
    weight, bias, *found = outputs_of(spec, x)
    expected = convolve(x.astype(np.float64), weight, bias, spec.stride, spec.padding)
    assert expected.shape[1:3] == spec.size
    for output in found:
        np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)


def test_the_slow_convolution_is_scipys(convolve):
    x, weight = RNG.normal(size=(1, 9, 8, 2)), RNG.normal(size=(3, 2, 5, 3))
    found = convolve(x, weight, np.zeros(3), 1, "same")
    for i in range(3):
        expected = sum(
            signal.correlate2d(x[0, :, :, c], weight[i, c], mode="same") for c in range(2)
        )
        np.testing.assert_allclose(found[0, :, :, i], expected, atol=1e-12)


pairs = st.tuples(st.integers(1, 6), st.integers(1, 6))


@settings(max_examples=share(80), deadline=None)
@given(
    size=st.tuples(st.integers(1, 14), st.integers(1, 14)),
    kernel=pairs,
    stride=pairs,
    same=st.booleans(),
)
def test_any_convolution_has_the_size_it_was_computed_to_have(size, kernel, stride, same):
    spec = ConvSpec(2, 3, kernel, stride, "same" if same else "valid", size)
    x = RNG.normal(size=(2, *size, 2)).astype(np.float32)
    if min(spec.size) < 1:
        assert any(k > n for k, n in zip(kernel, size, strict=True))
        return
    weight, bias, here, there = outputs_of(spec, x)
    plain = (
        tf.nn.conv2d(x, weight.transpose(2, 3, 1, 0), stride, spec.padding.upper()).numpy() + bias
    )
    assert here.shape == there.shape == plain.shape == (2, *spec.size, 3)
    np.testing.assert_allclose(here, plain, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(there, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (1, 4), (5, 2), (5, 7), (6, 9), (9, 6), (8, 8)])
def test_a_pool_pads_the_same_in_both(size):
    x = RNG.normal(size=(2, *size, 3)).astype(np.float32) - 5  # padding with zeros would show
    here = (
        TorchPool(PoolSpec(3, size))(torch.from_numpy(x).permute(0, 3, 1, 2))
        .permute(0, 2, 3, 1)
        .numpy()
    )
    np.testing.assert_array_equal(here, TFPool()(tf.constant(x)))
    assert here.shape[1:3] == PoolSpec(3, size).size
    assert here.max() < 0


# --- lists ----------------------------------------------------------------------------------------

#: RLlib's lists, written down a second time: size → list.
RLLIB = {
    (480, 640): [[16, [24, 32], [14, 18]], [32, [6, 6], 4], [256, [9, 9], 1]],
    (240, 320): [[16, [12, 16], [7, 9]], [32, [6, 6], 4], [256, [9, 9], 1]],
    (96, 96): [[16, [8, 8], 4], [32, [4, 4], 2], [256, [11, 11], 2]],
    (84, 84): [[16, [8, 8], 4], [32, [4, 4], 2], [256, [11, 11], 1]],
    (64, 64): [[32, [4, 4], 2], [64, [4, 4], 2], [128, [4, 4], 2], [256, [4, 4], 2]],
    (42, 42): [[16, [4, 4], 2], [32, [4, 4], 2], [256, [11, 11], 1]],
    (10, 10): [[16, [5, 5], 2], [32, [5, 5], 2]],
}


@pytest.mark.parametrize("size", RLLIB, ids=str)
@pytest.mark.parametrize("layout", ["hwc", "chw"])
def test_rllibs_lists(size, layout):
    shape = (*size, 4) if layout == "hwc" else (4, *size)
    found = plan({"image_layout": layout}, shape, 2)
    assert as_config([(c.channels, c.kernel, c.stride) for c in found.layers]) == RLLIB[size]
    assert [c.padding for c in found.layers] == ["same"] * (len(found.layers) - 1) + ["valid"]
    last = (3, 3) if size == (64, 64) else (1, 1)
    assert found.layers[-1].size == last
    assert found.output.inputs == math.prod(last) * RLLIB[size][-1][0]


@pytest.mark.parametrize("size", [(84, 84), (42, 42)])
def test_the_rule_agrees_with_rllibs_lists(size):
    assert as_config(derived(size, None)) == RLLIB[size]


def check_derived(size, channels, padding):
    found = plan({"conv_padding": padding}, (*size, channels), 2)
    specs = found.layers
    assert specs[-1].size == (1, 1)
    # RLlib's for 10x10.
    assert found.output.inputs == (32 if (size, padding) == ((10, 10), None) else 256)
    assert 2 <= len(specs) <= 6
    for spec in specs:
        assert all(k <= n for k, n in zip(spec.kernel, spec.size_in, strict=True))
    for spec in specs[:-1]:
        # Every pixel is seen.
        assert all(s <= k for s, k in zip(spec.stride, spec.kernel, strict=True))
    assert (
        sum(math.prod((c.inputs, c.channels, *c.kernel)) for c in specs)
        < 2.2e6 + 16 * 64 * channels
    )


@pytest.mark.parametrize("padding", [None, "same", "valid"])
def test_every_small_image_has_a_default(padding):
    for height in range(1, 34):
        for width in range(1, 34):
            check_derived((height, width), 3, padding)


@settings(max_examples=share(150), deadline=None)
@given(
    size=st.tuples(st.integers(1, 512), st.integers(1, 512)).filter(lambda size: size not in RLLIB),
    channels=st.integers(1, 12),
    padding=st.sampled_from([None, "same", "valid"]),
)
def test_every_image_has_a_default(size, channels, padding):
    check_derived(size, channels, padding)


@pytest.mark.parametrize(
    ("size", "expected"),
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
def test_the_rule_by_example(size, expected):
    assert as_config(derived(size, None)) == expected


def test_the_nature_network(build, by_hand, images, assert_close, run):
    found = plan({"conv_filters": "nature"}, (84, 84, 4), 6)
    assert as_config([(c.channels, c.kernel, c.stride) for c in found.layers]) == [
        [32, [8, 8], 4],
        [64, [4, 4], 2],
        [64, [3, 3], 1],
    ]
    assert [c.size for c in found.layers] == [(20, 20), (9, 9), (7, 7)]
    assert [c.padding for c in found.layers] == ["valid"] * 3
    assert found.output.inputs == 3136
    assert [layer.size for layer in found.output.hidden] == [512]
    # The number of parameters of the original network with 6 actions, and a value layer of 512 + 1.
    for cls in (TorchNet, TFNet):
        model = build(cls, (84, 84, 4), {"conv_filters": "nature"}, 6)
        assert sum(array.size for array in model.get_weights().values()) == 1_687_206 + 513
    x = images((44, 38, 2))
    filters = [[32, 8, 4], [64, 4, 2], [64, 3, 1]]
    for cls in (TorchNet, TFNet):
        model = build(cls, (44, 38, 2), {"conv_filters": "nature"}, 6)
        net = by_hand(model.get_weights())
        features = net.hidden(
            "hidden", net.listed("convs", x / 255, filters, "valid"), [net.activate]
        )
        expected = net.dense("outputs.logits", features), net.dense("outputs.value", features)[:, 0]
        assert_close(run(model, x), expected)


def test_the_impala_network():
    found = plan({"conv_filters": "impala"}, (84, 84, 4), 6)
    names = [type(layer).__name__.removesuffix("Spec") for layer in found.layers]
    assert names == ["Conv", "Pool", "Residual", "Residual"] * 3
    assert [layer.channels for layer in found.layers[::4]] == [16, 32, 32]
    assert [layer.size for layer in found.layers[1::4]] == [(42, 42), (21, 21), (11, 11)]
    assert found.output.inputs == 11 * 11 * 32
    assert [layer.size for layer in found.output.hidden] == [256]
    assert found.activation == "relu"


# --- lists that do not suit, and those offered instead --------------------------------------------


@settings(max_examples=share(150), deadline=None)
@given(
    size=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    filters=st.lists(st.tuples(st.integers(1, 9), pairs, pairs), min_size=1, max_size=4),
    padding=st.sampled_from([None, "same", "valid"]),
)
def test_a_list_works_or_another_is_offered_that_does(size, filters, padding):
    shape, asked = (*size, 3), as_config(filters)
    offered = as_config(working_list(filters, size, padding))
    try:
        found = plan({"conv_filters": asked, "conv_padding": padding}, shape, 2)
    except ConfigError as error:
        message = str(error)
    else:
        assert found.layers[-1].size == (1, 1)
        return
    assert f"This list fits: {offered}." in message
    assert offered != asked
    assert plan({"conv_filters": offered, "conv_padding": padding}, shape, 2).layers[-1].size == (
        1,
        1,
    )
