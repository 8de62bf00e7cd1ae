"""The contract on paper: recurrent models, and their states in acting and training."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from builders import to_array
from gymnasium import spaces
from gymnasium.spaces import Discrete
from seed_models import TorchRNN

import rlcatalog
from rlcatalog import ModelCatalog, ViewRequirement
from rlcatalog.errors import ConfigError
from rlcatalog_tf import RecurrentTFModelV2, TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

FOUR_FEATURES = spaces.Box(-1, 1, (4,), np.float32)
TWO_ACTIONS = Discrete(2)


def random_observations(*shape):
    """Return observations of four numbers each."""
    return np.random.default_rng(0).uniform(-1, 1, (*shape, 4)).astype(np.float32)


class MyRNNClass(RecurrentTFModelV2):
    """The seeds' MyRNNClass(RecurrentTFModelV2); Keras 3 calls the LSTM in another way."""

    def __init__(self, *args, **kwargs):
        super(MyRNNClass, self).__init__(*args, **kwargs)  # noqa: UP008
        self.cell_size = 6
        input_layer = tf.keras.layers.Input(shape=(None, self.obs_space.shape[0]))
        state_in_h = tf.keras.layers.Input(shape=(self.cell_size,))
        state_in_c = tf.keras.layers.Input(shape=(self.cell_size,))
        seq_in = tf.keras.layers.Input(shape=(), dtype=tf.int32)
        mask = tf.keras.layers.Lambda(lambda both: tf.sequence_mask(both[0], tf.shape(both[1])[1]))(
            [seq_in, input_layer]
        )
        lstm_out, state_h, state_c = tf.keras.layers.LSTM(
            self.cell_size, return_sequences=True, return_state=True, name="lstm"
        )(input_layer, mask=mask, initial_state=[state_in_h, state_in_c])
        output_layer = tf.keras.layers.Dense(self.num_outputs)(lstm_out)
        value_layer = tf.keras.layers.Dense(1)(lstm_out)
        self.rnn_model = tf.keras.Model(
            inputs=[input_layer, seq_in, state_in_h, state_in_c],
            outputs=[output_layer, value_layer, state_h, state_c],
        )
        self.register_variables(self.rnn_model.variables)

    def forward_rnn(self, inputs, state, seq_lens):
        model_out, self._value_out, h, c = self.rnn_model([inputs, seq_lens, *state])
        return model_out, [h, c]

    def get_initial_state(self):
        return [np.zeros(self.cell_size, np.float32), np.zeros(self.cell_size, np.float32)]

    def value_function(self):
        return tf.reshape(self._value_out, [-1])


each_model = pytest.mark.parametrize("model", [TorchRNN, MyRNNClass])


# --- acting and training --------------------------------------------------------------------------


