"""The contract on paper: recurrent models, and steppers that keep their state."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from gymnasium.spaces import Discrete
from seed_models import TorchRNN

import rlcatalog
from rlcatalog import ModelCatalog, ViewRequirement
from rlcatalog.errors import ConfigError
from rlcatalog_tf import RecurrentTFModelV2, TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

BOX, TWO = spaces.Box(-1, 1, (4,), np.float32), Discrete(2)
SMALL = {"fcnet_hiddens": [8]}


def observations(space=BOX, n=6, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


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


recurrent = pytest.mark.parametrize("cls", [TorchRNN, MyRNNClass])


@recurrent
def test_recurrent_model_acts_and_trains_alike(catalog, cls):
    policy = rlcatalog.build(BOX, TWO, {"custom_model": cls}, catalog=catalog)
    rows, steps = 3, 4
    obs = np.stack(observations(n=rows * steps)).reshape(rows, steps, 4)
    state, taken = None, []
    for t in range(steps):
        taken.append(policy.act(obs[:, t], state))
        state = taken[-1].state
        assert [part.shape for part in state.memory] == [(rows, 6)] * 2
    # Training sees whole sequences, row after row.
    batch = {
        "obs": policy.preprocess(obs.reshape(-1, 4)),
        "raw_action": np.stack([step.raw_action for step in taken], axis=1).reshape(-1, 1),
        "seq_lens": np.full(rows, steps, np.int32),
    }
    for start in (None, policy.initial_state(rows)):
        found = policy.evaluate({**batch, "state": start})
        logp, value = (
            np.asarray(x.detach() if cls is TorchRNN else x) for x in (found.logp, found.value)
        )
        np.testing.assert_allclose(
            logp.reshape(rows, steps).T, [step.logp for step in taken], rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(
            value.reshape(rows, steps).T, [step.value for step in taken], rtol=1e-4, atol=1e-5
        )
    # The control: the memory matters.
    without = policy.act(obs[:, -1])
    assert not np.allclose(without.dist_inputs, taken[-1].dist_inputs, atol=1e-4)
    # A later start.
    late = {
        "obs": batch["obs"].reshape(rows, steps, 4)[:, 2:].reshape(-1, 4),
        "seq_lens": np.full(rows, 2, np.int32),
    }
    late["raw_action"] = batch["raw_action"].reshape(rows, steps)[:, 2:].reshape(-1, 1)
    found = policy.evaluate({**late, "state": taken[1].state})
    logp = np.asarray(found.logp.detach() if cls is TorchRNN else found.logp)
    np.testing.assert_allclose(
        logp.reshape(rows, 2).T, [step.logp for step in taken[2:]], rtol=1e-4, atol=1e-5
    )


def test_state_of_a_padded_sequence_is_that_of_its_last_step():
    model = MyRNNClass(BOX, TWO, 2, {}, "n")
    obs, lengths = np.stack(observations(n=8)).reshape(2, 4, 4), [2, 4]
    start = [tf.zeros([2, 6]), tf.zeros([2, 6])]
    _, padded = model(
        {"obs": tf.constant(obs.reshape(-1, 4))}, start, tf.constant(lengths, tf.int32)
    )
    for row, length in enumerate(lengths):
        alone = [part[:1] for part in start]
        _, expected = model(
            {"obs": tf.constant(obs[row, :length])}, alone, tf.constant([length], tf.int32)
        )
        for found, one in zip(padded, expected, strict=True):
            np.testing.assert_allclose(found[row], one[0], rtol=1e-5, atol=1e-6)


@recurrent
def test_stepper_keeps_the_state_and_resets_done_rows(catalog, cls):
    policy = rlcatalog.build(BOX, TWO, {"custom_model": cls}, catalog=catalog)
    obs = np.stack(observations(n=9)).reshape(3, 3, 4)
    stepper = policy.stepper(3)
    stepper.step(obs[:, 0])
    second = stepper.step(obs[:, 1], done=[False, True, False], explore=False)
    fresh = policy.act(obs[:, 1], explore=False)
    continued = policy.act(obs[:, 1], policy.act(obs[:, 0]).state, explore=False)
    np.testing.assert_allclose(second.dist_inputs[1], fresh.dist_inputs[1], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        second.dist_inputs[[0, 2]], continued.dist_inputs[[0, 2]], rtol=1e-4, atol=1e-6
    )
    assert not np.allclose(second.dist_inputs[0], fresh.dist_inputs[0], atol=1e-5)
    stepper.reset()
    again = stepper.step(obs[:, 1], explore=False)
    np.testing.assert_allclose(again.dist_inputs, fresh.dist_inputs, rtol=1e-4, atol=1e-6)
    for rows in ([2], np.array([False, False, True])):
        stepper = policy.stepper(3)
        stepper.step(obs[:, 0])
        stepper.reset(rows)
        third = stepper.step(obs[:, 1], explore=False)
        np.testing.assert_allclose(third.dist_inputs[2], fresh.dist_inputs[2], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(
            third.dist_inputs[:2], continued.dist_inputs[:2], rtol=1e-4, atol=1e-6
        )


def test_stepper_works_without_memory(catalog):
    policy = rlcatalog.build(BOX, TWO, SMALL, catalog=catalog)
    stepper = policy.stepper(6)
    assert policy.initial_state(6) is None
    step = stepper.step(np.stack(observations()), done=np.ones(6, bool))
    assert step.state is None
    stepper.reset([0])


def test_keyword_arguments_of_a_custom_model(catalog):
    policy = rlcatalog.build(
        BOX,
        TWO,
        {"custom_model": TorchRNN, "custom_model_config": {"lstm_state_size": 9}},
        catalog=catalog,
    )
    assert policy.model.lstm_state_size == 9
    with pytest.raises(
        ConfigError, match=r"TorchRNN does not accept 'lstm_size'.*'lstm_state_size'.*: fc_size, ls"
    ):
        rlcatalog.build(
            BOX,
            TWO,
            {"custom_model": TorchRNN, "custom_model_config": {"lstm_size": 9}},
            catalog=catalog,
        )
    model = ModelCatalog.get_model_v2(BOX, TWO, 2, {"custom_model": TorchRNN}, "torch", fc_size=3)
    assert model.fc1.out_features == 3


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_attention_written_with_views_of_its_own_states(framework):
    """RLlib's way: a state goes out step by step and comes back as a window over the last ones."""
    base = TorchModelV2 if framework == "torch" else TFModelV2

    class Windowed(base):
        def __init__(self, *args):
            super().__init__(*args)
            space = spaces.Box(-1, 1, (4,))
            self.view_requirements["state_in_0"] = ViewRequirement(
                "state_out_0", shift="-3:-1", space=space
            )
            self.view_requirements["state_out_0"] = ViewRequirement(
                space=space, used_for_training=False
            )
            if framework == "torch":
                self.scale = torch.nn.Parameter(torch.ones(1))
            else:
                self.scale = tf.Variable([1.0])

        def forward(self, input_dict, state, seq_lens):
            obs, window = input_dict["obs"], state[0]
            assert tuple(window.shape[1:]) == (3, 4)
            seen = window.sum(dim=1) if framework == "torch" else tf.reduce_sum(window, axis=1)
            self._value = (obs + seen)[:, 0]
            return (obs + 10 * seen)[:, :2] * self.scale, [obs]

        def value_function(self):
            return self._value

    policy = rlcatalog.build(BOX, TWO, {"custom_model": Windowed}, framework)
    obs = np.stack(observations(n=5))[:, None]
    stepper = policy.stepper(1)
    for t in range(5):
        step = stepper.step(obs[t])
        expected = obs[t] + 10 * sum((obs[s] for s in range(max(0, t - 3), t)), np.zeros((1, 4)))
        np.testing.assert_allclose(step.dist_inputs, expected[:, :2], rtol=1e-5, atol=1e-6)
    # Training begins with the window there was.
    start = stepper.state
    batch = {
        "obs": obs[0],
        "raw_action": step.raw_action,
        "seq_lens": np.ones(1, np.int32),
        "state": start,
    }
    np.testing.assert_allclose(start.memory[0][0], obs[2:5, 0], rtol=1e-6)
    assert policy.evaluate(batch).logp.shape == (1,)
