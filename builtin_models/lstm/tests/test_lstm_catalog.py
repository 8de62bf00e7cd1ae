"""The LSTM in the catalog: its choice, options, initial weights, trunks, and past actions."""

from __future__ import annotations

import importlib.util

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from scipy.special import expit
from seed_models import DuelingQModel, TorchRNN
from torch import nn

import rlcatalog
from rlcatalog import SpaceInfo
from rlcatalog.actions import action_codec
from rlcatalog.errors import (
    ConfigError,
    ConfigTypeError,
    ModelContractError,
    NotServedError,
    UnreadKeysWarning,
)
from rlcatalog_tf import LSTMWrapper as TFWrapper, TFModelV2
from rlcatalog_torch import FullyConnectedNetwork, LSTMWrapper, TorchModelV2

pytestmark = pytest.mark.twins

OBS = spaces.Box(-10, 10, (3,), np.float32)
ACTIONS = spaces.Discrete(4)
SMALL_LSTM = {"fcnet_hiddens": [7], "use_lstm": True, "lstm_cell_size": 5}
PAST = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}


def draw_four(space, seed=0):
    """Return four observations of a space."""
    space.seed(seed)
    return [space.sample() for _ in range(4)]


# --- the choice and its explanation ---------------------------------------------------------------


def explain_memory(config):
    return rlcatalog.explain(OBS, ACTIONS, config).as_dict()["memory"]


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

    explanation = rlcatalog.explain(OBS, ACTIONS, config).as_dict()

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

    resolution = rlcatalog.explain(OBS, ACTIONS, config).resolution

    stages = {stage.name: stage.shape for stage in resolution.shapes}
    assert stages["lstm: with previous reward"] is None
    assert stages["lstm: cell (lstm)"] == (5,)