class Episodes:
    """Observations `[rows, steps, 4]`, and what a policy did for them, step by step."""

    def __init__(self, policy, rows, steps):
        self.policy = policy
        self.obs = random_observations(rows, steps)
        self.steps = []
        state = None
        for t in range(steps):
            self.steps.append(policy.act(self.obs[:, t], state))
            state = self.steps[-1].state

    def sequences(self, first=0):
        """Return a batch for training: whole sequences, row after row."""
        obs = self.obs[:, first:]
        rows, steps, _ = obs.shape
        raw_action = np.stack([step.raw_action for step in self.steps[first:]], axis=1)
        return {
            "obs": obs.reshape(-1, 4),
            "raw_action": raw_action.reshape(-1, 1),
            "seq_lens": np.full(rows, steps, np.int32),
        }

    def assert_scored_alike(self, evaluation, first=0):
        """Assert that training computed what acting did."""
        rows = len(self.obs)
        logp = to_array(evaluation.logp).reshape(rows, -1).T
        value = to_array(evaluation.value).reshape(rows, -1).T
        acting = self.steps[first:]
        np.testing.assert_allclose(logp, [step.logp for step in acting], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(value, [step.value for step in acting], rtol=1e-4, atol=1e-5)


@pytest.fixture
def rnn_policy(catalog, model):
    return rlcatalog.build(FOUR_FEATURES, TWO_ACTIONS, {"custom_model": model}, catalog=catalog)


@each_model
def test_state_has_the_shapes_of_the_initial_state(rnn_policy):
    episodes = Episodes(rnn_policy, rows=3, steps=2)
    for step in episodes.steps:
        assert [part.shape for part in step.state.memory] == [(3, 6), (3, 6)]  # LSTMs of 6 cells


@each_model
def test_outputs_depend_on_the_past(rnn_policy):
    episodes = Episodes(rnn_policy, rows=3, steps=4)

    without_past = rnn_policy.act(episodes.obs[:, -1])

    assert not np.allclose(without_past.dist_inputs, episodes.steps[-1].dist_inputs, atol=1e-4)


@each_model
def test_training_on_sequences_scores_as_acting_did(rnn_policy):
    episodes = Episodes(rnn_policy, rows=3, steps=4)

    evaluation = rnn_policy.evaluate(episodes.sequences())  # begins with the initial state

    episodes.assert_scored_alike(evaluation)


@each_model
def test_training_accepts_the_initial_state(rnn_policy):
    episodes = Episodes(rnn_policy, rows=3, steps=4)
    batch = {**episodes.sequences(), "state": rnn_policy.initial_state(3)}

    episodes.assert_scored_alike(rnn_policy.evaluate(batch))


@each_model
def test_training_accepts_the_state_of_a_later_step(rnn_policy):
    episodes = Episodes(rnn_policy, rows=3, steps=4)
    batch = {**episodes.sequences(first=2), "state": episodes.steps[1].state}

    episodes.assert_scored_alike(rnn_policy.evaluate(batch), first=2)


def run_rnn(model, obs, lengths):
    """Run a model on sequences `[B, T, 4]`, and return its last state."""
    zero_state = [tf.zeros([len(obs), 6]), tf.zeros([len(obs), 6])]
    rows = tf.constant(obs.reshape(-1, 4))
    _, state = model({"obs": rows}, zero_state, tf.constant(lengths, tf.int32))
    return state


def test_state_of_a_padded_sequence_is_that_of_its_last_step():
    model = MyRNNClass(FOUR_FEATURES, TWO_ACTIONS, 2, {}, "rnn")
    two_sequences = random_observations(2, 4)
    first_two_steps = two_sequences[:1, :2]

    # The last two steps of the first sequence are padding.
    padded_state = run_rnn(model, two_sequences, lengths=[2, 4])

    state = run_rnn(model, first_two_steps, lengths=[2])
    # An LSTM's state has two parts, each with a row for a sequence.
    for padded_part, part in zip(padded_state, state, strict=True):
        np.testing.assert_allclose(padded_part[0], part[0], rtol=1e-5, atol=1e-6)


# --- keyword arguments ----------------------------------------------------------------------------


def test_custom_model_config_sets_keyword_arguments(catalog):
    config = {"custom_model": TorchRNN, "custom_model_config": {"lstm_state_size": 9}}
    policy = rlcatalog.build(FOUR_FEATURES, TWO_ACTIONS, config, catalog=catalog)
    assert policy.model.lstm_state_size == 9


def test_unknown_keyword_argument_of_a_custom_model_is_an_error(catalog):
    config = {"custom_model": TorchRNN, "custom_model_config": {"lstm_size": 9}}
    message = r"TorchRNN does not accept 'lstm_size'.*'lstm_state_size'.*: fc_size, ls"
    with pytest.raises(ConfigError, match=message):
        rlcatalog.build(FOUR_FEATURES, TWO_ACTIONS, config, catalog=catalog)


def test_get_model_v2_passes_keyword_arguments_to_a_custom_model():
    model = ModelCatalog.get_model_v2(
        FOUR_FEATURES, TWO_ACTIONS, 2, {"custom_model": TorchRNN}, "torch", fc_size=3
    )
    assert model.fc1.out_features == 3


# --- windows of states ----------------------------------------------------------------------------

#: RLlib's way to write attention: a state goes out step by step, and comes back as a window.
LAST_THREE_STATES = ViewRequirement("state_out_0", shift="-3:-1", space=spaces.Box(-1, 1, (4,)))
STATE = ViewRequirement(space=spaces.Box(-1, 1, (4,)), used_for_training=False)


class TorchWindow(TorchModelV2):
    """Returns the first two numbers of the observation, plus ten times those of the last three."""

    def __init__(self, *args):
        super().__init__(*args)
        self.view_requirements["state_in_0"] = LAST_THREE_STATES
        self.view_requirements["state_out_0"] = STATE
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, input_dict, state, seq_lens):
        obs = input_dict["obs"]
        window = state[0]
        assert tuple(window.shape[1:]) == (3, 4)
        outputs = obs + 10 * window.sum(dim=1)
        self.first = outputs[:, 0]
        return outputs[:, :2] * self.scale, [obs]

    def value_function(self):
        return self.first


class TFWindow(TFModelV2):
    """The same in TensorFlow."""

    def __init__(self, *args):
        super().__init__(*args)
        self.view_requirements["state_in_0"] = LAST_THREE_STATES
        self.view_requirements["state_out_0"] = STATE
        self.scale = tf.Variable([1.0])

    def forward(self, input_dict, state, seq_lens):
        obs = input_dict["obs"]
        window = state[0]
        assert tuple(window.shape[1:]) == (3, 4)
        outputs = obs + 10 * tf.reduce_sum(window, axis=1)
        self.first = outputs[:, 0]
        return outputs[:, :2] * self.scale, [obs]

    def value_function(self):
        return self.first


each_window_model = pytest.mark.parametrize(
    ("framework", "model"), [("torch", TorchWindow), ("tf", TFWindow)]
)


@each_window_model
def test_model_sees_the_window_of_its_last_states(framework, model):
    policy = rlcatalog.build(FOUR_FEATURES, TWO_ACTIONS, {"custom_model": model}, framework)
    stepper = policy.stepper(1)

    outputs = []
    for number in (0.1, 0.2, 0.3, 0.4, 0.5):
        obs = np.full((1, 4), number, np.float32)
        outputs.append(stepper.step(obs).dist_inputs[0, 0])

    # Its observation, plus ten times the sum of its last three states, which were observations:
    # at last 0.5 + 10 * (0.2 + 0.3 + 0.4).
    np.testing.assert_allclose(outputs, [0.1, 1.2, 3.3, 6.4, 9.5], rtol=1e-5)


@each_window_model
def test_training_accepts_the_window_of_states(framework, model):
    policy = rlcatalog.build(FOUR_FEATURES, TWO_ACTIONS, {"custom_model": model}, framework)
    obs = np.full((1, 4), 0.1, np.float32)
    step = policy.act(obs)
    batch = {
        "obs": obs,
        "raw_action": step.raw_action,
        "seq_lens": np.ones(1, np.int32),
        "state": step.state,
    }

    evaluation = policy.evaluate(batch)

    # The value is 0.1, plus ten times the only state so far, which is 0.1, too.
    np.testing.assert_allclose(to_array(evaluation.value), [1.1], rtol=1e-5)
