"""Padding behind short sequences never reaches a trunk: not its outputs, its statistics, its
gradients.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from torch import nn

import rlcatalog
from rlcatalog.errors import ModelContractError
from rlcatalog_tf import RecurrentNetwork as TFRecurrentNetwork, TFModelV2
from rlcatalog_torch import RecurrentNetwork, TorchModelV2
from rlcatalog_torch.nn import features_of

pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded")]

FOUR_FEATURES = spaces.Box(-1, 1, (4,), np.float32)
TWO_ACTIONS = spaces.Discrete(2)
LSTM = {"use_lstm": True, "lstm_cell_size": 5}
ATTENTION = {
    "use_attention": True, "attention_dim": 8, "attention_num_heads": 2, "attention_head_dim": 4,
    "attention_memory_inference": 3, "attention_memory_training": 3,
}  # fmt: skip
memories = pytest.mark.parametrize("memory", [LSTM, ATTENTION], ids=["lstm", "attention"])
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


class TorchNormalizing(TorchModelV2):
    """Divides by the norm of its input, so that padding of zeros would give NaN; records what it
    sees.
    """

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, batch_norm=False):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs = num_outputs or 6
        self.batch_norm = batch_norm
        self.layer = nn.Linear(4, self.num_outputs)
        self.norm = nn.BatchNorm1d(4)
        self.inputs = []

    def forward(self, input_dict, state, seq_lens):
        x = input_dict["obs_flat"].float()
        self.inputs.append(x.detach().numpy())
        if self.batch_norm:
            x = self.norm(x)
        return self.layer(x / x.norm(dim=1, keepdim=True)), state


class TFNormalizing(TFModelV2):
    """The same in TensorFlow."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, batch_norm=False):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs = num_outputs or 6
        self.batch_norm = batch_norm
        self.layer = tf.keras.layers.Dense(self.num_outputs)
        self.norm = tf.keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
        self.layer.build((None, 4))
        self.norm.build((None, 4))
        self.inputs = []

    def forward(self, input_dict, state, seq_lens):
        x = tf.cast(input_dict["obs_flat"], tf.float32)
        if tf.executing_eagerly():
            self.inputs.append(x.numpy())
        if self.batch_norm:
            x = self.norm(x, training=input_dict["is_training"])
        return self.layer(x / tf.norm(x, axis=1, keepdims=True)), state


def build_normalizing(framework, memory, **options):
    model = {"torch": TorchNormalizing, "tf": TFNormalizing}[framework]
    config = {"custom_model": model, "custom_model_config": options, **memory}
    return rlcatalog.build(FOUR_FEATURES, TWO_ACTIONS, config, framework)


def random_batch(policy, lengths):
    """Return a batch of sequences of some lengths, with states in the middle of an episode."""
    rng = np.random.default_rng(0)
    rows = sum(lengths)
    state = []
    for part in policy.memory.initial:
        state.append(rng.normal(size=(len(lengths), *part.shape)).astype(np.float32))
    if len(state) == 2 and state[1].ndim == 1:  # attention: how many slots are in use
        state[1] = np.arange(len(lengths), dtype=np.float32) % 4
    return {
        "obs": rng.uniform(-1, 1, (rows, 4)).astype(np.float32),
        "raw_action": rng.integers(2, size=(rows, 1)),
        "seq_lens": np.array(lengths, np.int32),
        "state": state,
    }


def split_sequences(batch):
    """Yield for each sequence of a batch its rows, and the batch of this sequence alone."""
    first = 0
    for i, length in enumerate(batch["seq_lens"]):
        rows = slice(first, first + length)
        first += length
        alone = {
            "obs": batch["obs"][rows],
            "raw_action": batch["raw_action"][rows],
            "seq_lens": batch["seq_lens"][i : i + 1],
            "state": [part[i : i + 1] for part in batch["state"]],
        }
        yield rows, alone


