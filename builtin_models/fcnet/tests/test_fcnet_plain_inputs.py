"""What a plain nn.Module is shown of an observation, and the space that its
constructor is given.
"""

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


class Watching(nn.Module):
    """Keeps the space it was built with and what it is shown, and returns one feature."""

    def __init__(self, space):
        super().__init__()
        self.space, self.shown = space, []
        self.weight = nn.Parameter(torch.zeros(1, 1))

    def forward(self, obs):
        self.shown.append(obs)
        return self.weight.expand(rows_of(obs), 1)


def rows_of(obs):
    while not isinstance(obs, torch.Tensor):
        obs = next(iter(obs.values() if isinstance(obs, dict) else obs))
    return len(obs)


def watch(space, config=None, observations=None, action=None):
    """Return the space that a module is given, and what it is shown of two observations, with
    these.
    """
    policy = rlcatalog.build(space, action or Discrete(3), config, "torch", model=Watching)
    space.seed(3)
    observations = observations or [space.sample(), space.sample()]
    module = next(module for module in policy.model.modules() if type(module) is Watching)
    module.shown.clear()
    policy.act(observations)
    shown = module.shown[-1]
    check_fits(module.space, shown)
    return module.space, shown, observations


def check_fits(space, shown):
    """Each row of what is shown lies in the space, in shape, dtype and bounds."""
    for row in range(2):
        picked = pick(shown, row)
        assert space.contains(picked), (space, picked)


def pick(shown, row):
    if isinstance(shown, dict):
        return {name: pick(part, row) for name, part in shown.items()}
    if isinstance(shown, tuple):
        return tuple(pick(part, row) for part in shown)
    return shown[row].numpy()


def test_a_vector_is_shown_as_it_is():
    space, shown, observations = watch(VECTOR)
    assert space == VECTOR
    np.testing.assert_array_equal(shown, np.stack(observations))


def test_bytes_in_a_vector_are_shown_as_numbers_unscaled():
    space, shown, observations = watch(Box(0, 255, (6,), np.uint8))
    assert space == Box(0, 255, (6,), np.float32)
    np.testing.assert_array_equal(shown, np.stack(observations).astype(np.float32))


def test_an_image_of_bytes_has_its_channels_first_and_lies_between_0_and_1():
    space, shown, observations = watch(IMAGE)
    assert space == Box(0, 1, (3, 5, 7), np.float32)
    np.testing.assert_allclose(shown, np.stack(observations).transpose(0, 3, 1, 2) / 255, rtol=1e-6)


class Viewing(nn.Module):
    """Calls `view` on what a convolution returns."""

    def __init__(self, space):
        super().__init__()
        self.conv = nn.Conv2d(space.shape[0], 4, 3)

    def forward(self, obs):
        maps = self.conv(obs)
        return maps.view(maps.size(0), -1)


def test_view_works_on_what_a_convolution_returns():
    policy = rlcatalog.build(IMAGE, Discrete(2), model=Viewing)
    images = np.stack([IMAGE.sample(), IMAGE.sample()])
    step, model = policy.act(images), policy.model
    pixels = torch.from_numpy(images.transpose(0, 3, 1, 2) / 255).float()
    with torch.no_grad():
        logits = model.outputs(model.module.conv(pixels).flatten(1))
    np.testing.assert_allclose(step.dist_inputs, logits, atol=1e-6)


def test_an_image_is_scaled_by_its_own_bounds():
    low = np.zeros((5, 7, 3), np.uint8)
    low[..., 1], low[..., 2] = 10, 4
    high = np.full((5, 7, 3), 200, np.uint8)
    high[..., 2] = 4  # a channel without any values but one
    for box in (Box(10, 20, (5, 7, 3), np.uint8), Box(low, high, dtype=np.uint8)):
        space, shown, observations = watch(box)
        span = np.maximum(box.high.astype(float) - box.low, 1)
        truth = (np.stack(observations) - box.low.astype(float)) / span
        np.testing.assert_allclose(shown, truth.transpose(0, 3, 1, 2), rtol=1e-6)
        assert space.shape == (3, 5, 7)


def test_a_float_image_is_not_scaled():
    space, shown, observations = watch(Box(-2, 2, (5, 7, 3), np.float32))
    assert space == Box(-2, 2, (3, 5, 7), np.float32)
    np.testing.assert_array_equal(shown, np.stack(observations).transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("shape", "config"), [((4, 18, 20), {}), ((5, 7, 3), {"image_layout": "chw"})]
)
def test_channels_that_come_first_stay_there(shape, config):
    space, shown, observations = watch(Box(0, 255, shape, np.uint8), config)
    assert space == Box(0, 1, shape, np.float32)
    np.testing.assert_allclose(shown, np.stack(observations) / 255, rtol=1e-6)


def test_frames_that_gymnasium_stacks_are_seen_as_channels():
    env = gymnasium.Env()
    env.observation_space, env.action_space = Box(0, 255, (18, 20), np.uint8), Discrete(3)
    stacked = gymnasium.wrappers.FrameStackObservation(env, 4)
    assert watch(stacked.observation_space)[0].shape == (4, 18, 20)


