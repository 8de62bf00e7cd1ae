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

FOUR_NUMBERS = Box(-1, 1, (4,), np.float32)
IMAGE_5x7 = Box(0, 255, (5, 7, 3), np.uint8)
#: Black, with one bright pixel in row 1 and column 2.
ONE_PIXEL = np.zeros((5, 7, 3), np.uint8)
ONE_PIXEL[1, 2] = [0, 51, 255]


class RecordingNet(nn.Module):
    """Keeps the space it was built with and its last input, and returns one feature."""

    def __init__(self, space):
        super().__init__()
        self.space = space
        self.weight = nn.Parameter(torch.zeros(1, 1))

    def forward(self, obs):
        self.inputs = obs
        return self.weight.expand(count_rows(obs), 1)


def count_rows(obs):
    while not isinstance(obs, torch.Tensor):
        parts = obs.values() if isinstance(obs, dict) else obs
        obs = next(iter(parts))
    return len(obs)


def record_input(space, obs, config=None):
    """Act on an observation; return the module's space and what it received, as arrays.

    What it received must lie in its space: in structure, shape, dtype and bounds.
    """
    policy = rlcatalog.build(space, Discrete(3), config, "torch", model=RecordingNet)
    module = next(module for module in policy.model.modules() if isinstance(module, RecordingNet))

    policy.act([obs])

    received = select_first_row(module.inputs)
    assert module.space.contains(received), module.space
    return module.space, received


def select_first_row(obs):
    if isinstance(obs, dict):
        return {name: select_first_row(part) for name, part in obs.items()}
    if isinstance(obs, tuple):
        return tuple(select_first_row(part) for part in obs)
    return obs[0].numpy()


# --- vectors --------------------------------------------------------------------------------------


def test_float_vector_is_unchanged():
    module_space, received = record_input(FOUR_NUMBERS, np.float32([-1, 0, 0.5, 1]))

    assert module_space == FOUR_NUMBERS
    np.testing.assert_array_equal(received, np.float32([-1, 0, 0.5, 1]))


def test_byte_vector_becomes_floats_without_scaling():
    module_space, received = record_input(Box(0, 255, (2,), np.uint8), np.uint8([7, 255]))

    assert module_space == Box(0, 255, (2,), np.float32)
    np.testing.assert_array_equal(received, [7, 255])


# --- images ---------------------------------------------------------------------------------------


def test_byte_image_is_scaled_and_has_its_channels_first():
    module_space, received = record_input(IMAGE_5x7, ONE_PIXEL)

    assert module_space == Box(0, 1, (3, 5, 7), np.float32)
    np.testing.assert_allclose(received[:, 1, 2], [0, 0.2, 1], rtol=1e-6)  # 51 / 255 = 0.2


class NetWithView(nn.Module):
    """Calls `view` on the output of a convolution, which needs contiguous memory."""

    def __init__(self, space):
        super().__init__()
        self.conv = nn.Conv2d(space.shape[0], 4, 3)

    def forward(self, obs):
        maps = self.conv(obs)
        return maps.view(maps.size(0), -1)


def test_module_may_call_view_on_the_output_of_a_convolution():
    policy = rlcatalog.build(IMAGE_5x7, Discrete(2), model=NetWithView)

    step = policy.act([ONE_PIXEL, ONE_PIXEL])

    assert step.dist_inputs.shape == (2, 2)  # 2 images, 2 actions


def test_image_is_scaled_by_its_own_bounds():
    space = Box(10, 30, (5, 7, 3), np.uint8)
    image = np.full((5, 7, 3), 10, np.uint8)
    image[1, 2] = [10, 15, 30]

    _, received = record_input(space, image)

    np.testing.assert_allclose(received[:, 1, 2], [0, 0.25, 1], rtol=1e-6)


def test_channels_are_scaled_by_their_own_bounds():
    low = np.zeros((5, 7, 3), np.uint8)
    low[:, :] = [0, 10, 4]
    high = np.zeros((5, 7, 3), np.uint8)
    high[:, :] = [200, 20, 4]  # the last channel has one possible value
    image = low.copy()
    image[1, 2] = [100, 15, 4]

    _, received = record_input(Box(low, high, dtype=np.uint8), image)

    np.testing.assert_allclose(received[:, 1, 2], [0.5, 0.5, 0], rtol=1e-6)