@pytest.mark.parametrize(("framework", "cls"), [("torch", LSTMWrapper), ("tf", TFWrapper)])
def test_lstm_wrapper_is_a_public_class(framework, cls):
    policy = rlcatalog.build(OBS, ACTIONS, SMALL_LSTM, framework)

    assert type(policy.model) is cls


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "error", "message"),
    [
        pytest.param(
            "lstm_cell_size",
            0,
            ConfigError,
            r"'lstm_cell_size' \(width of the LSTM's cell and output\).*>= 1",
            id="size-0",
        ),
        pytest.param(
            "lstm_cell_size",
            "5",
            ConfigTypeError,
            r"'lstm_cell_size'.*expected 'int', got 'str'; found '5'",
            id="size-as-text",
        ),
        pytest.param(
            "lstm_bias_initializer",
            "orthogonal",
            ConfigError,
            r"'orthogonal' needs a matrix, but a bias is a vector",
            id="orthogonal-bias",
        ),
        pytest.param(
            "lstm_weights_initializer",
            "xavier",
            ConfigError,
            r"'lstm_weights_initializer': unknown initialiser 'xavier'",
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
        rlcatalog.default_catalog().resolve(OBS, ACTIONS, {**SMALL_LSTM, key: value})


def test_arguments_of_the_model_lstm_are_checked():
    config = {"custom_model": "lstm", "custom_model_config": {"cells": 3}}

    with pytest.raises(ConfigError, match="LSTMWrapper does not accept 'cells'") as caught:
        rlcatalog.build(OBS, ACTIONS, config)

    assert "custom_model_config: LSTMWrapper" in str(caught.value)


def test_free_log_std_is_appended_to_the_means(framework, build_policy, assert_close):
    actions = spaces.Box(-1, 1, (2,), np.float32)
    policy = build_policy(framework, {"free_log_std": True}, action_space=actions)
    weights = policy.model.get_weights()

    step = policy.act(np.zeros((3, 3), np.float32))

    log_std = weights["outputs.free_log_std.log_std"]
    assert weights["outputs.logits.weight"].shape == (2, 5)  # 2 means of 5 cells
    assert_close(step.dist_inputs[:, 2:], np.tile(log_std, (3, 1)))


def test_no_final_linear_is_warned_of_and_has_no_effect(framework, build_policy):
    obs = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    expected = build_policy(framework).act(obs, explore=False)

    with pytest.warns(UnreadKeysWarning, match="no_final_linear"):
        policy = build_policy(framework, {"no_final_linear": True})

    step = policy.act(obs, explore=False)
    assert policy.model.get_weights()["outputs.logits.weight"].shape == (4, 5)  # 4 actions, 5 cells
    np.testing.assert_array_equal(step.logp, expected.logp)
    np.testing.assert_array_equal(step.dist_inputs, expected.dist_inputs)
    np.testing.assert_array_equal(step.value, expected.value)


def test_old_key_sets_previous_action_and_reward():
    with pytest.warns(DeprecationWarning, match="is now split into") as caught:
        policy = rlcatalog.build(OBS, ACTIONS, {**SMALL_LSTM, "lstm_use_prev_action_reward": True})

    message = str(caught[0].message)
    assert "'lstm_use_prev_action_reward' is now split into 'lstm_use_prev_act" in message
    assert policy.config["lstm_use_prev_action"]
    assert policy.config["lstm_use_prev_reward"]
    assert set(policy.model.view_requirements) == {"obs", "past_actions", "past_rewards"}


def test_old_key_beside_its_new_one_is_an_error():
    config = {"lstm_use_prev_reward": True, "lstm_use_prev_action_reward": True}

    with (
        pytest.warns(DeprecationWarning, match="split"),
        pytest.raises(ConfigError, match="is another name for") as caught,
    ):
        rlcatalog.build(OBS, ACTIONS, config)

    expected = "'lstm_use_prev_action_reward' is another name for 'lstm_use_prev_reward'"
    assert expected in str(caught.value)


# --- initial weights ------------------------------------------------------------------------------


def build_initial_weights(framework, **config):
    """Return the weights of 60 cells with 40 inputs, by gate.

    The shapes are [4, 60, 40] for the inputs, [4, 60, 60] for the recurrence, [4, 60] for the bias.
    """
    config = {"fcnet_hiddens": [40], "use_lstm": True, "lstm_cell_size": 60, **config}
    model = rlcatalog.default_catalog().model_v2(OBS, ACTIONS, 4, config, framework)
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


def test_initializers_of_the_config_are_used(framework):
    inputs, recurrent, bias = build_initial_weights(
        framework,
        lstm_weights_initializer="normc",
        lstm_weights_initializer_config={"std": 0.5},
        lstm_bias_initializer="constant",
        lstm_bias_initializer_config={"val": 0.25},
    )

    np.testing.assert_allclose(np.linalg.norm(inputs, axis=2), 0.5, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(recurrent, axis=2), 0.5, rtol=1e-5)
    np.testing.assert_array_equal(bias, np.full((4, 60), 0.25))


def test_initializers_may_be_torch_functions():
    def fill_with_two(tensor):
        tensor.fill_(2.0)

    inputs, recurrent, bias = build_initial_weights(
        "torch", lstm_weights_initializer=nn.init.eye_, lstm_bias_initializer=fill_with_two
    )

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


@pytest.mark.parametrize("space", [OBS, spaces.Dict(a=OBS, b=ACTIONS)], ids=["Box", "Dict"])
def test_rllib_example_model_acts_with_a_memory(framework, build_policy, space):
    policy = build_policy(framework, {"custom_model": DOUBLED[framework]}, obs_space=space)

    first = policy.act(draw_four(space))
    second = policy.act(draw_four(space), first.state)

    assert first.value.shape == (4,)  # 4 observations
    assert not np.allclose(first.dist_inputs, second.dist_inputs, atol=1e-4)


@pytest.mark.parametrize("space", [OBS, spaces.Dict(a=OBS, b=ACTIONS)], ids=["Box", "Dict"])
def test_lstm_reads_the_features_of_a_custom_trunk(framework, build_policy, assert_close, space):
    policy = build_policy(framework, {"custom_model": DOUBLED[framework]}, obs_space=space)
    weights = policy.model.get_weights()

    _, cell_state = policy.act(draw_four(space)).state.memory

    features = 2 * policy.preprocess(draw_four(space)).reshape(4, -1)
    gates = features @ weights["cell.weight_ih"].T + weights["cell.bias"]
    i, _, g, _ = np.split(gates, 4, axis=1)
    assert_close(cell_state, expit(i) * np.tanh(g), tolerance=1e-4)  # it was 0


class FcnetOfWidth(FullyConnectedNetwork):
    """A fully connected network with one hidden layer of this width."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, width):
        config = {**model_config, "fcnet_hiddens": [width]}
        super().__init__(obs_space, action_space, num_outputs, config, name)


def test_custom_trunk_receives_its_keyword_arguments(build_policy):
    # RLlib dropped them once an LSTM was wrapped around the model.
    policy = build_policy(
        "torch", {"custom_model": FcnetOfWidth, "custom_model_config": {"width": 11}}
    )

    assert policy.model.cell.weight_ih.shape == (20, 11)  # 4 gates of 5 cells


def test_unknown_keyword_argument_of_a_custom_trunk_is_an_error(build_policy):
    config = {"custom_model": FcnetOfWidth, "custom_model_config": {"widht": 11}}

    with pytest.raises(ConfigError, match=r"FcnetOfWidth does not accept 'widht'"):
        build_policy("torch", config)


def test_recurrent_trunk_is_an_error(build_policy):
    class RecurrentTrunk(TorchRNN):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(obs_space, action_space, num_outputs or 3, model_config, name)

    with pytest.raises(NotServedError, match="RecurrentTrunk is itself recurrent ") as caught:
        build_policy("torch", {"custom_model": RecurrentTrunk})

    assert "LSTMWrapper cannot be wrapped around it" in str(caught.value)


def test_trunk_with_wrong_num_outputs_is_an_error(framework, build_policy):
    class WrongWidth(DOUBLED[framework]):
        def __init__(self, *args):
            super().__init__(*args)
            self.num_outputs = 6  # it returns 3

    with pytest.raises(ModelContractError, match="WrongWidth declared num_outputs=6") as caught:
        build_policy(framework, {"custom_model": WrongWidth}).act(draw_four(OBS))

    assert "but its forward() returned 3 val" in str(caught.value)


def test_features_with_more_axes_are_flattened(build_policy):
    class ReturnsObservation(TorchDoubled):
        def forward(self, input_dict, state, seq_lens):
            return input_dict["obs"], []

    space = spaces.Box(-1, 1, (2, 3), np.float32)
    policy = build_policy("torch", {"custom_model": ReturnsObservation}, obs_space=space)

    step = policy.act(draw_four(space))

    assert step.state.memory[0].shape == (4, 5)  # 4 observations, 5 cells


STRUCTURED = spaces.Dict(
    position=spaces.Box(-1, 1, (2,), np.float32),
    kind=spaces.Discrete(3),
    others=spaces.Tuple([spaces.MultiBinary(2)]),
)
IMAGE = spaces.Box(0, 255, (12, 12, 3), np.uint8)


def join_steps(first, second):
    """Return the rows of two steps as sequences of two: first and second of row 0, of row 1, …"""
    pairs = np.stack([first, second], axis=1)
    return pairs.reshape(-1, *pairs.shape[2:])


@pytest.mark.grid
# For an image fcnet_hiddens is not read.
@pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")
@pytest.mark.parametrize(
    "space", [STRUCTURED, IMAGE, spaces.Discrete(5)], ids=["Dict", "image", "Discrete"]
)
def test_evaluate_matches_acting_for_other_observations(
    framework, build_policy, to_array, assert_close, space
):
    config = dict(PAST)
    if space is IMAGE and importlib.util.find_spec("rlcatalog_visionnet"):
        config["conv_filters"] = [[4, [4, 4], 4], [8, [3, 3], 3]]
        config["fcnet_hiddens"] = []
    policy = build_policy(framework, config, obs_space=space)
    first_obs = draw_four(space, seed=0)
    second_obs = draw_four(space, seed=1)
    first = policy.act(first_obs)
    second = policy.act(second_obs, first.state, prev_reward=np.ones(4))

    views = {}
    for name in first.state.seen:
        views[name] = join_steps(first.state.seen[name], second.state.seen[name])
    batch = {
        "obs": join_steps(policy.preprocess(first_obs), policy.preprocess(second_obs)),
        "raw_action": join_steps(first.raw_action, second.raw_action),
        "views": views,
        "seq_lens": np.array([2, 2, 2, 2], np.int32),
    }
    evaluation = policy.evaluate(batch)

    assert_close(to_array(evaluation.logp), join_steps(first.logp, second.logp))


# --- interfaces -----------------------------------------------------------------------------------


@pytest.fixture
def dueling_model():
    """An LSTM of 5 cells with the head of a dueling Q network for 4 actions."""
    config = {**SMALL_LSTM, **PAST}
    return rlcatalog.default_catalog().model_v2(
        OBS, ACTIONS, 4, config, "torch", "q", DuelingQModel
    )


def test_interface_class_is_derived_from_the_lstm(dueling_model):
    assert type(dueling_model.inner) is LSTMWrapper
    assert dueling_model.num_outputs == 5
    assert dueling_model.A.in_features == 5
    assert set(dueling_model.view_requirements) == {"obs", "past_actions", "past_rewards"}


def test_interface_class_trains_every_parameter(dueling_model):
    rows = {
        "obs": torch.zeros(6, 3),
        "past_actions": torch.zeros(6, 4),
        "past_rewards": torch.zeros(6),
    }
    state = [part.expand(2, -1) for part in dueling_model.get_initial_state()]
    output, _ = dueling_model(rows, state, torch.tensor([3, 2]))  # 2 sequences

    q_values = dueling_model.get_q_values(output)
    q_values.sum().backward()

    assert q_values.shape == (6, 4)  # 6 rows, 4 actions
    assert all(parameter.grad is not None for parameter in dueling_model.parameters())


# --- past actions and rewards ---------------------------------------------------------------------

ACTION_SPACES = [
    spaces.Discrete(4, start=2),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(3),
    spaces.Box(-1, 1, (2,), np.float32),
    spaces.Box(-2, 3, (2,), np.int32),
    spaces.Tuple(
        [
            spaces.Discrete(3),
            spaces.Dict(a=spaces.Box(-1, 1, (1,), np.float32), b=spaces.MultiDiscrete([2])),
        ]
    ),
    spaces.Dict(x=spaces.MultiBinary(2), y=spaces.Discrete(2, start=-1)),
]


CASES = [("torch", space, True) for space in ACTION_SPACES] + [
    ("torch", space, False) for space in ACTION_SPACES[-2:]
]
# Those whose raw actions differ most.
CASES += [("tf", ACTION_SPACES[i], i < 5) for i in (0, 1, 4, 5)]


@pytest.fixture
def build_past_policy(build_policy):
    """Build a policy that reads past actions and rewards, for an action space."""

    def build(framework, actions, flat):
        config = {**PAST, "_disable_action_flattening": not flat}
        return build_policy(framework, config, action_space=actions)

    return build


@pytest.mark.parametrize(("framework", "actions", "flat"), CASES, ids=str)
def test_past_action_of_any_space_has_the_width_of_its_codec(
    framework, actions, flat, build_past_policy
):
    policy = build_past_policy(framework, actions, flat)

    seen = policy.act(draw_four(OBS)).state.seen

    width = action_codec(SpaceInfo.read(actions, "action")).input_width
    cell_weight = policy.model.get_weights()["cell.weight_ih"]
    assert cell_weight.shape == (20, 7 + width + 1)  # features, past action, past reward
    assert seen["past_actions"].shape == (4, width)  # 4 observations
    assert not seen["past_actions"].any()  # before the first action


@pytest.mark.parametrize(("framework", "actions", "flat"), CASES, ids=str)
def test_past_action_and_reward_enter_the_cell(
    framework, actions, flat, build_past_policy, assert_close
):
    policy = build_past_policy(framework, actions, flat)
    obs = np.stack(draw_four(OBS))
    rewards = np.arange(4.0)
    first = policy.act(obs)

    second = policy.act(obs, first.state, prev_reward=rewards, explore=False)

    w = policy.model.get_weights()
    h, c = first.state.memory
    features = np.tanh(obs @ w["trunk.hidden.layers.0.weight"].T + w["trunk.hidden.layers.0.bias"])
    past_actions = second.state.seen["past_actions"]
    x = np.concatenate([features, past_actions, rewards[:, None]], axis=1)
    gates = x @ w["cell.weight_ih"].T + h @ w["cell.weight_hh"].T + w["cell.bias"]
    i, f, g, o = np.split(gates, 4, axis=1)
    c = expit(f) * c + expit(i) * np.tanh(g)
    h = expit(o) * np.tanh(c)
    assert second.state.seen["past_rewards"].tolist() == [0, 1, 2, 3]
    assert_close(second.state.memory[0], h, tolerance=1e-4)
    assert_close(second.state.memory[1], c, tolerance=1e-4)


def test_second_step_without_its_past_reward_is_an_error(build_policy):
    policy = build_policy("torch", {"lstm_use_prev_reward": True})
    first = policy.act(np.zeros((2, 3), np.float32))

    with pytest.raises(ModelContractError, match="pass the last step's rewards") as caught:
        policy.act(np.zeros((2, 3), np.float32), first.state)

    assert "LSTMWrapper requests past rewards: pass" in str(caught.value)


def test_stepper_plays_an_environment_with_memory(framework):
    env = gym.make("CartPole-v1")
    policy = rlcatalog.build(env=env, config={**SMALL_LSTM, **PAST}, framework=framework)
    stepper = policy.stepper(1)

    obs, _ = env.reset(seed=0)
    reward = 0.0
    done = True
    for _ in range(15):
        step = stepper.step(obs[None], done=[done], prev_reward=[reward])
        obs, reward, terminated, truncated, _ = env.step(step.action[0])
        done = terminated or truncated
        if done:
            obs, _ = env.reset()

    assert np.abs(stepper.state.memory[0]).max() > 0
