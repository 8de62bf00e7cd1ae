"""Plain memories of Keras: results, building, errors, and saving."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Discrete
from model_runs import assert_close, run_sequences

import rlcatalog
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError
from rlcatalog_tf import keras

pytestmark = pytest.mark.usefixtures("seeded")

OBS = Box(-10, 10, (3,), np.float32)
RANDOM = np.random.default_rng(4)
#: Four sequences of up to six steps.
OBSERVATIONS = RANDOM.normal(size=(4, 6, 3)).astype(np.float32)
LENGTHS = [6, 2, 1, 4]
TRUNK = {"fcnet_hiddens": [7]}


class Traces(keras.layers.Layer):
    """Keeps a fast and a slow trace of its features, in a dict with a tuple."""

    def __init__(self, size=4):
        super().__init__()
        self.size = size
        self.inputs = keras.layers.Dense(size)
        self.recurrence = keras.layers.Dense(size)

    def initial_state(self, batch_size):
        slow = tf.ones([batch_size, 2, self.size // 2])
        return {"fast": tf.zeros([batch_size, self.size]), "slow": (slow,)}

    def call(self, x, state):
        (slow,) = state["slow"]
        traces = tf.concat([state["fast"], tf.reshape(slow, [-1, self.size])], axis=1)
        fast = tf.tanh(self.inputs(x) + self.recurrence(traces))
        slow = 0.9 * slow + 0.1 * tf.reshape(fast, [-1, 2, self.size // 2])
        return fast, {"fast": fast, "slow": (slow,)}


def make_stack():
    return keras.layers.RNN([keras.layers.GRUCell(5), keras.layers.LSTMCell(4)])


def make_old_gru():
    return keras.layers.GRU(5, reset_after=False)


def build_policy(memory, memory_config=None, **config):
    config = {**TRUNK, "memory_config": memory_config or {}, **config}
    return rlcatalog.build(OBS, Discrete(4), config, "tf", memory=memory)


def run_bare_layer(layer, features, lengths):
    """Return the outputs [S, T, m] and the last state of sequences of features [S, T, n]."""
    if isinstance(layer, Traces):
        return run_traces(layer, features, lengths)
    is_real = np.arange(features.shape[1]) < np.asarray(lengths)[:, None]
    layer.return_sequences = True
    layer.return_state = True
    outputs, *state = layer(features, mask=tf.constant(is_real))
    return outputs.numpy(), [part.numpy() for part in tf.nest.flatten(state)]


def run_traces(layer, features, lengths):
    outputs = np.zeros((*features.shape[:2], layer.size), np.float32)
    vectors = [np.zeros((4, layer.size), np.float32) for _ in range(2)]
    for sequence, length in enumerate(lengths):
        state = layer.initial_state(1)
        for t in range(length):
            y, state = layer(tf.constant(features[sequence, t][None]), state)
            outputs[sequence, t] = y[0]
        vectors[0][sequence] = state["fast"][0]
        vectors[1][sequence] = tf.reshape(state["slow"][0], [-1])
    return outputs, vectors


MEMORIES = [
    pytest.param(keras.layers.GRU, {"units": 5}, id="gru"),
    pytest.param(make_old_gru, {}, id="gru-reset-before"),
    pytest.param(keras.layers.LSTM, {"units": 5}, id="lstm"),
    pytest.param(keras.layers.SimpleRNN, {"units": 5}, id="simple-rnn"),
    pytest.param(make_stack, {}, id="stacked-cells"),
    pytest.param(Traces, {"size": 6}, id="own-layer"),
]


# --- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding", [np.nan, 1e6], ids=["nan", "large"])
@pytest.mark.parametrize(("memory", "memory_config"), MEMORIES)
def test_sequences_equal_the_bare_layer(memory, memory_config, padding):
    model = build_policy(memory, memory_config).model
    obs = OBSERVATIONS.copy()
    for sequence, length in enumerate(LENGTHS):
        obs[sequence, length:] = padding

    results = run_sequences(model, obs, lengths=LENGTHS)

    weights = model.get_weights()
    # The trunk is one dense layer with tanh.
    layer = OBSERVATIONS @ weights["trunk.hidden.layers.0.weight"].T
    features = np.tanh(layer + weights["trunk.hidden.layers.0.bias"])
    outputs, state = run_bare_layer(model.module, features, LENGTHS)
    logits = outputs @ weights["outputs.logits.weight"].T + weights["outputs.logits.bias"]
    for sequence, length in enumerate(LENGTHS):
        assert_close(results.outputs[sequence, :length], logits[sequence, :length], 1e-6)
    for vectors, expected in zip(results.state, state, strict=True):
        assert_close(vectors, expected, 1e-6)


@pytest.mark.parametrize(("memory", "memory_config"), MEMORIES)
def test_acting_steps_equal_a_sequence(memory, memory_config):
    policy = build_policy(memory, memory_config)
    state = None
    steps = []
    for t in range(6):
        step = policy.act(OBSERVATIONS[:, t], state)
        state = step.state
        steps.append(step)

    evaluation = policy.evaluate(
        {
            "obs": OBSERVATIONS.reshape(24, 3),  # 4 sequences of 6 steps
            "raw_action": np.stack([step.raw_action for step in steps], axis=1).reshape(24),
            "state": policy.memory.start(4),
            "seq_lens": np.full(4, 6),
        }
    )

    value = np.stack([step.value for step in steps], axis=1).reshape(24)
    logp = np.stack([step.logp for step in steps], axis=1).reshape(24)
    assert_close(evaluation.value, value, 1e-6)
    assert_close(evaluation.logp, logp, 1e-6)


def test_nan_in_padding_does_not_reach_the_gradients():
    model = build_policy(keras.layers.GRU, {"units": 4}).model
    obs = OBSERVATIONS.copy()
    obs[1, 2:] = np.nan

    with tf.GradientTape() as tape:
        outputs, _ = model({"obs": obs.reshape(24, 3)}, [], tf.constant([6, 2, 6, 6]))
        loss = tf.reduce_sum(outputs)

    for gradient in tape.gradient(loss, model.module.trainable_variables):
        assert np.isfinite(gradient).all()


# --- building -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "width"),
    [
        pytest.param(lambda: keras.layers.GRU(6), 6, id="function"),
        pytest.param(keras.layers.LSTM(8), 8, id="instance"),
        pytest.param(keras.layers.GRUCell(9), 9, id="cell"),
    ],
)
def test_memory_takes_functions_instances_and_cells(memory, width):
    policy = build_policy(memory)

    assert policy.model.get_weights()["outputs.logits.weight"].shape == (4, width)  # 4 actions


def test_memory_class_sets_the_framework():
    config = {**TRUNK, "memory": keras.layers.GRU, "memory_config": {"units": 4}}

    assert rlcatalog.build(OBS, Discrete(4), config).framework == "tf"


def test_copy_of_a_policy_has_its_own_instance():
    memory = keras.layers.GRU(4)
    policy = build_policy(memory)

    twin = copy.deepcopy(policy)

    assert twin.model.module is not memory
    assert_close(twin.act(OBSERVATIONS[:, 0]).value, policy.act(OBSERVATIONS[:, 0]).value)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "memory_config", "message"),
    [
        pytest.param(keras.layers.GRU, {"units": 4, "stateful": True}, "stateful=", id="stateful"),
        pytest.param(
            keras.layers.GRU, {"units": 4, "go_backwards": True}, "go_backwards=", id="backwards"
        ),
        pytest.param(keras.layers.GRU, {"units": 4, "dropout": 0.1}, "with dropout", id="dropout"),
        pytest.param(
            keras.layers.Bidirectional(keras.layers.GRU(4)), {}, "both directions", id="both"
        ),
        pytest.param(keras.layers.Dense(4), {}, "cannot be used as a memory", id="dense"),
    ],
)
def test_layer_that_cannot_be_served_is_an_error(memory, memory_config, message):
    with pytest.raises(NotServedError, match=message):
        build_policy(memory, memory_config)


def test_instance_of_another_width_is_an_error():
    layer = keras.layers.GRU(4)
    layer.build((None, None, 6))

    with pytest.raises(ModelContractError, match="GRU takes 6 inputs"):
        build_policy(layer)


def test_instance_with_a_separate_value_is_an_error():
    with pytest.raises(ConfigError, match="vf_share_layers=False: the value needs"):
        build_policy(keras.layers.GRU(4), vf_share_layers=False)


def test_missing_argument_is_an_error():
    with pytest.raises(ConfigError, match="missing a required argument: 'units'"):
        build_policy(keras.layers.GRU)


def test_trained_initial_state_is_an_error():
    class Trained(Traces):
        def build(self, input_shape):
            self.start = self.add_weight(shape=(1, self.size))

        def initial_state(self, batch_size):
            self.built or self.build(None)
            return tf.repeat(self.start.value, batch_size, axis=0)

        def call(self, x, state):
            return self.inputs(x), state

    with pytest.raises(NotServedError, match="never be trained"):
        build_policy(Trained)


# --- saving ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "memory_config"), [(keras.layers.LSTM, {"units": 4}), (Traces, {"size": 6})]
)
def test_saved_memory_is_loaded_with_its_class(memory, memory_config, tmp_path):
    policy = build_policy(memory, memory_config)
    policy.save(tmp_path)

    loaded = rlcatalog.load(tmp_path, memory=memory)

    assert_close(loaded.act(OBSERVATIONS[:, 0]).value, policy.act(OBSERVATIONS[:, 0]).value, 1e-6)