def test_float_image_is_not_scaled():
    image = np.zeros((5, 7, 3), np.float32)
    image[1, 2] = [-2, 0.5, 2]

    module_space, received = record_input(Box(-2, 2, (5, 7, 3), np.float32), image)

    assert module_space == Box(-2, 2, (3, 5, 7), np.float32)
    np.testing.assert_array_equal(received[:, 1, 2], [-2, 0.5, 2])


@pytest.mark.parametrize(
    ("shape", "config"),
    [
        pytest.param((4, 18, 20), {}, id="recognized"),
        pytest.param((5, 7, 3), {"image_layout": "chw"}, id="image_layout-chw"),
    ],
)
def test_image_with_channels_first_is_not_transposed(shape, config):
    image = np.zeros(shape, np.uint8)
    image[3, 2, 1] = 51

    module_space, received = record_input(Box(0, 255, shape, np.uint8), image, config)

    assert module_space == Box(0, 1, shape, np.float32)
    np.testing.assert_allclose(received[3, 2, 1], 0.2, rtol=1e-6)  # 51 / 255


def test_frames_stacked_by_gymnasium_are_channels():
    env = gymnasium.Env()
    env.observation_space = Box(0, 255, (18, 20), np.uint8)
    env.action_space = Discrete(3)
    stacked = gymnasium.wrappers.FrameStackObservation(env, 4)

    policy = rlcatalog.build(stacked.observation_space, Discrete(3), model=RecordingNet)

    assert policy.model.module.space.shape == (4, 18, 20)  # 4 frames of 18x20


def test_module_images_as_is_leaves_an_image_unchanged():
    module_space, received = record_input(IMAGE_5x7, ONE_PIXEL, {"module_images": "as_is"})

    assert module_space == IMAGE_5x7
    assert received.dtype == np.uint8
    np.testing.assert_array_equal(received, ONE_PIXEL)


def test_module_images_as_is_makes_an_image_of_a_dict_float():
    module_space, received = record_input(
        Dict(eye=IMAGE_5x7), {"eye": ONE_PIXEL}, {"module_images": "as_is"}
    )

    assert module_space == Dict(eye=Box(0, 255, (5, 7, 3), np.float32))
    np.testing.assert_array_equal(received["eye"], ONE_PIXEL)


def test_filtered_image_is_not_scaled_again():
    config = {"observation_filter": "MeanStdFilter", "filter_include": ["obs['eye']"]}

    module_space, received = record_input(
        Dict(eye=IMAGE_5x7, at=FOUR_NUMBERS),
        {"eye": ONE_PIXEL, "at": np.zeros(4, np.float32)},
        config,
    )

    # Filtered pixels are in units of the standard deviation, not between 0 and 1.
    assert module_space["eye"].shape == (3, 5, 7)  # channels first
    assert module_space["eye"].low.min() < 0
    assert received["eye"].max() > 1


def test_encoded_image_is_stored_as_bytes():
    policy = rlcatalog.build(IMAGE_5x7, Discrete(2), model=RecordingNet)

    assert policy.preprocess([ONE_PIXEL]).dtype == np.uint8


@pytest.mark.parametrize(
    "config", [{"use_lstm": True}, {"use_attention": True}, {"vf_share_layers": False}], ids=str
)
def test_memory_and_separate_value_leave_inputs_unchanged(config):
    module_space, received = record_input(IMAGE_5x7, ONE_PIXEL, config)

    assert module_space == Box(0, 1, (3, 5, 7), np.float32)
    np.testing.assert_allclose(received[:, 1, 2], [0, 0.2, 1], rtol=1e-6)  # 51 / 255 = 0.2


# --- other kinds of observations ------------------------------------------------------------------