class Scores:
    """What training computes for a batch: logp, values, and the gradients of their weighted sum."""

    def __init__(self, policy, batch, row_weights):
        if policy.framework == "torch":
            self._score_in_torch(policy, batch, torch.from_numpy(row_weights))
        else:
            self._score_in_tf(policy, batch, row_weights)

    def _score_in_torch(self, policy, batch, row_weights):
        policy.model.zero_grad()
        evaluation = policy.evaluate(batch)
        ((evaluation.logp + evaluation.value) * row_weights).sum().backward()
        self.logp = evaluation.logp.detach().numpy()
        self.value = evaluation.value.detach().numpy()
        self.gradients = {}
        for name, weight in policy.model.named_parameters():
            if weight.grad is not None:
                self.gradients[name] = weight.grad.numpy().copy()

    def _score_in_tf(self, policy, batch, row_weights):
        variables = policy.model.trainable_variables(as_dict=True)
        with tf.GradientTape() as tape:
            evaluation = policy.evaluate(batch)
            loss = tf.reduce_sum((evaluation.logp + evaluation.value) * row_weights)
        self.logp = evaluation.logp.numpy()
        self.value = evaluation.value.numpy()
        self.gradients = {}
        for name, gradient in tape.gradient(loss, variables).items():
            if gradient is not None:
                self.gradients[name] = np.asarray(gradient)