def test_module_images_as_is_shows_what_the_environment_emits():
    space, shown, observations = watch(IMAGE, {"module_images": "as_is"})
    assert space == IMAGE
    assert shown.dtype is torch.uint8
    np.testing.assert_array_equal(shown, np.stack(observations))
    space, shown, observations = watch(Dict(a=IMAGE), {"module_images": "as_is"})
    assert space == Dict(a=Box(0, 255, (5, 7, 3), np.float32))
    np.testing.assert_array_equal(shown["a"], np.stack([obs["a"] for obs in observations]))


def test_a_dict_arrives_without_its_mask_and_a_tuple_as_one():
    mask = Box(0, 1, (3,), np.int8)
    space = Dict(a=VECTOR, action_mask=mask, b=Tuple([Discrete(4), IMAGE]))
    observations = [
        {
            "a": VECTOR.sample(),
            "action_mask": np.array([1, 0, 1], np.int8),
            "b": (place, IMAGE.sample()),
        }
        for place in (3, 1)
    ]
    seen, shown, _ = watch(space, None, observations)
    assert list(seen) == ["a", "b"]
    assert list(shown) == ["a", "b"]
    assert seen["b"] == Tuple([Box(0, 1, (4,), np.float32), Box(0, 1, (3, 5, 7), np.float32)])
    np.testing.assert_array_equal(shown["b"][0], np.eye(4, dtype=np.float32)[[3, 1]])
    images = np.stack([obs["b"][1] for obs in observations])
    np.testing.assert_allclose(shown["b"][1], images.transpose(0, 3, 1, 2) / 255, rtol=1e-6)


def test_a_filtered_image_is_not_scaled_again():
    config = {"observation_filter": "MeanStdFilter", "filter_include": ["obs['a']"]}
    space, shown, _ = watch(Dict(a=IMAGE, b=VECTOR), config)
    assert space["a"].shape == (3, 5, 7)
    assert space["a"].low.min() < 0
    assert float(shown["a"].max()) > 1


@pytest.mark.parametrize(
    ("space", "fields"),
    [
        (Dict(s=Sequence(VECTOR), v=VECTOR), {"values": (3, 4), "lengths": ()}),
        (Dict(s=Text(4, charset="ab"), v=VECTOR), {"values": (4, 2), "mask": (4,)}),
    ],
)
def test_lists_and_texts_arrive_as_dicts_of_their_parts(space, fields):
    is_text = isinstance(space["s"], Text)
    observation = {
        "s": "ab" if is_text else (np.zeros(4, np.float32),),
        "v": np.zeros(4, np.float32),
    }
    seen, shown, _ = watch(space, {} if is_text else {"sequence_max_len": 3}, [observation] * 2)
    assert {name: part.shape for name, part in seen["s"].items()} == fields
    assert {name: tuple(part.shape[1:]) for name, part in shown["s"].items()} == fields


def test_other_kinds_arrive_as_the_catalog_encodes_them():
    assert watch(Discrete(5, start=2))[0] == Box(0, 1, (5,), np.float32)
    assert watch(MultiDiscrete([2, 3]))[0] == Box(0, 1, (5,), np.float32)
    assert watch(MultiBinary(3))[0] == Box(0, 1, (3,), np.float32)
    space, shown, _ = watch(OneOf([Discrete(2), VECTOR]))
    assert list(space) == list(shown) == ["tag", "branches"]
    space, shown, observations = watch(Discrete(5, start=2), {"_disable_preprocessor_api": True})
    assert (space, shown.dtype) == (Discrete(5, start=2), torch.int64)
    np.testing.assert_array_equal(shown, observations)


@pytest.mark.parametrize(
    "config", [{"use_lstm": True}, {"use_attention": True}, {"vf_share_layers": False}]
)
def test_a_memory_changes_nothing_of_what_is_shown(config):
    space, shown, observations = watch(IMAGE, config)
    assert space == Box(0, 1, (3, 5, 7), np.float32)
    np.testing.assert_allclose(shown, np.stack(observations).transpose(0, 3, 1, 2) / 255, rtol=1e-6)


def test_under_a_head_it_sees_what_the_head_leaves():
    space = Dict(
        avail_actions=Box(-1, 1, (3, 2), np.float32),
        action_mask=Box(0, 1, (3,), np.int8),
        state=IMAGE,
    )
    observations = [{**space.sample(), "action_mask": np.ones(3, np.int8)} for _ in range(2)]
    seen, shown, _ = watch(space, {"use_parametric": True}, observations)
    assert seen == Box(0, 1, (3, 5, 7), np.float32)
    images = np.stack([obs["state"] for obs in observations])
    np.testing.assert_allclose(shown, images.transpose(0, 3, 1, 2) / 255, rtol=1e-6)


def test_observations_are_stored_as_bytes():
    policy = rlcatalog.build(IMAGE, Discrete(2), model=Watching)
    assert policy.preprocess([IMAGE.sample()]).dtype == np.uint8