def test_dict_has_no_action_mask():
    space = Dict(at=FOUR_NUMBERS, action_mask=Box(0, 1, (3,), np.int8))
    obs = {"at": np.zeros(4, np.float32), "action_mask": np.int8([1, 0, 1])}

    module_space, received = record_input(space, obs)

    assert list(module_space) == ["at"]
    assert list(received) == ["at"]


def test_tuple_inside_a_dict_has_one_hot_and_image():
    space = Dict(pair=Tuple([Discrete(4), IMAGE_5x7]))

    module_space, received = record_input(space, {"pair": (3, ONE_PIXEL)})

    one_hot, image = received["pair"]
    assert module_space["pair"] == Tuple([Box(0, 1, (4,), np.float32), Box(0, 1, (3, 5, 7))])
    np.testing.assert_array_equal(one_hot, [0, 0, 0, 1])
    np.testing.assert_allclose(image[:, 1, 2], [0, 0.2, 1], rtol=1e-6)  # 51 / 255 = 0.2


def test_sequence_inside_a_dict_becomes_values_and_length():
    obs = {"items": (np.float32([1, 0, 0, 1]),), "at": np.zeros(4, np.float32)}

    module_space, received = record_input(
        Dict(items=Sequence(FOUR_NUMBERS), at=FOUR_NUMBERS), obs, {"sequence_max_len": 2}
    )

    assert module_space["items"]["values"].shape == (2, 4)
    np.testing.assert_array_equal(received["items"]["values"], [[1, 0, 0, 1], [0, 0, 0, 0]])
    assert received["items"]["lengths"] == 1


def test_text_inside_a_dict_becomes_values_and_mask():
    obs = {"word": "ab", "at": np.zeros(4, np.float32)}

    module_space, received = record_input(Dict(word=Text(3, charset="ab"), at=FOUR_NUMBERS), obs)

    # "a" is 0 and "b" is 1 of the charset, as one-hot vectors.
    assert module_space["word"]["values"].shape == (3, 2)
    np.testing.assert_array_equal(received["word"]["values"], [[1, 0], [0, 1], [0, 0]])
    np.testing.assert_array_equal(received["word"]["mask"], [1, 1, 0])


@pytest.mark.parametrize(
    ("space", "obs", "one_hots"),
    [
        pytest.param(Discrete(3, start=2), 3, [0, 1, 0], id="Discrete"),
        pytest.param(MultiDiscrete([2, 3]), np.array([0, 2]), [1, 0, 0, 0, 1], id="MultiDiscrete"),
        pytest.param(MultiBinary(3), np.int8([0, 1, 1]), [0, 1, 1], id="MultiBinary"),
    ],
)
def test_discrete_spaces_become_vectors(space, obs, one_hots):
    module_space, received = record_input(space, obs)

    assert module_space == Box(0, 1, (len(one_hots),), np.float32)
    np.testing.assert_array_equal(received, one_hots)


def test_one_of_becomes_tag_and_branches():
    module_space, received = record_input(OneOf([Discrete(2), FOUR_NUMBERS]), (0, 1))

    assert list(module_space) == ["tag", "branches"]
    np.testing.assert_array_equal(received["tag"], [1, 0])


def test_discrete_without_preprocessor_stays_an_integer():
    space = Discrete(5, start=2)

    module_space, received = record_input(space, 4, {"_disable_preprocessor_api": True})

    assert module_space == space
    assert received.dtype == np.int64
    assert received == 4


def test_module_below_a_parametric_head_receives_the_other_part():
    space = Dict(
        avail_actions=Box(-1, 1, (3, 2), np.float32),
        action_mask=Box(0, 1, (3,), np.int8),
        state=FOUR_NUMBERS,
    )
    obs = {
        "avail_actions": np.zeros((3, 2), np.float32),
        "action_mask": np.ones(3, np.int8),
        "state": np.float32([-1, 0, 0.5, 1]),
    }

    module_space, received = record_input(space, obs, {"use_parametric": True})

    # Only the state is left, without the Dict.
    assert module_space == FOUR_NUMBERS
    np.testing.assert_array_equal(received, np.float32([-1, 0, 0.5, 1]))
