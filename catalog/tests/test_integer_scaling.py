"""Scaling of integers: the numbers that a net reads for observations of integers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from scaling_cases import CASES

import rlcatalog
from rlcatalog.observations import scaling_of
from rlcatalog.spaces import Repeated

FOUR_ACTIONS = Discrete(4)
each_case = pytest.mark.parametrize("case", CASES, ids=[case.data for case in CASES])
each_framework = pytest.mark.parametrize("framework", ["torch", "tf"])


def build_linear(space, framework="torch", **config):
    """Build a policy whose logits are a linear function of the flat observation."""
    config = {"custom_model": "fcnet", "fcnet_hiddens": [], "vf_share_layers": True, **config}
    return rlcatalog.build(space, FOUR_ACTIONS, config, framework)


def read_inputs(policy, obs):
    """Return the numbers that the first layer reads, `[B, n]`: solve logits = W x + b for x."""
    size = policy.preprocessor.size
    weights = policy.model.get_weights()
    weights["outputs.logits.weight"] = np.zeros((4, size), np.float32)
    weights["outputs.logits.bias"] = np.zeros(4, np.float32)
    columns = []
    for column in range(size):
        weights["outputs.logits.weight"][:] = 0
        weights["outputs.logits.weight"][0, column] = 1  # the first logit is this number
        policy.model.set_weights(weights)
        columns.append(policy.act(obs, explore=False).dist_inputs[:, 0])
    return np.stack(columns, 1)


@each_framework
@each_case
def test_net_reads_bounds_as_the_table_says(case, framework):
    policy = build_linear(case.space, framework)
    lowest_and_highest_obs = np.stack([case.space.low, case.space.high])

    lowest, highest = read_inputs(policy, lowest_and_highest_obs)

    np.testing.assert_allclose(lowest, case.lowest, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(highest, case.highest, rtol=1e-6, atol=1e-6)


@each_case
def test_explanation_has_the_scaling_of_a_leaf(case):
    explanation = rlcatalog.explain(case.space, FOUR_ACTIONS).as_dict()

    [leaf] = explanation["plan"]
    assert leaf["scaling"] == case.note


@each_framework
def test_elements_are_scaled_by_their_own_bounds(framework):
    space = Box(np.array([0, -10, 0]), np.array([255, 10, 1]), (3,), np.int16)
    policy = build_linear(space, framework)

    read = read_inputs(policy, np.array([[51, 5, 1]], np.int16))

    # 51 of 255, 5 of 10, and 1 of 1.
    np.testing.assert_allclose(read, [[0.2, 0.5, 1.0]], rtol=1e-6)


@each_framework
def test_leaves_of_a_dict_are_scaled_each_by_its_bounds(framework):
    space = Dict(
        memory=Box(0, 255, (1,), np.uint8),
        speed=Box(-1, 1, (1,), np.float32),
        ticks=Box(0, 10_000, (1,), np.int32),
    )
    policy = build_linear(space, framework)
    obs = {
        "memory": np.array([[51]], np.uint8),
        "speed": np.array([[0.5]], np.float32),
        "ticks": np.array([[7]], np.int32),
    }

    inputs_of_net = read_inputs(policy, obs)

    # Bytes are divided by 255. Floats, and integers up to 10,000, stay as they are.
    np.testing.assert_allclose(inputs_of_net, [[51 / 255, 0.5, 7]], rtol=1e-6)


def test_padding_of_a_list_stays_zero():
    space = Repeated(Box(5, 105, (1,), np.uint8), 2)
    policy = build_linear(space)

    read = read_inputs(policy, [[np.array([55], np.uint8)]])

    # One item, scaled by bounds from 0, the padding, to 105; then an empty place.
    np.testing.assert_allclose(read, [[1, 55 / 105, 0]], rtol=1e-6)


def test_filtered_integers_are_not_scaled():
    space = Box(0, 255, (2,), np.uint8)
    policy = build_linear(space, observation_filter="MeanStdFilter")

    assert scaling_of(policy.encoded_space, policy.config) is None


@each_framework
def test_scale_integers_false_reads_vectors_as_they_are(framework):
    policy = build_linear(Box(0, 255, (2,), np.uint8), framework, scale_integers=False)

    read = read_inputs(policy, np.array([[0, 255]], np.uint8))

    np.testing.assert_array_equal(read, [[0, 255]])


def test_preprocessor_returns_the_numbers_of_the_environment():
    policy = rlcatalog.build(Box(0, 255, (2,), np.uint8), FOUR_ACTIONS)

    np.testing.assert_array_equal(policy.preprocess(np.array([[3, 200]], np.uint8)), [[3, 200]])


@each_framework
@pytest.mark.parametrize(
    ("shape", "config"),
    [
        pytest.param((8, 8, 12), {"conv_filters": [[8, 8, 1]]}, id="vision-net"),
        pytest.param((48,), {}, id="dense-net"),
    ],
)
def test_bytes_and_floats_of_a_board_act_alike(shape, config, framework):
    as_bytes = rlcatalog.build(Box(0, 1, shape, np.uint8), FOUR_ACTIONS, config, framework)
    as_floats = rlcatalog.build(Box(0, 1, shape, np.float32), FOUR_ACTIONS, config, framework)
    as_floats.model.set_weights(as_bytes.model.get_weights())
    board = (np.random.default_rng(0).random((5, *shape)) < 0.1).astype(np.uint8)

    of_bytes = as_bytes.act(board, explore=False).dist_inputs
    of_floats = as_floats.act(board.astype(np.float32), explore=False).dist_inputs

    np.testing.assert_array_equal(of_bytes, of_floats)


@pytest.fixture
def model_with_scaling():
    """A model that scales its two integers by their bounds."""
    space = Box(np.array([0, 5]), np.array([255, 15]), (2,), np.int16)
    return rlcatalog.build(space, FOUR_ACTIONS).model


def test_scaling_is_not_a_weight(model_with_scaling):
    assert not [name for name in model_with_scaling.get_weights() if "scaling" in name]


def test_scaling_is_cast_with_the_model(model_with_scaling):
    assert model_with_scaling.double().input_scaling.offset.dtype is torch.float64
