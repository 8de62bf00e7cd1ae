"""Nets read the axes of images as the rule in `rlcatalog.spaces.images` says."""

from __future__ import annotations

import warnings

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
TWO = Discrete(2)


class Camera(gym.Env):
    """Shows random images."""

    action_space = TWO

    def __init__(self, shape=(12, 10, 3)):
        self.observation_space = Box(0, 255, shape, np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def move_to_hwc(images, axes):
    """Return images `[B, ...]` with the axes height, width, channels.

    `axes` names their present axes, such as "frames, channels, height, width".
    """
    channels_first = axes.endswith("width")
    if axes.startswith("frames"):
        order = (0, 3, 4, 1, 2) if channels_first else (0, 2, 3, 1, 4)
        moved = images.transpose(order)
        return moved.reshape(*moved.shape[:3], -1)  # the channels of all frames
    return images.transpose(0, 2, 3, 1) if channels_first else images


@each_case
def test_rule_reads_the_axes_as_the_table_says(case):
    layout = read_layout(case.shape)

    assert str(layout) == case.axes
    assert layout.size(case.shape) == case.size
    assert layout.is_certain == case.is_certain


@each_framework
@each_case
def test_net_sees_the_same_as_with_channels_last(case, framework):
    space = Box(0, 255, case.shape, np.uint8)
    # Two filters as large as the image.
    config = {"conv_filters": [[2, case.size[:2], 1]]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImageLayoutWarning)
        policy = rlcatalog.build(space, TWO, config, framework)
    space_with_channels_last = Box(0, 255, case.size, np.uint8)
    config["image_layout"] = "hwc"
    policy_with_channels_last = rlcatalog.build(space_with_channels_last, TWO, config, framework)
    policy_with_channels_last.model.set_weights(policy.model.get_weights())
    images = np.random.default_rng(0).integers(0, 256, (3, *case.shape), np.uint8)

    outputs = policy.act(images, explore=False).dist_inputs
    images_with_channels_last = move_to_hwc(images, case.axes)
    expected = policy_with_channels_last.act(images_with_channels_last, explore=False).dist_inputs

    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)


def test_doubtful_layout_warns_and_names_the_key():
    # Four channels of 10 x 12 pixels, or 4 x 10 pixels with twelve channels?
    with pytest.warns(ImageLayoutWarning, match=r"two ways.*image_layout='chw'"):
        rlcatalog.build(Box(0, 255, (4, 10, 12), np.uint8), TWO, {"conv_flatten": True})


@pytest.mark.parametrize("layout", ["hwc", "chw"])
def test_given_layout_does_not_warn(layout):
    config = {"conv_flatten": True, "image_layout": layout}

    policy = rlcatalog.build(Box(0, 255, (4, 10, 12), np.uint8), TWO, config)

    assert policy.model.layout.channels_first == (layout == "chw")


def test_explain_names_the_axes_of_each_image():
    space = Dict(near=Box(0, 255, (4, 84, 84), np.uint8), speed=Box(-1, 1, (2,), np.float32))

    plan = rlcatalog.explain(space, TWO).as_dict()["plan"]

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

    assert rlcatalog.explain(space, TWO, config).as_dict()["model"]["chosen"] == model


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
