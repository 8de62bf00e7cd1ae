"""`build_action_critic`: networks for the values of actions, in both frameworks."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from builders import to_array
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

import rlcatalog_tf
import rlcatalog_torch
from rlcatalog import Catalog, Preprocessor, ViewRequirement, default_catalog
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.twins

frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])

THREE = Box(-1, 1, (3,), np.float32)
#: Two numbers, in [-2, 2] and in [0, 6].
TWO_NUMBERS = Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 6.0], np.float32))
ARM = Dict({"elbow": Box(-1.5, 1.5, (1,)), "shoulder": TWO_NUMBERS})
CAMERA = Box(0, 255, (12, 12, 3), np.uint8)
CONVS = {"conv_filters": [[4, 3, 2]], "conv_flatten": True}
LAYER = {"fcnet_hiddens": [8], "fcnet_activation": "relu"}


def build(framework, observation_space, action_space, config=None, **arguments):
    package = rlcatalog_torch if framework == "torch" else rlcatalog_tf
    config = LAYER if config is None else config
    return package.build_action_critic(observation_space, action_space, config, **arguments)


def values_of(critic, *arrays, **masks):
    """Return a critic's values for arrays as an array."""
    if isinstance(critic, torch.nn.Module):
        arrays = [torch.as_tensor(array) for array in arrays]
        masks = {name: torch.as_tensor(mask) for name, mask in masks.items()}
    return to_array(critic(*arrays, **masks))


def run_by_hand(critic, rows, layer="output"):
    """Return the outputs of a critic with one hidden layer of ReLUs, computed with NumPy."""
    weights = critic.get_weights()
    hidden = rows @ weights["trunk.hidden.layers.0.weight"].T
    features = np.maximum(hidden + weights["trunk.hidden.layers.0.bias"], 0)
    return features @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]


def random_rows(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


# --- values ---------------------------------------------------------------------------------------


@frameworks
def test_values_are_those_of_dense_layers_over_both(framework):
    critic = build(framework, THREE, TWO_NUMBERS)
    obs = random_rows(3, 3)
    lowest_middle_and_highest = np.array([[-2, 0], [0, 3], [2, 6]], np.float32)

    values = values_of(critic, obs, lowest_middle_and_highest)

    scaled = np.array([[-1, -1], [0, 0], [1, 1]], np.float32)
    expected = run_by_hand(critic, np.concatenate([obs, scaled], axis=1))
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)


@frameworks
def test_discrete_has_a_value_for_each_action(framework):
    critic = build(framework, THREE, Discrete(4, start=2))
    obs = random_rows(5, 3)

    values = values_of(critic, obs)

    assert values.shape == (5, 4)
    np.testing.assert_allclose(values, run_by_hand(critic, obs), rtol=1e-4, atol=1e-5)


@frameworks
@pytest.mark.parametrize("is_masked", [False, True])
def test_dueling_values_have_the_mean_of_the_allowed(framework, is_masked):
    critic = build(framework, THREE, Discrete(4), dueling=True)
    obs = random_rows(2, 3)
    mask = np.array([[1, 1, 0, 1], [0, 0, 0, 0]], bool)  # the second row allows nothing

    values = values_of(critic, obs, mask=mask) if is_masked else values_of(critic, obs)

    advantages = run_by_hand(critic, obs)
    state_values = run_by_hand(critic, obs, layer="value")
    mean = advantages.mean(axis=1)
    if is_masked:
        mean = np.array([advantages[0, [0, 1, 3]].mean(), 0.0])
    expected = state_values + advantages - mean[:, None]
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)


@frameworks
def test_num_outputs_counts_for_each_action(framework):
    of_numbers = build(framework, THREE, TWO_NUMBERS, num_outputs=5)
    of_choices = build(framework, THREE, Discrete(4), num_outputs=5)

    assert values_of(of_numbers, random_rows(2, 3), random_rows(2, 2)).shape == (2, 5)
    assert values_of(of_choices, random_rows(2, 3)).shape == (2, 20)


