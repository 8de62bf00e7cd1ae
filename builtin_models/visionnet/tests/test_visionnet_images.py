"""Images in the convolutional network: scale, layout and filters."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from model_runs import assert_close, run_model, set_random_weights

import rlcatalog
from rlcatalog_tf import VisionNetwork as TFNet
from rlcatalog_torch import VisionNetwork as TorchNet

FOUR_ACTIONS = spaces.Discrete(4)


# --- scale ----------------------------------------------------------------------------------------


def build_identity_net(framework, image_space, image_scale=None):
    """Build a network for images of one pixel with two channels; its outputs are its inputs."""
    config = {
        "conv_filters": [[2, 1, 1]],
        "conv_activation": "linear",
        "image_layout": "hwc",
        "image_scale": image_scale,
    }
    cls = {"torch": TorchNet, "tf": TFNet}[framework]
    model = cls(image_space, FOUR_ACTIONS, 2, config, "net")
    weights = model.get_weights()
    weights["convs.layers.0.weight"] = np.eye(2).reshape(2, 2, 1, 1)
    weights["outputs.logits.weight"] = np.eye(2)
    model.set_weights(weights)
    return model


@pytest.mark.parametrize(
    ("dtype", "image_scale", "factor"),
    [
        # Integers are scaled by their bounds, here 100.
        pytest.param(np.uint8, None, 1 / 100, id="uint8-by-bounds"),
        pytest.param(np.int16, None, 1 / 100, id="int16-by-bounds"),
        pytest.param(np.float32, None, 1, id="float32-unscaled"),
        pytest.param(np.float64, None, 1, id="float64-unscaled"),
        pytest.param(np.uint8, False, 1, id="uint8-False"),
        pytest.param(np.uint8, 1, 1, id="uint8-integer-1"),
        pytest.param(np.uint8, 1.0, 1, id="uint8-float-1"),
        pytest.param(np.uint8, 0.1, 0.1, id="uint8-0.1"),
        pytest.param(np.float32, 0.1, 0.1, id="float32-0.1"),
        pytest.param(np.int8, 2, 2, id="int8-2"),
    ],
)
# A batch may reach the model as float32, whatever the space holds.
@pytest.mark.parametrize("as_float", [False, True], ids=["dtype-of-the-space", "as-float32"])
def test_images_are_scaled_by_bounds_or_image_scale(
    framework, dtype, image_scale, factor, as_float
):
    image_space = spaces.Box(0, 100, (1, 1, 2), dtype)
    model = build_identity_net(framework, image_space, image_scale)
    pixel = np.array([20, 100], np.float32 if as_float else dtype)

    results = run_model(model, pixel.reshape(1, 1, 1, 2))

    assert_close(results.outputs, [[20 * factor, 100 * factor]])


def test_filtered_images_are_not_scaled_again(framework):
    config = {"observation_filter": "MeanStdFilter", "filter_include": ["obs"]}
    images = spaces.Box(0, 255, (13, 9, 2), np.uint8)

    policy = rlcatalog.build(images, FOUR_ACTIONS, config, framework)

    assert policy.encoded_space.dtype == np.float32
    assert policy.model.input_scaling is None


# --- layout ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("filters", [None, "impala"], ids=["default", "impala"])
def test_image_layouts_differ_only_in_the_order_of_axes(framework, filters, build_net):
    hwc_net = set_random_weights(build_net(framework, (13, 9, 2), conv_filters=filters), scale=0.1)
    chw_net = build_net(framework, (2, 13, 9), conv_filters=filters, image_layout="chw")
    chw_net.set_weights(hwc_net.get_weights())
    images = np.random.default_rng(0).integers(0, 256, (3, 13, 9, 2), np.uint8)

    results = run_model(chw_net, images.transpose(0, 3, 1, 2))

    expected = run_model(hwc_net, images)
    assert_close(results.outputs, expected.outputs)


def record_inputs_of_convolutions(images):
    """Run a network on images 20x20 with 4 channels, and return what each convolution reads."""
    dtype = np.float32 if images.is_floating_point() else np.uint8
    space = spaces.Box(0, 255, (20, 20, 4), dtype)
    model = TorchNet(space, FOUR_ACTIONS, 4, {}, "net")
    inputs = []
    for layer in model.convs.layers:
        layer.register_forward_pre_hook(lambda module, arguments: inputs.append(arguments[0]))
    model({"obs": images})
    return inputs


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_inputs_of_convolutions_have_channels_last(dtype):
    inputs = record_inputs_of_convolutions(torch.zeros(3, 20, 20, 4, dtype=dtype))

    assert len(inputs) == 3  # three convolutions
    for maps in inputs:
        assert maps.is_contiguous(memory_format=torch.channels_last)


def test_float_images_are_not_copied():
    images = torch.zeros(3, 20, 20, 4)

    first_input, *_ = record_inputs_of_convolutions(images)

    assert first_input.data_ptr() == images.data_ptr()


# --- filters --------------------------------------------------------------------------------------


def test_rllib_example_filters_for_42x42_build_and_act(framework):
    images = spaces.Box(0, 255, (42, 42, 4), np.uint8)
    config = {"conv_filters": [[16, [4, 4], 2], [32, [4, 4], 2], [512, [11, 11], 1]]}
    policy = rlcatalog.build(images, FOUR_ACTIONS, config, framework)

    step = policy.act([images.sample(), images.sample()])

    weights = policy.model.get_weights()
    assert weights["convs.layers.2.weight"].shape == (512, 32, 11, 11)
    assert weights["outputs.logits.weight"].shape == (4, 512)  # 4 actions
    assert step.dist_inputs.shape == (2, 4)  # 2 images


@pytest.mark.parametrize("shape", [(84, 84, 4), (13, 9, 2)], ids=str)
def test_default_filters_are_not_written_into_the_config(framework, shape):
    images = spaces.Box(0, 255, shape, np.uint8)
    config = {"conv_filters": None, "post_fcnet_hiddens": [5], "no_final_linear": True}
    before = copy.deepcopy(config)

    policy = rlcatalog.build(images, FOUR_ACTIONS, config, framework)

    assert config == before
    assert policy.model.model_config["conv_filters"] is None
