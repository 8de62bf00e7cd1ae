"""Nets read the axes of images as the rule in `rlcatalog.spaces.images` says."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.wrappers import (
    FrameStackObservation,
    GrayscaleObservation,
    ResizeObservation,
    TimeLimit,
)
from layout_cases import CASES

import rlcatalog
from rlcatalog.errors import ImageLayoutWarning
from rlcatalog.spaces import env_layout, read_layout

each_case = pytest.mark.parametrize("case", CASES, ids=[case.data for case in CASES])
each_framework = pytest.mark.parametrize("framework", ["torch", "tf"])
TWO_ACTIONS = Discrete(2)


class Camera(gym.Env):
    """Shows random images."""

    action_space = TWO_ACTIONS

    def __init__(self, shape=(12, 10, 3)):
        self.observation_space = Box(0, 255, shape, np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


@each_case
def test_rule_reads_the_axes_as_the_table_says(case):
    layout = read_layout(case.shape)

    assert str(layout) == case.axes
    assert layout.size(case.shape) == case.size
    assert layout.is_certain == case.is_certain


@each_framework
@pytest.mark.parametrize(
    ("shape", "order", "channels_last_shape"),
    [
        # The order of axes that brings the channels behind height and width.
        pytest.param((4, 84, 84), (1, 2, 0), (84, 84, 4), id="channels-first"),
        # The channels of all frames become one axis.
        pytest.param((4, 64, 64, 3), (1, 2, 0, 3), (64, 64, 12), id="frames"),
        pytest.param((2, 3, 64, 64), (2, 3, 0, 1), (64, 64, 6), id="frames-of-channels-first"),
    ],
)
def test_net_sees_the_same_as_with_channels_last(shape, order, channels_last_shape, framework):
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    channels_last = image.transpose(order).reshape(channels_last_shape)
    # Two filters as large as the image.
    config = {"conv_filters": [[2, channels_last_shape[:2], 1]]}
    policy = rlcatalog.build(Box(0, 255, shape, np.uint8), Discrete(2), config, framework)
    config["image_layout"] = "hwc"
    channels_last_policy = rlcatalog.build(
        Box(0, 255, channels_last_shape, np.uint8), Discrete(2), config, framework
    )
    channels_last_policy.model.set_weights(policy.model.get_weights())

    logits = policy.act(image[None], explore=False).dist_inputs
    expected = channels_last_policy.act(channels_last[None], explore=False).dist_inputs

    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)


def test_doubtful_layout_warns_and_names_the_key():
    # Four channels of 10 x 12 pixels, or 4 x 10 pixels with twelve channels?
    with pytest.warns(ImageLayoutWarning, match=r"two ways.*image_layout='chw'"):
        rlcatalog.build(Box(0, 255, (4, 10, 12), np.uint8), TWO_ACTIONS, {"conv_flatten": True})


@pytest.mark.parametrize("layout", ["hwc", "chw"])
def test_given_layout_does_not_warn(layout):
    config = {"conv_flatten": True, "image_layout": layout}

    policy = rlcatalog.build(Box(0, 255, (4, 10, 12), np.uint8), TWO_ACTIONS, config)

    assert policy.model.layout.channels_first == (layout == "chw")


def test_explain_names_the_axes_of_each_image():
    space = Dict(near=Box(0, 255, (4, 84, 84), np.uint8), speed=Box(-1, 1, (2,), np.float32))

    plan = rlcatalog.explain(space, TWO_ACTIONS).as_dict()["plan"]

    assert [leaf["image"] for leaf in plan] == ["image of channels, height, width", ""]


@pytest.mark.parametrize(
    ("config", "model"),
    [
        pytest.param({}, "fcnet", id="no-layout"),
        pytest.param({"image_layout": "hwc"}, "visionnet", id="layout"),
    ],
)
def test_floats_of_rank_4_are_not_image_without_a_layout(config, model):
    space = Box(0, 1, (2, 12, 12, 3), np.float32)

    assert rlcatalog.explain(space, TWO_ACTIONS, config).as_dict()["model"]["chosen"] == model


def stack_frames(env):
    return FrameStackObservation(env, 4)


def keep_gray_channel(env):
    return GrayscaleObservation(env, keep_dim=True)


@pytest.mark.parametrize(
    ("env", "layout"),
    [
        pytest.param(Camera(), None, id="no-wrapper"),
        pytest.param(stack_frames(GrayscaleObservation(Camera())), "chw", id="gray-frames"),
        pytest.param(
            TimeLimit(stack_frames(GrayscaleObservation(Camera())), 9), "chw", id="outer-wrapper"
        ),
        pytest.param(keep_gray_channel(Camera()), "hwc", id="gray-channel"),
        pytest.param(
            ResizeObservation(keep_gray_channel(Camera()), (6, 5)), "hwc", id="resized-gray-channel"
        ),
        pytest.param(stack_frames(keep_gray_channel(Camera())), "hwc", id="frames-of-gray-channel"),
        pytest.param(stack_frames(Camera()), None, id="frames-of-colours"),
    ],
)
def test_known_wrappers_say_the_layout(env, layout):
    assert env_layout(env) == layout


def test_build_asks_the_wrappers_of_the_environment():
    # Images of (4, 12, 10), which could be read in two ways without the wrappers.
    env = FrameStackObservation(GrayscaleObservation(Camera()), 4)

    policy = rlcatalog.build(env=env, config={"conv_flatten": True})

    assert policy.model.layout.channels_first


@pytest.mark.parametrize(
    ("shape", "has_hint"),
    [
        pytest.param((32, 32), True, id="picture"),
        pytest.param((32, 16), False, id="short-axis"),
        pytest.param((32, 32, 1), False, id="with-channel"),
        pytest.param((32,), False, id="vector"),
    ],
)
def test_explanation_hints_at_a_missing_channel_axis(shape, has_hint):
    explanation = rlcatalog.explain(Box(0, 255, shape, np.uint8), Discrete(2))
    assert ("for convolutions, use the shape (32, 32, 1)" in str(explanation)) is has_hint


def test_explanation_of_large_table_of_floats_has_no_hint():
    explanation = rlcatalog.explain(Box(-1, 1, (32, 32)), Discrete(2))
    assert "convolutions" not in str(explanation)