@frameworks
@pytest.mark.parametrize(
    ("action_space", "action", "scaled"),
    [
        # The entries of a Dict are sorted by name.
        (ARM, [1.5, -2, 6], [1, -1, 1]),
        (Tuple([TWO_NUMBERS, Box(0, 1, (1,))]), [2, 3, 0.25], [1, 0, -0.5]),
        (Box(-0.5, 0.5, (2, 2), np.float64), [[0.5, 0.0], [-0.5, 0.25]], [1, 0, -1, 0.5]),
        (Box(-2, 2, (), np.float32), 1.0, [0.5]),
        (Box(np.float32([0, 1]), np.float32([0, 3])), [0, 3], [0, 1]),  # one value is fixed
    ],
    ids=["Dict", "Tuple", "rank 2, float64", "rank 0", "equal bounds"],
)
def test_actions_of_all_kinds_of_boxes_are_scaled(framework, action_space, action, scaled):
    critic = build(framework, THREE, action_space)
    dtype = getattr(action_space, "dtype", None) or np.float32
    obs = random_rows(1, 3)

    values = values_of(critic, obs, np.array([action], dtype))

    rows = np.concatenate([obs, np.array([scaled], np.float32)], axis=1)
    np.testing.assert_allclose(values, run_by_hand(critic, rows), rtol=1e-4, atol=1e-5)


@frameworks
def test_bytes_are_scaled_like_those_of_a_policy(framework):
    critic = build(framework, Box(0, 255, (3,), np.uint8), TWO_NUMBERS)
    obs = np.array([[0, 51, 255]], np.uint8)

    values = values_of(critic, obs, np.array([[0, 3]], np.float32))

    rows = np.array([[0, 0.2, 1, 0, 0]], np.float32)
    np.testing.assert_allclose(values, run_by_hand(critic, rows), rtol=1e-4, atol=1e-5)


CASES = {
    "camera beside a vector": (Dict({"camera": CAMERA, "speed": THREE}), ARM, CONVS),
    "camera": (CAMERA, TWO_NUMBERS, CONVS),
    "camera, choices": (CAMERA, Discrete(3), CONVS),
    "camera with a mask": (
        Dict({"action_mask": MultiBinary(3), "camera": CAMERA}),
        Discrete(3),
        CONVS,
    ),
    "vector with a mask": (Dict({"action_mask": MultiBinary(3), "x": THREE}), Discrete(3), LAYER),
    "embeddings": (
        Dict(
            {
                "action_mask": MultiBinary(4),
                "avail_actions": Box(-1, 1, (4, 3)),
                "x": THREE,
            }
        ),
        Discrete(4),
        LAYER,
    ),
    "entry named action": (Dict({"action": THREE, "x": THREE}), TWO_NUMBERS, LAYER),
    "filter": (THREE, TWO_NUMBERS, {**LAYER, "observation_filter": "MeanStdFilter"}),
}
each_case = pytest.mark.parametrize("case", CASES)


def random_inputs(critic, action_space, rows=4):
    """Return encoded observations and, unless they are choices, actions."""
    obs = random_rows(rows, *critic.preprocessor.shape)
    if isinstance(action_space, Discrete):
        return [obs]
    width = 3 if action_space == ARM else 2
    return [obs, random_rows(rows, width, seed=1)]


@each_case
def test_weights_mean_the_same_in_both_frameworks(case):
    observation_space, action_space, config = CASES[case]
    critic = build("torch", observation_space, action_space, config)
    tf_critic = build("tf", observation_space, action_space, config)
    inputs = random_inputs(critic, action_space)

    tf_critic.set_weights(critic.get_weights())

    values = values_of(critic, *inputs)
    np.testing.assert_allclose(values_of(tf_critic, *inputs), values, rtol=1e-4, atol=1e-5)
    critic.set_weights(tf_critic.get_weights())
    np.testing.assert_array_equal(values_of(critic, *inputs), values)


