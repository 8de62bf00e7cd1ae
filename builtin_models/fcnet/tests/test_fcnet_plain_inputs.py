"""What a plain `nn.Module` receives of an observation, and the space its constructor receives."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Text,
    Tuple,
)
from torch import nn

import rlcatalog

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

IMAGE = Box(0, 255, (5, 7, 3), np.uint8)
VECTOR = Box(-1, 1, (4,), np.float32)


class RecordingNet(nn.Module):
    """Records the space it was built with and its inputs, and returns one feature."""

    def __init__(self, space):
        super().__init__()
        self.space = space
        self.inputs = []
        self.weight = nn.Parameter(torch.zeros(1, 1))

    def forward(self, obs):
        self.inputs.append(obs)
        return self.weight.expand(count_rows(obs), 1)


def count_rows(obs):
    while not isinstance(obs, torch.Tensor):
        parts = obs.values() if isinstance(obs, dict) else obs
        obs = next(iter(parts))
    return len(obs)


def record_inputs(space, config=None, observations=None):
    """Act on two observations; return the module's space, its input, and the observations.

    Each row of the input must lie in the module's space: in shape, dtype and bounds.
    """
    policy = rlcatalog.build(space, Discrete(3), config, "torch", model=RecordingNet)
    if observations is None:
        space.seed(3)
        observations = [space.sample(), space.sample()]
    module = next(module for module in policy.model.modules() if isinstance(module, RecordingNet))

    policy.act(observations)

    inputs = module.inputs[-1]
    for row in range(2):
        assert module.space.contains(select_row(inputs, row)), module.space
    return module.space, inputs, observations


def select_row(obs, row):
    if isinstance(obs, dict):
        return {name: select_row(part, row) for name, part in obs.items()}
    if isinstance(obs, tuple):
        return tuple(select_row(part, row) for part in obs)
    return obs[row].numpy()


# --- vectors --------------------------------------------------------------------------------------


def test_float_vector_is_unchanged():
    space, inputs, observations = record_inputs(VECTOR)

    assert space == VECTOR
    np.testing.assert_array_equal(inputs, np.stack(observations))


def test_byte_vector_becomes_floats_without_scaling():
    space, inputs, observations = record_inputs(Box(0, 255, (6,), np.uint8))

    assert space == Box(0, 255, (6,), np.float32)
    np.testing.assert_array_equal(inputs, np.stack(observations).astype(np.float32))


# --- images ---------------------------------------------------------------------------------------


def test_byte_image_is_scaled_and_has_its_channels_first():
    space, inputs, observations = record_inputs(Box(0, 255, (5, 7, 3), np.uint8))

    pixels = np.stack(observations).transpose(0, 3, 1, 2) / 255
    assert space == Box(0, 1, (3, 5, 7), np.float32)
    np.testing.assert_allclose(inputs, pixels, rtol=1e-6)


class NetWithView(nn.Module):
    """Calls `view` on the output of a convolution, which needs contiguous memory."""

    def __init__(self, space):
        super().__init__()
        self.conv = nn.Conv2d(space.shape[0], 4, 3)

    def forward(self, obs):
        maps = self.conv(obs)
        return maps.view(maps.size(0), -1)


def test_module_may_call_view_on_the_output_of_a_convolution():
    policy = rlcatalog.build(IMAGE, Discrete(2), model=NetWithView)
    images = np.stack([IMAGE.sample(), IMAGE.sample()])

    step = policy.act(images)

    pixels = torch.from_numpy(images.transpose(0, 3, 1, 2) / 255).float()
    with torch.no_grad():
        features = policy.model.module.conv(pixels).flatten(1)
        logits = policy.model.outputs(features)
    np.testing.assert_allclose(step.dist_inputs, logits, atol=1e-6)


def make_image_with_bounds_per_channel():
    low = np.zeros((5, 7, 3), np.uint8)
    low[..., 1] = 10
    low[..., 2] = 4
    high = np.full((5, 7, 3), 200, np.uint8)
    high[..., 2] = 4  # the last channel has one possible value
    return Box(low, high, dtype=np.uint8)


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(Box(10, 20, (5, 7, 3), np.uint8), id="10-to-20"),
        pytest.param(make_image_with_bounds_per_channel(), id="bounds-per-channel"),
    ],
)
def test_image_is_scaled_by_its_own_bounds(image):
    space, inputs, observations = record_inputs(image)

    low = image.low.astype(float)
    span = np.maximum(image.high - low, 1)  # 1 where low == high
    pixels = (np.stack(observations) - low) / span
    assert space.shape == (3, 5, 7)  # channels first
    np.testing.assert_allclose(inputs, pixels.transpose(0, 3, 1, 2), rtol=1e-6)


def test_float_image_is_not_scaled():
    space, inputs, observations = record_inputs(Box(-2, 2, (5, 7, 3), np.float32))

    assert space == Box(-2, 2, (3, 5, 7), np.float32)
    np.testing.assert_array_equal(inputs, np.stack(observations).transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("shape", "config"),
    [
        pytest.param((4, 18, 20), {}, id="recognized"),
        pytest.param((5, 7, 3), {"image_layout": "chw"}, id="image_layout-chw"),
    ],
)
def test_image_with_channels_first_is_not_transposed(shape, config):
    space, inputs, observations = record_inputs(Box(0, 255, shape, np.uint8), config)

    assert space == Box(0, 1, shape, np.float32)
    np.testing.assert_allclose(inputs, np.stack(observations) / 255, rtol=1e-6)


def test_frames_stacked_by_gymnasium_are_channels():
    env = gymnasium.Env()
    env.observation_space = Box(0, 255, (18, 20), np.uint8)
    env.action_space = Discrete(3)
    stacked = gymnasium.wrappers.FrameStackObservation(env, 4)

    space, _, _ = record_inputs(stacked.observation_space)

    assert space.shape == (4, 18, 20)  # 4 frames of 18x20


def test_module_images_as_is_leaves_an_image_unchanged():
    space, inputs, observations = record_inputs(IMAGE, {"module_images": "as_is"})

    assert space == IMAGE
    assert inputs.dtype is torch.uint8
    np.testing.assert_array_equal(inputs, np.stack(observations))


def test_module_images_as_is_makes_an_image_of_a_dict_float():
    space, inputs, observations = record_inputs(Dict(a=IMAGE), {"module_images": "as_is"})

    images = np.stack([obs["a"] for obs in observations])
    assert space == Dict(a=Box(0, 255, (5, 7, 3), np.float32))
    np.testing.assert_array_equal(inputs["a"], images)


def test_filtered_image_is_not_scaled_again():
    config = {"observation_filter": "MeanStdFilter", "filter_include": ["obs['a']"]}

    space, inputs, _ = record_inputs(Dict(a=IMAGE, b=VECTOR), config)

    # Filtered pixels are in units of the standard deviation, not between 0 and 1.
    assert space["a"].shape == (3, 5, 7)  # channels first
    assert space["a"].low.min() < 0
    assert float(inputs["a"].max()) > 1


def test_encoded_image_is_stored_as_bytes():
    policy = rlcatalog.build(IMAGE, Discrete(2), model=RecordingNet)

    assert policy.preprocess([IMAGE.sample()]).dtype == np.uint8


@pytest.mark.parametrize(
    "config", [{"use_lstm": True}, {"use_attention": True}, {"vf_share_layers": False}], ids=str
)
def test_memory_and_separate_value_leave_inputs_unchanged(config):
    space, inputs, observations = record_inputs(IMAGE, config)

    pixels = np.stack(observations).transpose(0, 3, 1, 2) / 255
    assert space == Box(0, 1, (3, 5, 7), np.float32)
    np.testing.assert_allclose(inputs, pixels, rtol=1e-6)


# --- other kinds of observations ------------------------------------------------------------------


def test_dict_has_no_action_mask():
    observations = []
    for _ in range(2):
        observations.append({"a": VECTOR.sample(), "action_mask": np.array([1, 0, 1], np.int8)})

    space, inputs, _ = record_inputs(
        Dict(a=VECTOR, action_mask=Box(0, 1, (3,), np.int8)), observations=observations
    )

    assert list(space) == ["a"]
    assert list(inputs) == ["a"]


def test_tuple_inside_a_dict_has_one_hot_and_image():
    first = IMAGE.sample()
    second = IMAGE.sample()
    observations = [
        {"a": VECTOR.sample(), "action_mask": np.array([1, 0, 1], np.int8), "b": (3, first)},
        {"a": VECTOR.sample(), "action_mask": np.array([1, 0, 1], np.int8), "b": (1, second)},
    ]

    space, inputs, _ = record_inputs(
        Dict(a=VECTOR, action_mask=Box(0, 1, (3,), np.int8), b=Tuple([Discrete(4), IMAGE])),
        observations=observations,
    )

    one_hot, images = inputs["b"]
    pixels = np.stack([first, second]).transpose(0, 3, 1, 2) / 255
    assert space["b"] == Tuple([Box(0, 1, (4,), np.float32), Box(0, 1, (3, 5, 7), np.float32)])
    np.testing.assert_array_equal(one_hot, [[0, 0, 0, 1], [0, 1, 0, 0]])
    np.testing.assert_allclose(images, pixels, rtol=1e-6)


def test_sequence_inside_a_dict_becomes_values_and_lengths():
    observation = {"s": (np.zeros(4, np.float32),), "v": np.zeros(4, np.float32)}

    space, inputs, _ = record_inputs(
        Dict(s=Sequence(VECTOR), v=VECTOR),
        {"sequence_max_len": 3},
        [observation, observation],
    )

    shapes = {"values": (3, 4), "lengths": ()}  # 3 items of 4 numbers
    assert {name: part.shape for name, part in space["s"].items()} == shapes
    assert {name: tuple(part.shape[1:]) for name, part in inputs["s"].items()} == shapes


def test_text_inside_a_dict_becomes_values_and_mask():
    observation = {"s": "ab", "v": np.zeros(4, np.float32)}

    space, inputs, _ = record_inputs(
        Dict(s=Text(4, charset="ab"), v=VECTOR), observations=[observation, observation]
    )

    shapes = {"values": (4, 2), "mask": (4,)}  # at most 4 characters of a charset of 2
    assert {name: part.shape for name, part in space["s"].items()} == shapes
    assert {name: tuple(part.shape[1:]) for name, part in inputs["s"].items()} == shapes


@pytest.mark.parametrize(
    ("space", "size"),
    [
        pytest.param(Discrete(5, start=2), 5, id="Discrete"),
        pytest.param(MultiDiscrete([2, 3]), 2 + 3, id="MultiDiscrete"),
        pytest.param(MultiBinary(3), 3, id="MultiBinary"),
    ],
)
def test_discrete_spaces_become_vectors(space, size):
    module_space, _, _ = record_inputs(space)

    assert module_space == Box(0, 1, (size,), np.float32)


def test_one_of_becomes_tag_and_branches():
    space, inputs, _ = record_inputs(OneOf([Discrete(2), VECTOR]))

    assert list(space) == ["tag", "branches"]
    assert list(inputs) == ["tag", "branches"]


def test_discrete_without_preprocessor_stays_an_integer():
    config = {"_disable_preprocessor_api": True}

    space, inputs, observations = record_inputs(Discrete(5, start=2), config)

    assert space == Discrete(5, start=2)
    assert inputs.dtype == torch.int64
    np.testing.assert_array_equal(inputs, observations)


def test_module_below_a_parametric_head_receives_the_other_parts():
    space = Dict(
        avail_actions=Box(-1, 1, (3, 2), np.float32),
        action_mask=Box(0, 1, (3,), np.int8),
        state=IMAGE,
    )
    observations = []
    for _ in range(2):
        observations.append({**space.sample(), "action_mask": np.ones(3, np.int8)})

    module_space, inputs, _ = record_inputs(space, {"use_parametric": True}, observations)

    # Only the state is left, without the Dict.
    images = np.stack([obs["state"] for obs in observations])
    assert module_space == Box(0, 1, (3, 5, 7), np.float32)
    np.testing.assert_allclose(inputs, images.transpose(0, 3, 1, 2) / 255, rtol=1e-6)
