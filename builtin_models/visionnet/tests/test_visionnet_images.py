"""What the convolutional network does with images: layout, scale and size; policies that act on
them.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog_tf import VisionNetwork as TFNet
from rlcatalog_torch import VisionNetwork as TorchNet

BOTH = pytest.mark.parametrize("cls", [TorchNet, TFNet])
FRAMEWORKS = pytest.mark.parametrize("framework", ["torch", "tf"])
FOUR = spaces.Discrete(4)


# --- scale and layout -----------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("dtype", "scale", "factor"),
    [
        (np.uint8, None, 1 / 100),
        (np.uint8, False, 1),
        (np.uint8, 1, 1),
        (np.uint8, 1.0, 1),
        (np.uint8, 0.1, 0.1),
        (np.float32, None, 1),
        (np.float32, 0.1, 0.1),
        (np.float64, None, 1),
        (np.int16, None, 1 / 100),
        (np.int8, 2, 2),
    ],
)
def test_pixels_are_scaled_by_their_bounds_or_a_factor(
    cls, dtype, scale, factor, build, assert_close
):
    shape, config = (5, 4, 2), {"conv_filters": [[3, [5, 4], 1]], "conv_activation": None}
    image_space = spaces.Box(0, 100, shape, dtype)
    model = build(cls, shape, config)
    scaled = cls(image_space, FOUR, 4, {**config, "image_scale": scale}, "net")
    scaled.set_weights(model.get_weights())
    image_space.seed(0)
    x = np.stack([image_space.sample() for _ in range(3)])
    weights = model.get_weights()
    kernel, bias = weights["convs.layers.0.weight"], weights["convs.layers.0.bias"]
    features = np.einsum("bhwc,ochw->bo", x.astype(np.float64) * factor, kernel) + bias
    expected = features @ weights["outputs.logits.weight"].T + weights["outputs.logits.bias"]
    # A batch may reach the model as float32, whatever the space holds.
    for images in (x, x.astype(np.float32)):
        before = images.copy()
        found = scaled(
            {"obs": torch.from_numpy(images) if cls is TorchNet else tf.constant(images)}
        )[0]
        assert_close([np.asarray(found.detach() if cls is TorchNet else found)], [expected])
        np.testing.assert_array_equal(images, before)  # not scaled in place


@BOTH
def test_layouts_differ_in_the_order_of_axes_only(cls, build, images, run, assert_close):
    for filters in (None, "impala"):
        first = build(cls, (13, 9, 2), {"conv_filters": filters})
        second = build(cls, (2, 13, 9), {"conv_filters": filters, "image_layout": "chw"})
        second.set_weights(first.get_weights())
        x = images((13, 9, 2))
        assert_close(
            run(second, np.ascontiguousarray(x.transpose(0, 3, 1, 2))), run(first, x), 1e-6
        )


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_images_are_not_rearranged_on_their_way_to_the_convolutions(dtype, build, images):
    model, x = (
        build(TorchNet, (20, 20, 4), dtype=dtype),
        torch.from_numpy(images((20, 20, 4), dtype)),
    )
    seen = []
    for layer in model.convs.layers:
        layer.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model({"obs": x})
    assert len(seen) == 3
    assert all(maps.is_contiguous(memory_format=torch.channels_last) for maps in seen)
    assert (seen[0].data_ptr() == x.data_ptr()) == (dtype == np.float32)


# --- sizes ----------------------------------------------------------------------------------------

SIZES = [
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
]


@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_the_default_for_a_size_is_the_same_in_both(shape, build, images, run, assert_close):
    first, second, x = build(TorchNet, shape), build(TFNet, shape), images(shape, rows=2)
    second.set_weights(first.get_weights())
    assert_close(run(second, x), run(first, x))
    assert first.num_outputs == 4


def test_the_seeds_stack_for_42x42_builds_and_acts(space):
    config = {"conv_filters": [[16, [4, 4], 2], [32, [4, 4], 2], [512, [11, 11], 1]]}
    for framework in ("torch", "tf"):
        policy = rlcatalog.build(space((42, 42, 4)), FOUR, config, framework)
        shapes = {name: array.shape for name, array in policy.model.get_weights().items()}
        assert shapes["convs.layers.2.weight"] == (512, 32, 11, 11)
        assert shapes["outputs.logits.weight"] == (4, 512)
        policy.observation_space.seed(0)
        step = policy.act(np.stack([policy.observation_space.sample()] * 2))
        assert all(action in FOUR for action in step.action)


# --- policies -------------------------------------------------------------------------------------


@FRAMEWORKS
@pytest.mark.parametrize("shape", [(84, 84, 4), (210, 160, 3)])
def test_a_policy_acts_on_the_screens_of_atari(framework, shape, space, images):
    policy = rlcatalog.build(space(shape), FOUR, {"conv_filters": "nature"}, framework)
    assert type(policy.model) is {"torch": TorchNet, "tf": TFNet}[framework]
    x = images(shape, rows=2)
    steps = policy.act(x, explore=False)
    assert steps.action.shape == steps.logp.shape == steps.value.shape == (2,)
    one = policy.act(x[1:], explore=False)
    np.testing.assert_allclose(one.dist_inputs[0], steps.dist_inputs[1], atol=1e-5)
    np.testing.assert_allclose(one.value[0], steps.value[1], atol=1e-5)
    batch = {"obs": policy.preprocess(x), "raw_action": steps.raw_action}
    logp = policy.evaluate(batch).logp
    np.testing.assert_allclose(
        logp.detach() if framework == "torch" else logp, steps.logp, atol=1e-5
    )


@FRAMEWORKS
def test_behind_a_filter_images_are_floats_and_not_scaled_again(framework, space, images):
    config = {
        "observation_filter": "MeanStdFilter",
        "filter_include": ["obs"],
        "conv_filters": [[4, [13, 9], 1]],
    }
    policy = rlcatalog.build(space((13, 9, 2)), FOUR, config, framework)
    x = images((13, 9, 2), rows=40)
    policy.preprocess(x, update=True)
    assert policy.encoded_space.dtype == np.float32
    assert policy.model.scaled is None
    weights = policy.model.get_weights()
    encoded = policy.preprocess(x[:3])
    assert 0.5 < encoded.std() < 2
    kernel, bias = weights["convs.layers.0.weight"], weights["convs.layers.0.bias"]
    features = np.maximum(np.einsum("bhwc,ochw->bo", encoded, kernel) + bias, 0)
    expected = features @ weights["outputs.logits.weight"].T
    np.testing.assert_allclose(policy.act(x[:3]).dist_inputs, expected, atol=1e-5)


@FRAMEWORKS
def test_the_callers_config_is_left_alone(framework, space):
    config = {
        "conv_filters": None,
        "post_fcnet_hiddens": [5],
        "no_final_linear": True,
        "conv_flatten": False,
    }
    before = copy.deepcopy(config)
    shapes = []
    for shape in ((84, 84, 4), (13, 9, 2)):  # two images of different sizes from one config
        policy = rlcatalog.build(space(shape), FOUR, config, framework)
        cls = type(policy.model)
        direct = cls(space(shape), FOUR, 4, config, "net")
        shapes.append([a.shape for a in direct.get_weights().values()])
        assert config == before
        assert policy.model.model_config["conv_filters"] is None
    assert shapes[0] != shapes[1]
