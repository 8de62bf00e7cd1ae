"""Images in the convolutional network: scale, layout and size, and policies that act on them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog_tf import VisionNetwork as TFNet
from rlcatalog_torch import VisionNetwork as TorchNet

both_classes = pytest.mark.parametrize("cls", [TorchNet, TFNet])
both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
FOUR_ACTIONS = spaces.Discrete(4)


# --- scale ----------------------------------------------------------------------------------------


@both_classes
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
    cls, dtype, image_scale, factor, as_float, build_net, run_net, assert_same_results
):
    # One convolution that sees the whole image.
    config = {"conv_filters": [[3, [5, 4], 1]], "conv_activation": None}
    weights = build_net(cls, (5, 4, 2), config).get_weights()
    space = spaces.Box(0, 100, (5, 4, 2), dtype)
    model = cls(
        space,
        FOUR_ACTIONS,
        num_outputs=4,
        model_config={**config, "image_scale": image_scale},
        name="net",
    )
    model.set_weights(weights)
    space.seed(0)
    images = np.stack([space.sample() for _ in range(3)])
    if as_float:
        images = images.astype(np.float32)
    before = images.copy()

    outputs, _ = run_net(model, images)

    pixels = images.astype(np.float64) * factor
    features = np.einsum("bhwc,ochw->bo", pixels, weights["convs.layers.0.weight"])
    features += weights["convs.layers.0.bias"]
    logits = features @ weights["outputs.logits.weight"].T + weights["outputs.logits.bias"]
    assert_same_results([outputs], [logits])
    np.testing.assert_array_equal(images, before)  # not scaled in place


# --- layout ---------------------------------------------------------------------------------------


@both_classes
@pytest.mark.parametrize("filters", [None, "impala"], ids=["default", "impala"])
def test_image_layouts_differ_only_in_the_order_of_axes(
    cls, filters, build_net, draw_images, run_net, assert_same_results
):
    hwc_net = build_net(cls, (13, 9, 2), {"conv_filters": filters})
    chw_net = build_net(cls, (2, 13, 9), {"conv_filters": filters, "image_layout": "chw"})
    chw_net.set_weights(hwc_net.get_weights())
    images = draw_images((13, 9, 2))
    transposed = np.ascontiguousarray(images.transpose(0, 3, 1, 2))

    results = run_net(chw_net, transposed)

    assert_same_results(results, run_net(hwc_net, images), tolerance=1e-6)


@pytest.fixture
def record_inputs_of_convolutions(build_net):
    """Run a network on images, and return the input of each of its three convolutions."""

    def record(images, dtype):
        model = build_net(TorchNet, (20, 20, 4), dtype=dtype)
        inputs = []
        for layer in model.convs.layers:
            layer.register_forward_pre_hook(lambda module, arguments: inputs.append(arguments[0]))
        model({"obs": images})
        assert len(inputs) == 3
        return inputs

    return record


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_inputs_of_convolutions_have_channels_last(
    dtype, draw_images, record_inputs_of_convolutions
):
    images = torch.from_numpy(draw_images((20, 20, 4), dtype))

    for maps in record_inputs_of_convolutions(images, dtype):
        assert maps.is_contiguous(memory_format=torch.channels_last)


def test_float_images_are_not_copied(draw_images, record_inputs_of_convolutions):
    images = torch.from_numpy(draw_images((20, 20, 4), np.float32))

    first_input, _, _ = record_inputs_of_convolutions(images, np.float32)

    assert first_input.data_ptr() == images.data_ptr()


def test_byte_images_are_converted_to_new_tensors(draw_images, record_inputs_of_convolutions):
    images = torch.from_numpy(draw_images((20, 20, 4), np.uint8))

    first_input, _, _ = record_inputs_of_convolutions(images, np.uint8)

    assert first_input.data_ptr() != images.data_ptr()


# --- size -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape",
    [
        (84, 84, 4),
        (210, 160, 3),
        (42, 42, 4),
        (64, 64, 3),
        (96, 96, 1),
        (10, 10, 7),
        (7, 7, 3),
        (3, 3, 1),
        (1, 1, 1),
        (2, 30, 5),
        (120, 50, 3),
    ],
    ids=str,
)
def test_frameworks_agree_on_the_default_filters_of_a_size(
    shape, build_net, draw_images, run_net, assert_same_results
):
    torch_net = build_net(TorchNet, shape, num_outputs=4)
    tf_net = build_net(TFNet, shape, num_outputs=4)
    tf_net.set_weights(torch_net.get_weights())
    images = draw_images(shape, rows=2)

    assert_same_results(run_net(tf_net, images), run_net(torch_net, images))
    assert torch_net.num_outputs == 4


@both_frameworks
def test_rllib_example_filters_for_42x42_build_and_act(framework, make_image_space):
    config = {"conv_filters": [[16, [4, 4], 2], [32, [4, 4], 2], [512, [11, 11], 1]]}
    policy = rlcatalog.build(make_image_space((42, 42, 4)), FOUR_ACTIONS, config, framework)
    policy.observation_space.seed(0)
    image = policy.observation_space.sample()

    step = policy.act(np.stack([image, image]))

    weights = policy.model.get_weights()
    assert weights["convs.layers.2.weight"].shape == (512, 32, 11, 11)
    assert weights["outputs.logits.weight"].shape == (4, 512)  # 4 actions
    assert all(action in FOUR_ACTIONS for action in step.action)


# --- policies -------------------------------------------------------------------------------------


@pytest.fixture(params=[(84, 84, 4), (210, 160, 3)], ids=["84x84", "210x160"])
def build_atari_policy(request, make_image_space, draw_images):
    """Build a policy with the "nature" network; return it and two images."""

    def build(framework):
        space = make_image_space(request.param)
        policy = rlcatalog.build(space, FOUR_ACTIONS, {"conv_filters": "nature"}, framework)
        return policy, draw_images(request.param, rows=2)

    return build


@pytest.mark.parametrize(("framework", "cls"), [("torch", TorchNet), ("tf", TFNet)])
def test_atari_policy_acts_with_a_vision_network(framework, cls, build_atari_policy):
    policy, images = build_atari_policy(framework)

    step = policy.act(images, explore=False)

    assert type(policy.model) is cls
    assert step.action.shape == (2,)  # 2 images
    assert step.logp.shape == (2,)
    assert step.value.shape == (2,)


@both_frameworks
def test_atari_policy_acts_on_an_image_alone_as_in_a_batch(framework, build_atari_policy):
    policy, images = build_atari_policy(framework)
    batch = policy.act(images, explore=False)

    alone = policy.act(images[1:], explore=False)

    np.testing.assert_allclose(alone.dist_inputs[0], batch.dist_inputs[1], atol=1e-5)
    np.testing.assert_allclose(alone.value[0], batch.value[1], atol=1e-5)


@both_frameworks
def test_atari_policy_evaluates_as_it_acts(framework, build_atari_policy):
    policy, images = build_atari_policy(framework)
    step = policy.act(images, explore=False)

    batch = {"obs": policy.preprocess(images), "raw_action": step.raw_action}
    evaluation = policy.evaluate(batch)

    logp = evaluation.logp
    if framework == "torch":
        logp = logp.detach()
    np.testing.assert_allclose(logp, step.logp, atol=1e-5)


@both_frameworks
def test_filtered_images_are_not_scaled_again(framework, make_image_space, draw_images):
    config = {
        "observation_filter": "MeanStdFilter",
        "filter_include": ["obs"],
        "conv_filters": [[4, [13, 9], 1]],  # one convolution that sees the whole image
    }
    policy = rlcatalog.build(make_image_space((13, 9, 2)), FOUR_ACTIONS, config, framework)
    images = draw_images((13, 9, 2), rows=40)
    policy.preprocess(images, update=True)

    step = policy.act(images[:3])

    filtered = policy.preprocess(images[:3])
    weights = policy.model.get_weights()
    maps = np.einsum("bhwc,ochw->bo", filtered, weights["convs.layers.0.weight"])
    features = np.maximum(maps + weights["convs.layers.0.bias"], 0)
    logits = features @ weights["outputs.logits.weight"].T
    assert policy.encoded_space.dtype == np.float32
    assert policy.model.scaled is None
    assert 0.5 < filtered.std() < 2
    np.testing.assert_allclose(step.dist_inputs, logits, atol=1e-5)


# --- configs --------------------------------------------------------------------------------------


@pytest.fixture
def default_filters_config():
    """A config whose filters depend on the size of the images."""
    return {
        "conv_filters": None,
        "post_fcnet_hiddens": [5],
        "no_final_linear": True,
        "conv_flatten": False,
    }


@both_frameworks
@pytest.mark.parametrize("shape", [(84, 84, 4), (13, 9, 2)], ids=str)
def test_policy_does_not_write_its_filters_into_the_config(
    framework, shape, default_filters_config, make_image_space
):
    before = copy.deepcopy(default_filters_config)

    policy = rlcatalog.build(
        make_image_space(shape), FOUR_ACTIONS, default_filters_config, framework
    )

    assert default_filters_config == before
    assert policy.model.model_config["conv_filters"] is None


@both_classes
def test_one_config_serves_images_of_different_sizes(cls, default_filters_config, make_image_space):
    before = copy.deepcopy(default_filters_config)

    large = cls(
        make_image_space((84, 84, 4)),
        FOUR_ACTIONS,
        num_outputs=4,
        model_config=default_filters_config,
        name="net",
    )
    small = cls(
        make_image_space((13, 9, 2)),
        FOUR_ACTIONS,
        num_outputs=4,
        model_config=default_filters_config,
        name="net",
    )

    large_shapes = [array.shape for array in large.get_weights().values()]
    small_shapes = [array.shape for array in small.get_weights().values()]
    assert large_shapes != small_shapes
    assert default_filters_config == before