def assert_scored_like_single_sequences(policy, batch, row_weights):
    """Assert that padded sequences score as each of them alone, which needs no padding, and that
    the gradients are the sums of theirs.
    """
    scores = Scores(policy, batch, row_weights)
    sums = dict.fromkeys(scores.gradients, 0.0)
    for rows, sequence in split_sequences(batch):
        alone = Scores(policy, sequence, row_weights[rows])
        np.testing.assert_allclose(scores.logp[rows], alone.logp, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(scores.value[rows], alone.value, rtol=1e-4, atol=1e-5)
        for name, gradient in alone.gradients.items():
            sums[name] += gradient

    assert scores.gradients
    for name, gradient in scores.gradients.items():
        assert np.isfinite(gradient).all(), name
        np.testing.assert_allclose(gradient, sums[name], rtol=1e-3, atol=1e-4, err_msg=name)


# --- trunks below a memory ------------------------------------------------------------------------


@frameworks
@memories
def test_gradients_of_padded_sequences_are_those_of_single_ones(framework, memory):
    policy = build_normalizing(framework, memory)
    batch = random_batch(policy, lengths=[7, 1, 3])
    row_weights = np.linspace(0.5, 1.5, 11, dtype=np.float32)

    assert_scored_like_single_sequences(policy, batch, row_weights)


@frameworks
@memories
def test_trunk_sees_no_padding(framework, memory):
    policy = build_normalizing(framework, memory)
    batch = random_batch(policy, lengths=[7, 1, 3])

    policy.evaluate(batch)

    np.testing.assert_array_equal(policy.model.trunk.inputs[-1], batch["obs"])  # 11 rows, not 21


@frameworks
@memories
def test_batch_norm_counts_no_padding(framework, memory):
    policy = build_normalizing(framework, memory, batch_norm=True)
    batch = random_batch(policy, lengths=[7, 1, 2])

    policy.evaluate(batch)

    # The running mean begins with 0, and moves a tenth of the way to the mean of the ten rows.
    expected = 0.1 * batch["obs"].mean(axis=0)
    np.testing.assert_allclose(running_mean_of(policy), expected, rtol=1e-4, atol=1e-6)


def running_mean_of(policy):
    """Return the mean of a batch norm in the trunk."""
    norm = policy.model.trunk.norm
    if policy.framework == "torch":
        return norm.running_mean.numpy()
    return np.asarray(norm.moving_mean)


# --- custom recurrent models ----------------------------------------------------------------------


class TorchCustomLSTM(RecurrentNetwork):
    """A recurrent model as users write them, which divides by the norm of its input."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.lstm = nn.LSTM(4, 5, batch_first=True)
        self.logits = nn.Linear(5, num_outputs)
        self.value = nn.Linear(5, 1)

    def get_initial_state(self):
        return [self.logits.weight.new_zeros(5) for _ in range(2)]

    def forward_rnn(self, inputs, state, seq_lens):
        x = inputs / inputs.norm(dim=2, keepdim=True)
        self._x, (h, c) = self.lstm(x, (state[0][None], state[1][None]))
        return self.logits(self._x), [h[0], c[0]]

    def value_function(self):
        return self.value(self._x).reshape(-1)


class TFCustomGRU(TFRecurrentNetwork):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.rnn = tf.keras.layers.GRU(5, return_sequences=True, return_state=True)
        self.logits = tf.keras.layers.Dense(num_outputs)
        self.value = tf.keras.layers.Dense(1)
        self.rnn.build((None, None, 4))
        self.logits.build((None, 5))
        self.value.build((None, 5))

    def get_initial_state(self):
        return [np.zeros(5, np.float32)]

    def forward_rnn(self, inputs, state, seq_lens):
        x = inputs / tf.norm(inputs, axis=2, keepdims=True)
        self._x, h = self.rnn(x, initial_state=state[0])
        return self.logits(self._x), [h]

    def value_function(self):
        return tf.reshape(self.value(self._x), [-1])


@pytest.mark.parametrize(("framework", "model"), [("torch", TorchCustomLSTM), ("tf", TFCustomGRU)])
def test_padding_of_a_custom_recurrent_model_stays_finite(framework, model):
    # Padding repeats the last observation, since zeros would give NaN in this model.
    policy = rlcatalog.build(FOUR_FEATURES, TWO_ACTIONS, {"custom_model": model}, framework)
    batch = random_batch(policy, lengths=[5, 1, 2])

    assert_scored_like_single_sequences(policy, batch, np.ones(8, np.float32))


class TorchTimeMajor(TorchCustomLSTM):
    """It sees sequences as `[T, B, ...]`; its values are those of its base."""

    def __init__(self, *args):
        super().__init__(*args)
        self.lstm.batch_first = False

    def value_function(self):
        return super().value_function() + 1


class TFTimeMajor(TFCustomGRU):
    def forward_rnn(self, inputs, state, seq_lens):
        x, h = self.rnn(tf.transpose(inputs, [1, 0, 2]), initial_state=state[0])
        self._x = tf.transpose(x, [1, 0, 2])
        return self.logits(self._x), [h]

    def value_function(self):
        return super().value_function() + 1


TIME_MAJOR = {"torch": TorchTimeMajor, "tf": TFTimeMajor}


def build_time_major(framework, model):
    return rlcatalog.build(
        FOUR_FEATURES, TWO_ACTIONS, {"custom_model": model, "_time_major": True}, framework
    )


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize("lengths", [[4, 4, 4], [5, 1, 2]])
def test_time_major_model_scores_each_row(framework, lengths):
    policy = build_time_major(framework, TIME_MAJOR[framework])
    batch = random_batch(policy, lengths)
    row_weights = np.linspace(-1, 1, sum(lengths), dtype=np.float32)

    assert_scored_like_single_sequences(policy, batch, row_weights)


@frameworks
def test_time_major_model_acts_with_a_value_for_each_row(framework):
    policy = build_time_major(framework, TIME_MAJOR[framework])
    assert policy.act(np.ones((3, 4), np.float32)).value.shape == (3,)


class TorchBatchMajorOutputs(TorchTimeMajor):
    def forward_rnn(self, inputs, state, seq_lens):
        outputs, state = super().forward_rnn(inputs, state, seq_lens)
        return outputs.transpose(0, 1), state


class TFBatchMajorOutputs(TFTimeMajor):
    def forward_rnn(self, inputs, state, seq_lens):
        outputs, state = super().forward_rnn(inputs, state, seq_lens)
        return tf.transpose(outputs, [1, 0, 2]), state


@pytest.mark.parametrize(
    ("framework", "model"), [("torch", TorchBatchMajorOutputs), ("tf", TFBatchMajorOutputs)]
)
def test_outputs_that_are_not_time_major_are_an_error(framework, model):
    policy = build_time_major(framework, model)
    batch = random_batch(policy, lengths=[5, 1, 2])

    # There are three sequences, which are padded to five steps, and two actions.
    with pytest.raises(ModelContractError, match=r"expected \(5, 3, n\), found \(3, 5, 2\)") as e:
        policy.evaluate(batch)

    message = f"{model.__name__}.forward_rnn() must return outputs [T, B, n]"
    assert message in str(e.value)


# --- memories of plugins --------------------------------------------------------------------------


class TorchPluginMemory(TorchModelV2):
    """A memory of a plugin; each of its subclasses calls its trunk in another way."""

    is_memory = True

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, *, trunk):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.trunk = trunk
        self.cell = nn.LSTM(trunk.num_outputs, 5, batch_first=True)
        self.logits = nn.Linear(5, num_outputs)

    def get_initial_state(self):
        return [torch.zeros(5), torch.zeros(5)]

    def forward(self, input_dict, state, seq_lens):
        features, _ = self.call_trunk(input_dict, seq_lens)
        sequences = features.view(len(seq_lens), -1, features.shape[1])
        outputs, (h, c) = self.cell(sequences, (state[0][None], state[1][None]))
        return self.logits(outputs.flatten(0, 1)), [h[0], c[0]]

    def call_trunk(self, input_dict, seq_lens):
        """Return the features of the trunk, and its state."""
        return self.trunk(input_dict, [], seq_lens)


class WithoutLengths(TorchPluginMemory):
    def call_trunk(self, input_dict, seq_lens):
        return self.trunk(input_dict, [], None)


class WithFeaturesOf(TorchPluginMemory):
    def call_trunk(self, input_dict, seq_lens):
        return features_of(self.trunk, input_dict, [], None)


class WithNewDict(TorchPluginMemory):
    def call_trunk(self, input_dict, seq_lens):
        return self.trunk({"obs": input_dict["obs"]}, [], seq_lens)


each_memory_class = pytest.mark.parametrize(
    "memory_class", [TorchPluginMemory, WithoutLengths, WithFeaturesOf, WithNewDict]
)


def run_memory(memory_class, obs, lengths):
    """Run a memory on padded rows `[B, T, 4]`; return its outputs, and what its trunk saw."""
    trunk = TorchNormalizing(FOUR_FEATURES, TWO_ACTIONS, None, {}, "trunk")
    memory = memory_class(FOUR_FEATURES, TWO_ACTIONS, 2, {}, "memory", trunk=trunk)
    zero_state = [torch.zeros(2, 5), torch.zeros(2, 5)]
    rows = torch.from_numpy(obs.reshape(-1, 4))
    outputs, _ = memory({"obs": rows}, zero_state, torch.tensor(lengths))
    return outputs, trunk.inputs[-1]


@each_memory_class
def test_trunk_of_a_plugin_memory_sees_no_padding(memory_class):
    obs = np.random.default_rng(0).uniform(size=(2, 5, 4)).astype(np.float32)
    obs[0, 2:] = np.nan  # padding behind two steps, and behind four
    obs[1, 4:] = np.nan

    outputs, inputs = run_memory(memory_class, obs, lengths=[2, 4])

    assert torch.isfinite(outputs).all()
    np.testing.assert_array_equal(inputs, np.concatenate([obs[0, :2], obs[1, :4]]))


@each_memory_class
@pytest.mark.parametrize("steps", [1, 2])
def test_trunk_of_a_plugin_memory_sees_rows_without_padding(memory_class, steps):
    obs = np.random.default_rng(0).uniform(size=(2, steps, 4)).astype(np.float32)

    _, inputs = run_memory(memory_class, obs, lengths=[steps, steps])

    np.testing.assert_array_equal(inputs, obs.reshape(-1, 4))