@each_case
def test_value_depends_on_every_input(case):
    observation_space, action_space, config = CASES[case]
    critic = build("torch", observation_space, action_space, config)
    inputs = [
        torch.as_tensor(array).requires_grad_() for array in random_inputs(critic, action_space)
    ]

    critic(*inputs).sum().backward()

    for tensor in inputs:
        seen = tensor.grad.any(dim=0).float()
        assert seen.mean() > 0.8  # the windows of the convolution leave out two borders


def test_mask_is_no_part_of_encoded_observations():
    space, action_space, config = CASES["vector with a mask"]

    critic = build("torch", space, action_space, config)

    obs = {"x": np.ones(3, np.float32)}
    np.testing.assert_array_equal(critic.preprocessor.transform(obs), np.ones(3))


@frameworks
def test_critics_have_weights_of_their_own(framework):
    first = build(framework, THREE, TWO_NUMBERS).get_weights()
    second = build(framework, THREE, TWO_NUMBERS).get_weights()

    for name in ("trunk.hidden.layers.0.weight", "output.weight", "output.bias"):
        assert not np.array_equal(first[name], second[name])


@frameworks
def test_last_layer_starts_like_one_of_pytorch(framework):
    critic = build(framework, THREE, TWO_NUMBERS, {"fcnet_hiddens": [400]}, num_outputs=50)

    weight = critic.get_weights()["output.weight"]

    # Uniform within 1 / sqrt(400 inputs).
    assert np.abs(weight).max() <= 1 / 20
    assert weight.std() == pytest.approx(1 / 20 / 3**0.5, rel=0.05)


@frameworks
def test_copy_is_a_target_network(framework):
    critic = build(framework, THREE, TWO_NUMBERS)
    inputs = random_inputs(critic, TWO_NUMBERS)
    before = values_of(critic, *inputs)

    target = copy.deepcopy(critic)
    critic.set_weights({name: value + 1 for name, value in critic.get_weights().items()})

    np.testing.assert_array_equal(values_of(target, *inputs), before)
    assert not np.array_equal(values_of(critic, *inputs), before)


def test_critic_in_double_precision_keeps_it():
    critic = build("torch", THREE, TWO_NUMBERS).double()

    values = critic(torch.rand(2, 3, dtype=torch.float64), torch.rand(2, 2, dtype=torch.float64))

    assert values.dtype is torch.float64


def test_tf_trains_every_variable():
    import tensorflow as tf

    critic = build("tf", THREE, Discrete(4), dueling=True)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(critic(random_rows(3, 3)) ** 2)

    gradients = tape.gradient(loss, critic.trainable_variables)

    assert len(gradients) == 6  # a kernel and a bias of three layers
    for gradient in gradients:
        assert np.any(gradient.numpy())


# --- the config -----------------------------------------------------------------------------------


def test_critics_config_has_the_keys_about_the_observation():
    config = {
        "fcnet_hiddens": [4],
        "image_layout": "chw",
        "observation_filter": "MeanStdFilter",
        "custom_action_dist": "squashed_gaussian",
        "critic": {"fcnet_hiddens": [8]},
    }

    critic_config = default_catalog().action_critic_config(config)

    assert critic_config == {
        "fcnet_hiddens": [8],
        "image_layout": "chw",
        "observation_filter": "MeanStdFilter",
    }


def test_config_without_a_critic_has_none():
    assert default_catalog().action_critic_config({"fcnet_hiddens": [4]}) is None


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"critic": {}, "obs_groups": {"policy": ["x"]}}, NotServedError, "same observation"),
        ({"critic": {"image_layout": "hwc"}}, ConfigError, "about both the policy and the critic"),
        ({"critic": {}, "vf_share_layers": True}, ConfigError, "shares no layers"),
    ],
    ids=["obs_groups", "shared key", "shared layers"],
)
def test_config_that_critics_cannot_have_is_refused(config, error, message):
    with pytest.raises(error, match=message):
        default_catalog().action_critic_config(config)


