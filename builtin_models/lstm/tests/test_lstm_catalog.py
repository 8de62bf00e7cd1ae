"""The LSTM in the catalog: its choice, options, initial weights, trunks, and past actions."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from model_runs import assert_close
from scipy.special import expit as sigmoid
from scipy.stats import ks_2samp
from seed_models import DuelingQModel
from torch import nn

import rlcatalog
from rlcatalog.errors import (
    ConfigError,
    ConfigTypeError,
    ModelContractError,
    UnreadKeysWarning,
)
from rlcatalog_tf import LSTMWrapper as TFWrapper, TFModelV2
from rlcatalog_torch import LSTMWrapper, TorchModelV2

pytestmark = pytest.mark.twins

THREE_FEATURES = spaces.Box(-10, 10, (3,), np.float32)
FOUR_ACTIONS = spaces.Discrete(4)
SMALL_LSTM = {"fcnet_hiddens": [7], "use_lstm": True, "lstm_cell_size": 5}
PAST = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}


def draw_four(space, seed=0):
    """Return four observations of a space."""
    space.seed(seed)
    return [space.sample() for _ in range(4)]


# --- the choice and its explanation ---------------------------------------------------------------


def explain_memory(config):
    return rlcatalog.explain(THREE_FEATURES, FOUR_ACTIONS, config).as_dict()["memory"]


def find_candidate(memory, name):
    return next(candidate for candidate in memory["candidates"] if candidate["name"] == name)


def test_use_lstm_chooses_the_lstm():
    memory = explain_memory({"use_lstm": True})

    assert memory["chosen"] == "lstm"
    assert memory["distribution"] == "rlcatalog-lstm"
    assert find_candidate(memory, "lstm")["rank"] == "SPECIFIC"
    assert find_candidate(memory, "lstm")["reason"] == "use_lstm is set"


def test_without_use_lstm_there_is_no_memory():
    memory = explain_memory({})

    assert memory["chosen"] is None
    assert find_candidate(memory, "lstm")["reason"] == "use_lstm is not set"


def test_explanation_lists_the_keys_of_the_lstm():
    keys = explain_memory({**SMALL_LSTM, **PAST})["config_keys"]

    assert "use_lstm" in keys
    assert "lstm_cell_size" in keys
    assert "_time_major" in keys
    assert "free_log_std" in keys
    assert "max_seq_len" in keys


def test_explanation_lists_the_stages_of_the_lstm():
    config = {
        "fcnet_hiddens": [7],
        "use_lstm": True,
        "lstm_cell_size": 5,
        "lstm_use_prev_action": True,
        "lstm_use_prev_reward": True,
    }

    explanation = rlcatalog.explain(THREE_FEATURES, FOUR_ACTIONS, config).as_dict()

    stages = []
    for row in explanation["shapes"]:
        if row["stage"].startswith(("fcnet", "lstm")):
            stages.append((row["stage"], row["shape"]))
    assert stages == [
        ("fcnet: hidden 1 (tanh)", [7]),
        ("lstm: with previous action and previous reward", [7 + 4 + 1]),
        ("lstm: cell (lstm)", [5]),
        ("lstm: value", []),
        ("lstm: logits (linear)", [4]),
    ]


def test_explanation_does_not_know_the_width_of_a_custom_trunk():
    config = {**SMALL_LSTM, "lstm_use_prev_reward": True, "custom_model": TorchDoubled}

    resolution = rlcatalog.explain(THREE_FEATURES, FOUR_ACTIONS, config).resolution

    stages = {stage.name: stage.shape for stage in resolution.shapes}
    assert stages["lstm: with previous reward"] is None
    assert stages["lstm: cell (lstm)"] == (5,)


@pytest.mark.parametrize(("framework", "cls"), [("torch", LSTMWrapper), ("tf", TFWrapper)])
def test_lstm_wrapper_is_a_public_class(framework, cls):
    policy = rlcatalog.build(THREE_FEATURES, FOUR_ACTIONS, SMALL_LSTM, framework)

    assert type(policy.model) is cls


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "error", "message"),
    [
        pytest.param(
            "lstm_cell_size",
            0,
            ConfigError,
            r"'lstm_cell_size' \(width.*>= 1",
            id="size-0",
        ),
        pytest.param(
            "lstm_cell_size",
            "5",
            ConfigTypeError,
            "'lstm_cell_size'.*expected an int",
            id="size-as-text",
        ),
        pytest.param(
            "lstm_bias_initializer",
            "orthogonal",
            ConfigError,
            "'orthogonal' needs a matrix, but a bias",
            id="orthogonal-bias",
        ),
        pytest.param(
            "lstm_weights_initializer",
            "xavier",
            ConfigError,
            "unknown initialiser 'xavier'",
            id="unknown-initializer",
        ),
        pytest.param(
            "lstm_bias_initializer_config",
            {"val": 1},
            ConfigError,
            r"needs 'lstm_bias_initializer'",
            id="config-without-initializer",
        ),
    ],
)
def test_invalid_option_is_an_error(key, value, error, message):
    with pytest.raises(error, match=message):
        rlcatalog.default_catalog().resolve(
            THREE_FEATURES, FOUR_ACTIONS, {**SMALL_LSTM, key: value}
        )


def test_arguments_of_the_model_lstm_are_checked():
    config = {"custom_model": "lstm", "custom_model_config": {"cells": 3}}

    with pytest.raises(ConfigError, match="LSTMWrapper does not accept 'cells'") as caught:
        rlcatalog.build(THREE_FEATURES, FOUR_ACTIONS, config)

    assert "custom_model_config: LSTMWrapper" in str(caught.value)


def test_no_final_linear_is_warned_of_and_has_no_effect(framework, build_policy):
    with pytest.warns(UnreadKeysWarning, match="no_final_linear"):
        policy = build_policy(framework, {"no_final_linear": True})

    step = policy.act(draw_four(THREE_FEATURES), explore=False)
    expected = build_policy(framework).act(draw_four(THREE_FEATURES), explore=False)
    np.testing.assert_array_equal(step.dist_inputs, expected.dist_inputs)
    np.testing.assert_array_equal(step.value, expected.value)


def test_old_key_sets_previous_action_and_reward():
    with pytest.warns(DeprecationWarning, match="_prev_action_reward' is now split"):
        policy = rlcatalog.build(
            THREE_FEATURES, FOUR_ACTIONS, {**SMALL_LSTM, "lstm_use_prev_action_reward": True}
        )

    assert policy.config["lstm_use_prev_action"]
    assert policy.config["lstm_use_prev_reward"]
    assert set(policy.model.view_requirements) == {"obs", "past_actions", "past_rewards"}


@pytest.mark.filterwarnings("ignore:.*lstm_use_prev_action_reward:DeprecationWarning")
def test_old_key_beside_its_new_one_is_an_error():
    config = {"lstm_use_prev_reward": True, "lstm_use_prev_action_reward": True}

    with pytest.raises(ConfigError, match="another name for 'lstm_use_prev_reward'"):
        rlcatalog.build(THREE_FEATURES, FOUR_ACTIONS, config)


# --- initial weights ------------------------------------------------------------------------------


def build_initial_weights(framework, **config):
    """Return the weights of 60 cells with 40 inputs, by gate.

    The shapes are [4, 60, 40] for the inputs, [4, 60, 60] for the recurrence, [4, 60] for the bias.
    """
    config = {"fcnet_hiddens": [40], "use_lstm": True, "lstm_cell_size": 60, **config}
    model = rlcatalog.default_catalog().model_v2(THREE_FEATURES, FOUR_ACTIONS, 4, config, framework)
    weights = model.get_weights()
    return (
        weights["cell.weight_ih"].reshape(4, 60, 40),
        weights["cell.weight_hh"].reshape(4, 60, 60),
        weights["cell.bias"].reshape(4, 60),
    )


def test_initial_input_weights_are_xavier_uniform(framework):
    inputs, _, _ = build_initial_weights(framework)

    bound = np.sqrt(6 / (40 + 60))  # for each gate: 40 inputs, 60 outputs
    assert 0.95 * bound < np.abs(inputs).max() <= bound * (1 + 1e-6)
    np.testing.assert_allclose(inputs.std(axis=(1, 2)), bound / np.sqrt(3), rtol=0.1)


def test_initial_recurrent_weights_are_orthogonal(framework):
    _, recurrent, _ = build_initial_weights(framework)

    for gate in recurrent:
        np.testing.assert_allclose(gate @ gate.T, np.eye(60), atol=1e-5)


def test_initial_bias_is_one_for_the_forget_gate(framework):
    _, _, bias = build_initial_weights(framework)

    input_gate, forget_gate, cell_gate, output_gate = bias
    np.testing.assert_array_equal(input_gate, np.zeros(60))
    np.testing.assert_array_equal(forget_gate, np.ones(60))
    np.testing.assert_array_equal(cell_gate, np.zeros(60))
    np.testing.assert_array_equal(output_gate, np.zeros(60))


@pytest.mark.parametrize("init", ["orthogonal", "fan_in_uniform"])
def test_init_gives_the_uniform_weights_of_torch_nn_lstm(framework, init):
    torch.manual_seed(0)
    own = torch.nn.LSTM(40, 60)

    inputs, recurrent, bias = build_initial_weights(framework, init=init)

    own_weights = (own.weight_ih_l0, own.weight_hh_l0, own.bias_ih_l0)
    for weight, own_weight in zip((inputs, recurrent, bias), own_weights, strict=True):
        assert ks_2samp(weight.ravel(), own_weight.detach().numpy().ravel()).pvalue > 1e-3


def test_initializers_of_the_config_are_used(framework):
    inputs, recurrent, bias = build_initial_weights(
        framework,
        lstm_weights_initializer="normc",
        lstm_weights_initializer_config={"std": 0.5},
        lstm_bias_initializer="constant",
        lstm_bias_initializer_config={"val": 0.25},
    )

    # normc gives the weights of each gate and cell the norm std. The axes: gate, cell, input.
    np.testing.assert_allclose(np.linalg.norm(inputs, axis=2), 0.5, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(recurrent, axis=2), 0.5, rtol=1e-5)
    assert (bias == 0.25).all()


def test_initializers_may_be_torch_functions():
    def fill_with_two(tensor):
        tensor.fill_(2.0)

    inputs, recurrent, bias = build_initial_weights(
        "torch", lstm_weights_initializer=nn.init.eye_, lstm_bias_initializer=fill_with_two
    )

    # 60 cells read 40 features and their own 60 outputs.
    for gate in range(4):
        np.testing.assert_array_equal(inputs[gate], np.eye(60, 40))
        np.testing.assert_array_equal(recurrent[gate], np.eye(60))
    assert (bias == 2).all()


def test_initializers_may_be_tf_functions():
    def make_identity(shape):
        return tf.eye(*shape)

    inputs, recurrent, _ = build_initial_weights("tf", lstm_weights_initializer=make_identity)

    np.testing.assert_array_equal(inputs[3], np.eye(60, 40))
    np.testing.assert_array_equal(recurrent[0], np.eye(60))


# --- trunks ---------------------------------------------------------------------------------------


class TorchDoubled(TorchModelV2, nn.Module):
    """RLlib's example of a model below an LSTM: returns twice the observation."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs = int(np.prod(self.obs_space.shape))
        self._last_batch_size = None

    def forward(self, input_dict, state, seq_lens):
        obs = input_dict["obs_flat"]
        self._last_batch_size = obs.shape[0]
        return obs * 2.0, []

    def value_function(self):
        return torch.from_numpy(np.zeros(shape=(self._last_batch_size,)))


