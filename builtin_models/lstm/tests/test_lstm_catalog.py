"""The LSTM in the catalog: when it is chosen, what it stands around, what it is shown, what it
refuses.
"""

from __future__ import annotations

import importlib.util

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
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

OBS, ACTIONS = spaces.Box(-10, 10, (3,), np.float32), spaces.Discrete(4)
SMALL = {"fcnet_hiddens": [7], "use_lstm": True, "lstm_cell_size": 5}
PAST = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}


def batch(space, n=4, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


# --- the choice and its explanation ---------------------------------------------------------------


def test_it_is_chosen_when_asked_for():
    found = rlcatalog.explain(OBS, ACTIONS, {**SMALL, **PAST}).as_dict()
    memory = found["memory"]
    assert (memory["chosen"], memory["distribution"]) == ("lstm", "rlcatalog-lstm")
    reasons = {c["name"]: (c["rank"], c["reason"]) for c in memory["candidates"]}
    assert reasons["lstm"] == ("SPECIFIC", "use_lstm is set")
    assert set(memory["config_keys"]) >= {
        "use_lstm",
        "lstm_cell_size",
        "_time_major",
        "free_log_std",
        "max_seq_len",
    }
    shapes = [
        (row["stage"], row["shape"])
        for row in found["shapes"]
        if row["stage"].startswith(("fcnet", "lstm"))
    ]
    assert shapes == [
        ("fcnet: hidden 1 (tanh)", [7]),
        ("lstm: with previous action and previous reward", [12]),
        ("lstm: cell (lstm)", [5]),
        ("lstm: value", []),
        ("lstm: logits (linear)", [4]),
    ]
    without = rlcatalog.explain(OBS, ACTIONS, {}).as_dict()["memory"]
    assert without["chosen"] is None
    assert ("lstm", "use_lstm is not set") in [
        (c["name"], c["reason"]) for c in without["candidates"]
    ]


def test_the_width_of_a_custom_trunk_is_known_once_it_is_built():
    config = {**SMALL, "lstm_use_prev_reward": True, "custom_model": TorchDoubled}
    stages = [(s.name, s.shape) for s in rlcatalog.explain(OBS, ACTIONS, config).resolution.shapes]
    assert ("lstm: with previous reward", None) in stages
    assert ("lstm: cell (lstm)", (5,)) in stages


def test_the_classes_stand_under_their_names():
    assert rlcatalog.build(OBS, ACTIONS, SMALL, "torch").model.__class__ is LSTMWrapper
    assert rlcatalog.build(OBS, ACTIONS, SMALL, "tf").model.__class__ is TFWrapper


@pytest.mark.parametrize(
    ("key", "value", "kind", "message"),
    [
        (
            "lstm_cell_size",
            0,
            ConfigError,
            r"'lstm_cell_size' \(width of the LSTM's cell and output\).*>= 1",
        ),
        (
            "lstm_cell_size",
            "5",
            ConfigTypeError,
            r"'lstm_cell_size'.*expected 'int', got 'str'; found '5'",
        ),
        (
            "lstm_bias_initializer",
            "orthogonal",
            ConfigError,
            r"'orthogonal' needs a matrix, but a bias is a vector",
        ),
        (
            "lstm_weights_initializer",
            "xavier",
            ConfigError,
            r"'lstm_weights_initializer': unknown initialiser 'xavier'",
        ),
        ("lstm_bias_initializer_config", {"val": 1}, ConfigError, r"needs 'lstm_bias_initializer'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_built(key, value, kind, message):
    with pytest.raises(kind, match=message):
        rlcatalog.default_catalog().resolve(OBS, ACTIONS, {**SMALL, key: value})


def test_free_log_std_is_honoured(framework, lstm):
    actions = spaces.Box(-1, 1, (2,), np.float32)
    policy = lstm.policy(framework, {"free_log_std": True}, actions=actions)
    weights = policy.model.get_weights()
    step = policy.act(np.zeros((3, 3), np.float32))
    assert weights["outputs.logits.weight"].shape == (2, 5)
    lstm.close(step.dist_inputs[:, 2:], np.tile(weights["outputs.free_log_std.log_std"], (3, 1)))


def test_no_final_linear_has_no_effect_and_one_warning(framework, lstm):
    plain = lstm.policy(framework)
    with pytest.warns(UnreadKeysWarning, match="no_final_linear"):
        policy = lstm.policy(framework, {"no_final_linear": True})
    weights = plain.model.get_weights()
    policy.model.set_weights(weights)
    assert weights["outputs.logits.weight"].shape == (policy.resolution.num_outputs, 5)
    obs = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    for one, other in zip(
        plain.act(obs, explore=False)[2:5], policy.act(obs, explore=False)[2:5], strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_the_old_key_for_both_still_means_both():
    with pytest.warns(
        DeprecationWarning,
        match=r"'lstm_use_prev_action_reward' is now split into 'lstm_use_prev_act",
    ):
        policy = rlcatalog.build(OBS, ACTIONS, {**SMALL, "lstm_use_prev_action_reward": True})
    assert policy.config["lstm_use_prev_action"]
    assert policy.config["lstm_use_prev_reward"]
    assert set(policy.model.view_requirements) == {"obs", "past_actions", "past_rewards"}
    with (
        pytest.raises(
            ConfigError,
            match=r"'lstm_use_prev_action_reward' is another name for 'lstm_use_prev_reward'",
        ),
        pytest.warns(DeprecationWarning, match="split"),
    ):
        rlcatalog.build(
            OBS, ACTIONS, {"lstm_use_prev_reward": True, "lstm_use_prev_action_reward": True}
        )


# --- initial weights ------------------------------------------------------------------------------


def initial(framework, **config):
    catalog = rlcatalog.default_catalog()
    config = {"fcnet_hiddens": [40], "use_lstm": True, "lstm_cell_size": 60, **config}
    weights = catalog.model_v2(OBS, ACTIONS, 4, config, framework).get_weights()
    return tuple(
        weights[f"cell.{name}"].reshape(4, 60, *weights[f"cell.{name}"].shape[1:])
        for name in ("weight_ih", "weight_hh", "bias")
    )


def test_the_weights_begin_as_documented(framework):
    inputs, recurrent, bias = initial(framework)
    bound = np.sqrt(6 / (40 + 60))  # Xavier's, for each gate
    assert 0.95 * bound < np.abs(inputs).max() <= bound * (1 + 1e-6)
    np.testing.assert_allclose(inputs.std(axis=(1, 2)), bound / np.sqrt(3), rtol=0.1)
    for gate in recurrent:
        np.testing.assert_allclose(gate @ gate.T, np.eye(60), atol=1e-5)
    np.testing.assert_array_equal(bias, np.repeat([[0], [1], [0], [0]], 60, axis=1))


def test_initialisers_of_the_config(framework):
    inputs, recurrent, bias = initial(
        framework,
        lstm_weights_initializer="normc",
        lstm_weights_initializer_config={"std": 0.5},
        lstm_bias_initializer="constant",
        lstm_bias_initializer_config={"val": 0.25},
    )
    for weights in (inputs, recurrent):
        np.testing.assert_allclose(np.linalg.norm(weights, axis=2), 0.5, rtol=1e-5)
    np.testing.assert_array_equal(bias, np.full((4, 60), 0.25))


def test_initialisers_that_are_callables():
    inputs, recurrent, bias = initial(
        "torch", lstm_weights_initializer=nn.init.eye_, lstm_bias_initializer=fill_two
    )
    for gate in range(4):
        np.testing.assert_array_equal(inputs[gate], np.eye(60, 40))
        np.testing.assert_array_equal(recurrent[gate], np.eye(60))
    assert (bias == 2).all()
    inputs, recurrent, _ = initial("tf", lstm_weights_initializer=lambda shape: tf.eye(*shape))
    np.testing.assert_array_equal(inputs[3], np.eye(60, 40))
    np.testing.assert_array_equal(recurrent[0], np.eye(60))


def fill_two(tensor):
    tensor.fill_(2.0)


# --- trunks ---------------------------------------------------------------------------------------


class TorchDoubled(TorchModelV2, nn.Module):
    """RLlib's example of a model for the LSTM: twice the observation; its width is announced."""

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


@pytest.mark.parametrize("space", [OBS, spaces.Dict(a=OBS, b=ACTIONS)], ids=str)
def test_the_pages_model_for_the_lstm_runs_unchanged(framework, lstm, space):
    policy = lstm.policy(
        framework, {"custom_model": {"torch": TorchDoubled, "tf": TFDoubled}[framework]}, space
    )
    first = policy.act(batch(space))
    second = policy.act(batch(space), first.state)
    assert first.value.shape == (4,)
    assert not np.allclose(first.dist_inputs, second.dist_inputs, atol=1e-4)
    # The LSTM reads twice the observation.
    weights = policy.model.get_weights()
    x = 2 * policy.preprocess(batch(space)).reshape(4, -1)
    i, _, g, _ = np.split(x @ weights["cell.weight_ih"].T + weights["cell.bias"], 4, axis=1)
    sigmoid = lambda z: 1 / (1 + np.exp(-z.astype(np.float64)))  # noqa: E731
    lstm.close(first.state.memory[1], sigmoid(i) * np.tanh(g), 1e-4)


class Sized(FullyConnectedNetwork):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, width):
        super().__init__(
            obs_space, action_space, num_outputs, {**model_config, "fcnet_hiddens": [width]}, name
        )


def test_a_custom_trunk_keeps_its_keyword_arguments(lstm):
    # RLlib dropped them once an LSTM was wrapped around the model.
    policy = lstm.policy("torch", {"custom_model": Sized, "custom_model_config": {"width": 11}})
    assert policy.model.cell.weight_ih.shape == (20, 11)
    with pytest.raises(ConfigError, match=r"Sized does not accept 'widht'"):
        lstm.policy("torch", {"custom_model": Sized, "custom_model_config": {"widht": 11}})


def test_a_recurrent_trunk_is_refused(lstm):
    class Trunk(TorchRNN):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(obs_space, action_space, num_outputs or 3, model_config, name)

    with pytest.raises(
        NotServedError,
        match=r"Trunk is itself recurrent .* LSTMWrapper cannot be wrapped around it",
    ):
        lstm.policy("torch", {"custom_model": Trunk})


def test_a_trunk_that_announced_another_width_is_named(framework, lstm):
    base = {"torch": TorchDoubled, "tf": TFDoubled}[framework]

    class Wrong(base):
        def __init__(self, *args):
            super().__init__(*args)
            self.num_outputs = 6

    with pytest.raises(
        ModelContractError,
        match=r"Wrong declared num_outputs=6, but its forward\(\) returned 3 val",
    ):
        lstm.policy(framework, {"custom_model": Wrong}).act(batch(OBS))


class TorchRankThree(TorchDoubled):
    def forward(self, input_dict, state, seq_lens):
        return input_dict["obs"], []


def test_features_of_any_rank_are_flattened(lstm):
    space = spaces.Box(-1, 1, (2, 3), np.float32)
    policy = lstm.policy("torch", {"custom_model": TorchRankThree}, space)
    assert policy.act(batch(space)).state.memory[0].shape == (4, 5)


STRUCTURED = spaces.Dict(
    position=spaces.Box(-1, 1, (2,), np.float32),
    kind=spaces.Discrete(3),
    rest=spaces.Tuple([spaces.MultiBinary(2)]),
)


@pytest.mark.grid
# The width of fcnet stands in all configs.
@pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")
@pytest.mark.parametrize(
    "space", [STRUCTURED, spaces.Box(0, 255, (12, 12, 3), np.uint8), spaces.Discrete(5)], ids=str
)
def test_default_trunks_for_other_observations(framework, lstm, space):
    config = {}
    if len(space.shape or ()) == 3 and importlib.util.find_spec("rlcatalog_visionnet"):
        config = {"conv_filters": [[4, [4, 4], 4], [8, [3, 3], 3]], "fcnet_hiddens": []}
    policy = lstm.policy(framework, {**config, **PAST}, space)
    first = policy.act(batch(space))
    second = policy.act(batch(space, seed=1), first.state, prev_reward=np.ones(4))
    obs = np.concatenate([policy.preprocess(batch(space, seed=seed)) for seed in (0, 1)])
    obs = obs.reshape(2, 4, *obs.shape[1:]).swapaxes(0, 1).reshape(8, *obs.shape[1:])
    views = {
        name: np.stack([first.state.seen[name], second.state.seen[name]], axis=1).reshape(
            8, *value.shape[1:]
        )
        for name, value in first.state.seen.items()
    }
    raw = np.stack([first.raw_action, second.raw_action], axis=1).reshape(8, 1)
    found = policy.evaluate(
        {"obs": obs, "raw_action": raw, "views": views, "seq_lens": np.full(4, 2, np.int32)}
    )
    lstm.close(lstm.array(found.logp).reshape(4, 2), np.stack([first.logp, second.logp], axis=1))


# --- interfaces -----------------------------------------------------------------------------------


def test_the_dueling_head_over_an_lstm():
    catalog = rlcatalog.default_catalog()
    model = catalog.model_v2(OBS, ACTIONS, 4, {**SMALL, **PAST}, "torch", "q", DuelingQModel)
    assert type(model.inner) is LSTMWrapper
    assert model.num_outputs == model.A.in_features == 5
    rows = {
        "obs": torch.zeros(6, 3),
        "past_actions": torch.zeros(6, 4),
        "past_rewards": torch.zeros(6),
    }
    state = [part.expand(2, -1) for part in model.get_initial_state()]
    output, _ = model(rows, state, torch.tensor([3, 2]))
    q = model.get_q_values(output)
    assert q.shape == (6, 4)
    q.sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert set(model.view_requirements) == {"obs", "past_actions", "past_rewards"}


# --- previous actions -----------------------------------------------------------------------------

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


@pytest.mark.parametrize(("framework", "actions", "flat"), CASES, ids=str)
def test_the_previous_action_of_any_space_reaches_the_model(framework, lstm, actions, flat):
    config = {**PAST, "_disable_action_flattening": not flat}
    policy = lstm.policy(framework, config, actions=actions)
    width = action_codec(SpaceInfo.read(actions, "action")).input_width
    assert policy.model.get_weights()["cell.weight_ih"].shape == (20, 7 + width + 1)
    obs = np.stack(batch(OBS))
    first = policy.act(obs)
    assert not first.state.seen["past_actions"].any()
    second = policy.act(obs, first.state, prev_reward=np.arange(4.0), explore=False)
    shown = second.state.seen["past_actions"]
    assert shown.shape == (4, width)
    # By hand: the second step's cell, from what it was shown.
    assert second.state.seen["past_rewards"].tolist() == [0, 1, 2, 3]
    w = policy.model.get_weights()
    features = np.tanh(obs @ w["trunk.hidden.layers.0.weight"].T + w["trunk.hidden.layers.0.bias"])
    x = np.concatenate([features, shown, np.arange(4.0)[:, None]], axis=1)
    net = x @ w["cell.weight_ih"].T + first.state.memory[0] @ w["cell.weight_hh"].T + w["cell.bias"]
    i, f, g, o = np.split(net, 4, axis=1)
    sigmoid = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
    c = sigmoid(f) * first.state.memory[1] + sigmoid(i) * np.tanh(g)
    lstm.close(second.state.memory[1], c, 1e-4)
    lstm.close(second.state.memory[0], sigmoid(o) * np.tanh(c), 1e-4)


def test_rewards_must_be_given_where_they_are_shown(lstm):
    policy = lstm.policy("torch", {"lstm_use_prev_reward": True})
    state = policy.act(np.zeros((2, 3), np.float32)).state
    with pytest.raises(
        ModelContractError, match=r"LSTMWrapper requests past rewards: pass the last step's rewards"
    ):
        policy.act(np.zeros((2, 3), np.float32), state)


def test_it_plays_an_environment(framework):
    env = gym.make("CartPole-v1")
    policy = rlcatalog.build(env=env, config={**SMALL, **PAST}, framework=framework)
    stepper = policy.stepper(1)
    obs, _ = env.reset(seed=0)
    reward, done = 0.0, True
    for _ in range(15):
        step = stepper.step(obs[None], done=[done], prev_reward=[reward])
        obs, reward, terminated, truncated, _ = env.step(step.action[0])
        done = terminated or truncated
        if done:
            obs, _ = env.reset()
    assert np.abs(stepper.state.memory[0]).max() > 0


def test_arguments_for_the_model_that_the_config_names_are_the_memorys():
    config = {"custom_model": "lstm", "custom_model_config": {"cells": 3}}
    with pytest.raises(
        ConfigError, match="custom_model_config: LSTMWrapper does not accept 'cells'"
    ):
        rlcatalog.build(OBS, ACTIONS, config)