# --- what is refused ------------------------------------------------------------------------------


class ReadsPast(TorchModelV2):
    """A model that requests the previous action."""

    def __init__(self, *args):
        super().__init__(*args)
        self.num_outputs = 4
        self.view_requirements["prev"] = ViewRequirement("actions", shift=-1)


class Whole(Preprocessor):
    """A preprocessor that encodes the whole observation at once."""

    def _init_shape(self, obs_space, options):
        return (3,)

    def transform(self, observation):
        return np.zeros(3, np.float32)


class Unfinished(TorchModelV2):
    """A model that does not say how many features it has."""


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"critic": {}}, NotServedError, "cannot have a critic of its own"),
        ({"obs_groups": {"policy": ["x"]}}, ConfigError, "obs_groups needs a critic"),
        ({"use_lstm": True}, NotServedError, "memory 'lstm' is not supported"),
        ({"custom_preprocessor": Whole}, NotServedError, "custom_preprocessor: a critic for"),
        ({"custom_model": ReadsPast}, NotServedError, "reads past steps"),
        ({"custom_model": Unfinished}, ModelContractError, "num_outputs"),
    ],
    ids=["critic", "obs_groups", "memory", "preprocessor", "past", "no width"],
)
def test_config_of_a_trunk_alone_is_required(config, error, message):
    with pytest.raises(error, match=message):
        build("torch", THREE, TWO_NUMBERS, config)


def test_values_of_embeddings_have_no_layers_after_them():
    space, action_space, config = CASES["embeddings"]

    with pytest.raises(NotServedError, match="returns one value for each action"):
        build("torch", space, action_space, config, dueling=True)
    with pytest.raises(NotServedError, match="returns one value for each action"):
        build("torch", space, action_space, config, num_outputs=5)


@frameworks
@pytest.mark.parametrize(
    "action_space",
    [
        MultiDiscrete([2, 3]),
        Box(-1, 1, (2,), np.int8),
        Box(-np.inf, np.inf, (2,)),
        Dict({"a": Box(-1, 1, (1,)), "b": Discrete(2)}),
    ],
    ids=["choices", "integers", "unbounded", "mixed"],
)
def test_other_actions_are_refused(framework, action_space):
    with pytest.raises(NotServedError, match="Boxes of floats with finite bounds"):
        build(framework, THREE, action_space)


@frameworks
def test_dueling_needs_one_value_for_each_choice(framework):
    with pytest.raises(NotServedError, match="one value for each action of a Discrete"):
        build(framework, THREE, TWO_NUMBERS, dueling=True)
    with pytest.raises(NotServedError, match="one value for each action of a Discrete"):
        build(framework, THREE, Discrete(3), dueling=True, num_outputs=5)


@frameworks
def test_actions_are_passed_if_they_are_continuous(framework):
    of_numbers = build(framework, THREE, TWO_NUMBERS)
    of_choices = build(framework, THREE, Discrete(3))

    with pytest.raises(NotServedError, match="continuous actions needs them"):
        values_of(of_numbers, random_rows(2, 3))
    with pytest.raises(NotServedError, match="returns the values of all 3 actions"):
        values_of(of_choices, random_rows(2, 3), random_rows(2, 1))


def test_catalog_of_the_caller_is_used():
    class Features(torch.nn.Module):
        def forward(self, inputs):
            return torch.cat([inputs["obs"], inputs["action"]], dim=1)

    catalog = Catalog()
    catalog.register_model("features", Features)

    critic = build("torch", THREE, TWO_NUMBERS, {"custom_model": "features"}, catalog=catalog)

    assert critic.output.in_features == 5