class TFDoubled(TFModelV2):
    """The same in TensorFlow."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs = int(np.prod(self.obs_space.shape))
        self._last_batch_size = None

    def forward(self, input_dict, state, seq_lens):
        obs = input_dict["obs_flat"]
        self._last_batch_size = tf.shape(obs)[0]
        return obs * 2.0, []

    def value_function(self):
        return tf.zeros(shape=(self._last_batch_size,))


DOUBLED = {"torch": TorchDoubled, "tf": TFDoubled}


@pytest.mark.parametrize(
    "space", [THREE_FEATURES, spaces.Dict(a=THREE_FEATURES, b=FOUR_ACTIONS)], ids=["Box", "Dict"]
)
def test_lstm_reads_the_features_of_a_custom_trunk(framework, build_policy, space):
    policy = build_policy(framework, {"custom_model": DOUBLED[framework]}, obs_space=space)
    observations = draw_four(space)

    _, cell_state = policy.act(observations).state.memory

    weights = policy.model.get_weights()
    features = 2 * policy.preprocess(observations).reshape(4, -1)
    gates = features @ weights["cell.weight_ih"].T + weights["cell.bias"]
    input_gate, _, cell_gate, _ = np.split(gates, 4, axis=1)
    # The state before is 0, so that the forget gate has nothing to keep.
    assert_close(cell_state, sigmoid(input_gate) * np.tanh(cell_gate), tolerance=1e-4)


def test_trunk_with_wrong_num_outputs_is_an_error(framework, build_policy):
    class WrongWidth(DOUBLED[framework]):
        def __init__(self, *args):
            super().__init__(*args)
            self.num_outputs = 6  # it returns 3

    with pytest.raises(ModelContractError, match="WrongWidth declared num_outputs=6") as caught:
        build_policy(framework, {"custom_model": WrongWidth}).act(draw_four(THREE_FEATURES))

    assert "but its forward() returned 3 val" in str(caught.value)


def test_features_with_more_axes_are_flattened(build_policy):
    class ReturnsMatrices(TorchDoubled):
        def forward(self, input_dict, state, seq_lens):
            return input_dict["obs"], []  # [rows, 2, 3]

    matrices = spaces.Box(-1, 1, (2, 3), np.float32)
    policy = build_policy("torch", {"custom_model": ReturnsMatrices}, obs_space=matrices)

    h, _ = policy.act(draw_four(matrices)).state.memory

    assert policy.model.cell.weight_ih.shape == (20, 6)  # 4 gates of 5 cells, 2 * 3 features
    assert h.shape == (4, 5)  # 4 observations, 5 cells


# --- interfaces -----------------------------------------------------------------------------------


@pytest.fixture
def dueling_model():
    """An LSTM of 5 cells with the head of a dueling Q network for 4 actions."""
    config = {**SMALL_LSTM, **PAST}
    return rlcatalog.default_catalog().model_v2(
        THREE_FEATURES, FOUR_ACTIONS, 4, config, "torch", "q", DuelingQModel
    )


def test_interface_class_is_derived_from_the_lstm(dueling_model):
    assert type(dueling_model.inner) is LSTMWrapper
    assert dueling_model.num_outputs == 5
    assert dueling_model.A.in_features == 5
    assert set(dueling_model.view_requirements) == {"obs", "past_actions", "past_rewards"}


# --- past actions and rewards ---------------------------------------------------------------------

PAIR = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)])


@pytest.mark.parametrize(
    ("actions", "width"),
    [
        pytest.param(spaces.Discrete(4, start=2), 4, id="Discrete"),  # one-hot
        pytest.param(spaces.MultiDiscrete([2, 3]), 2 + 3, id="MultiDiscrete"),
        pytest.param(spaces.MultiBinary(3), 3, id="MultiBinary"),
        pytest.param(spaces.Box(-1, 1, (2,), np.float32), 2, id="Box"),
        pytest.param(spaces.Box(-2, 3, (2,), np.int32), 2, id="Box-of-integers"),
        pytest.param(PAIR, 3 + 2, id="Tuple"),
        pytest.param(spaces.Dict(x=spaces.MultiBinary(2), y=PAIR), 2 + 5, id="Dict"),
    ],
)
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "_disable_action_flattening"])
def test_cell_reads_past_actions_of_any_space(framework, actions, width, nested, build_policy):
    policy = build_policy(
        framework, {**PAST, "_disable_action_flattening": nested}, action_space=actions
    )

    first_step = policy.act(draw_four(THREE_FEATURES))

    past_actions = first_step.state.views["past_actions"]
    assert past_actions.shape == (4, width)  # 4 observations
    assert not past_actions.any()  # there is no earlier action
    # 4 gates of 5 cells read 7 features, the past action and the past reward.
    assert policy.model.get_weights()["cell.weight_ih"].shape == (20, 7 + width + 1)
