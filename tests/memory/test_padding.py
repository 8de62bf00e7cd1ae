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

BOX, TWO = spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2)
LSTM = {"use_lstm": True, "lstm_cell_size": 5}
ATTENTION = {
    "use_attention": True, "attention_dim": 8, "attention_num_heads": 2, "attention_head_dim": 4,
    "attention_memory_inference": 3, "attention_memory_training": 3,
}  # fmt: skip
MEMORIES = pytest.mark.parametrize("memory", [LSTM, ATTENTION], ids=["lstm", "attention"])
FRAMEWORKS = pytest.mark.parametrize("framework", ["torch", "tf"])


class TorchUnit(TorchModelV2):
    """Divides by the norm of its input, as a trunk may whose observations are never zero; keeps
    what it saw.
    """

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, statistics=False):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs, self.statistics = num_outputs or 6, statistics
        self.layer, self.norm = nn.Linear(4, self.num_outputs), nn.BatchNorm1d(4)
        self.saw = []

    def forward(self, input_dict, state, seq_lens):
        x = input_dict["obs_flat"].float()
        self.saw.append(x.detach().numpy())
        x = self.norm(x) if self.statistics else x
        return self.layer(x / x.norm(dim=1, keepdim=True)), state


class TFUnit(TFModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, statistics=False):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs, self.statistics = num_outputs or 6, statistics
        self.layer = tf.keras.layers.Dense(self.num_outputs)
        self.norm = tf.keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
        self.layer.build((None, 4))
        self.norm.build((None, 4))
        self.saw = []

    def forward(self, input_dict, state, seq_lens):
        x = tf.cast(input_dict["obs_flat"], tf.float32)
        if tf.executing_eagerly():
            self.saw.append(x.numpy())
        if self.statistics:
            x = self.norm(x, training=input_dict["is_training"])
        return self.layer(x / tf.norm(x, axis=1, keepdims=True)), state


UNITS = {"torch": TorchUnit, "tf": TFUnit}


def unit_policy(framework, memory, **options):
    config = {"custom_model": UNITS[framework], "custom_model_config": options, **memory}
    return rlcatalog.build(BOX, TWO, config, framework)


def batch_of(policy, lengths, seed=0):
    rng = np.random.default_rng(seed)
    rows = sum(lengths)
    state = [
        rng.normal(size=(len(lengths), *part.shape)).astype(np.float32)
        for part in policy.memory.initial
    ]
    if len(state) == 2 and state[1].ndim == 1:  # attention: how many slots are in use
        state[1] = np.arange(len(lengths), dtype=np.float32) % 4
    return {
        "obs": rng.uniform(-1, 1, (rows, 4)).astype(np.float32),
        "raw_action": rng.integers(2, size=(rows, 1)),
        "seq_lens": np.array(lengths, np.int32),
        "state": state,
    }


def part_of(batch, lengths, s):
    """Return the batch of one of the sequences."""
    first = sum(lengths[:s])
    rows = slice(first, first + lengths[s])
    return {
        "obs": batch["obs"][rows],
        "raw_action": batch["raw_action"][rows],
        "seq_lens": batch["seq_lens"][s : s + 1],
        "state": [part[s : s + 1] for part in batch["state"]],
    }


def scored(policy, batch):
    """Return logp, values, and the gradient of their weighted sums for each weight."""
    weights = np.linspace(0.5, 1.5, len(batch["obs"]), dtype=np.float32)
    if policy.framework == "torch":
        policy.model.zero_grad()
        found = policy.evaluate(batch)
        (found.logp + found.value).mul(torch.from_numpy(weights)).sum().backward()
        gradients = {
            n: p.grad.numpy().copy()
            for n, p in policy.model.named_parameters()
            if p.grad is not None
        }
        return found.logp.detach().numpy(), found.value.detach().numpy(), gradients
    variables = policy.model.trainable_variables(as_dict=True)
    with tf.GradientTape() as tape:
        found = policy.evaluate(batch)
        loss = tf.reduce_sum((found.logp + found.value) * weights)
    gradients = tape.gradient(loss, list(variables.values()))
    named = {n: np.asarray(g) for n, g in zip(variables, gradients, strict=True) if g is not None}
    return found.logp.numpy(), found.value.numpy(), named


@FRAMEWORKS
@MEMORIES
def test_trunk_dividing_by_its_input_has_finite_gradients(framework, memory):
    """Those of a mixed batch are the sums of its sequences' alone, which need no padding."""
    policy = unit_policy(framework, memory)
    lengths = [7, 1, 3]
    batch = batch_of(policy, lengths)
    logp, value, gradients = scored(policy, batch)
    assert gradients
    assert all(np.isfinite(g).all() for g in gradients.values())
    weights = np.linspace(0.5, 1.5, len(logp), dtype=np.float32)
    assert policy.model.trunk.saw[-1].shape == (11, 4)
    np.testing.assert_array_equal(policy.model.trunk.saw[-1], batch["obs"])
    sums, first = dict.fromkeys(gradients, 0.0), 0
    for s, length in enumerate(lengths):
        alone = part_of(batch, lengths, s)
        rows = slice(first, first + length)
        first += length
        one_logp, one_value, _ = scored(policy, alone)
        np.testing.assert_allclose(logp[rows], one_logp, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(value[rows], one_value, rtol=1e-4, atol=1e-5)
        sums = {n: sums[n] + g for n, g in weighted(policy, alone, weights[rows]).items()}
    for name, found in gradients.items():
        np.testing.assert_allclose(found, sums[name], rtol=1e-3, atol=1e-4, err_msg=name)


def weighted(policy, batch, weights):
    if policy.framework == "torch":
        policy.model.zero_grad()
        found = policy.evaluate(batch)
        (found.logp + found.value).mul(torch.from_numpy(weights)).sum().backward()
        return {
            n: p.grad.numpy().copy()
            for n, p in policy.model.named_parameters()
            if p.grad is not None
        }
    variables = policy.model.trainable_variables(as_dict=True)
    with tf.GradientTape() as tape:
        found = policy.evaluate(batch)
        loss = tf.reduce_sum((found.logp + found.value) * weights)
    named = zip(variables, tape.gradient(loss, list(variables.values())), strict=True)
    return {n: np.asarray(g) for n, g in named if g is not None}


@FRAMEWORKS
@MEMORIES
def test_batch_statistics_are_those_of_the_real_rows(framework, memory):
    """The running mean after one pass, against the mean of the rows by hand."""
    policy = unit_policy(framework, memory, statistics=True)
    batch = batch_of(policy, [7, 1, 2])
    policy.evaluate(batch)
    norm = policy.model.trunk.norm
    mean = norm.running_mean.numpy() if framework == "torch" else np.asarray(norm.moving_mean)
    np.testing.assert_allclose(mean, 0.1 * batch["obs"].mean(axis=0), rtol=1e-4, atol=1e-6)


class TorchOwnLSTM(RecurrentNetwork):
    """A recurrent model as users write them, which normalises what it sees."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.lstm = nn.LSTM(4, 5, batch_first=True)
        self.logits, self.value = nn.Linear(5, num_outputs), nn.Linear(5, 1)

    def get_initial_state(self):
        return [self.logits.weight.new_zeros(5) for _ in range(2)]

    def forward_rnn(self, inputs, state, seq_lens):
        x = inputs / inputs.norm(dim=2, keepdim=True)
        self._x, (h, c) = self.lstm(x, (state[0][None], state[1][None]))
        return self.logits(self._x), [h[0], c[0]]

    def value_function(self):
        return self.value(self._x).reshape(-1)


class TFOwnRNN(TFRecurrentNetwork):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.rnn = tf.keras.layers.GRU(5, return_sequences=True, return_state=True)
        self.logits, self.value = tf.keras.layers.Dense(num_outputs), tf.keras.layers.Dense(1)
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


OWN = {"torch": TorchOwnLSTM, "tf": TFOwnRNN}


@FRAMEWORKS
def test_custom_recurrent_model_sees_only_observed_rows(framework):
    """Its padding repeats the last step, so that what is finite on observations is finite on
    padding.
    """
    policy = rlcatalog.build(BOX, TWO, {"custom_model": OWN[framework]}, framework)
    lengths = [5, 1, 2]
    batch = batch_of(policy, lengths)
    logp, value, gradients = scored(policy, batch)
    assert all(np.isfinite(g).all() for g in gradients.values())
    for s in range(3):
        first = sum(lengths[:s])
        one = scored(policy, part_of(batch, lengths, s))
        np.testing.assert_allclose(logp[first : first + lengths[s]], one[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(value[first : first + lengths[s]], one[1], rtol=1e-4, atol=1e-5)


class TorchTimeMajor(TorchOwnLSTM):
    """It sees sequences as `[T, B, ...]`; its values are those of its base."""

    def __init__(self, *args):
        super().__init__(*args)
        self.lstm.batch_first = False

    def value_function(self):
        return super().value_function() + 1


class TFTimeMajor(TFOwnRNN):
    def forward_rnn(self, inputs, state, seq_lens):
        x, h = self.rnn(tf.transpose(inputs, [1, 0, 2]), initial_state=state[0])
        self._x = tf.transpose(x, [1, 0, 2])
        return self.logits(self._x), [h]

    def value_function(self):
        return super().value_function() + 1


TIME_MAJOR = {"torch": TorchTimeMajor, "tf": TFTimeMajor}


@pytest.mark.grid
@FRAMEWORKS
@pytest.mark.parametrize("lengths", [[4, 4, 4], [5, 1, 2]])
def test_time_major_model_gives_each_row_its_own_value(framework, lengths):
    """Of sequences side by side, against each sequence by itself."""
    policy = rlcatalog.build(
        BOX, TWO, {"custom_model": TIME_MAJOR[framework], "_time_major": True}, framework
    )
    batch = batch_of(policy, lengths)
    assert policy.act(batch["obs"][:3]).value.shape == (3,)
    weights = np.linspace(-1, 1, sum(lengths), dtype=np.float32)
    whole, gradients, parts = scored(policy, batch), weighted(policy, batch, weights), []
    for s in range(3):
        part, rows = part_of(batch, lengths, s), slice(sum(lengths[:s]), sum(lengths[: s + 1]))
        for together, alone in zip(whole[:2], scored(policy, part)[:2], strict=True):
            np.testing.assert_allclose(together[rows], alone, rtol=1e-4, atol=1e-5)
        parts.append(weighted(policy, part, weights[rows]))
    for name, gradient in gradients.items():
        np.testing.assert_allclose(
            gradient, sum(part[name] for part in parts), rtol=1e-3, atol=1e-4
        )


@FRAMEWORKS
def test_outputs_that_are_not_time_major_are_refused(framework):
    class Turned(TIME_MAJOR[framework]):
        def forward_rnn(self, inputs, state, seq_lens):
            x, state = super().forward_rnn(inputs, state, seq_lens)
            return x.transpose(0, 1) if framework == "torch" else tf.transpose(x, [1, 0, 2]), state

    policy = rlcatalog.build(BOX, TWO, {"custom_model": Turned, "_time_major": True}, framework)
    text = (
        r"Turned.forward_rnn\(\) must return outputs \[T, B, n\].*expected \(5, 3, n\), found"
        r" \(3, 5, 2\)"
    )
    with pytest.raises(ModelContractError, match=text):
        policy.evaluate(batch_of(policy, [5, 1, 2]))


class TorchOwnMemory(TorchModelV2):
    """A memory as a plugin brings one; it calls its trunk as it was called itself."""

    is_memory = True

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, *, trunk):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.trunk, self.cell = trunk, nn.LSTM(trunk.num_outputs, 5, batch_first=True)
        self.logits = nn.Linear(5, num_outputs)

    def get_initial_state(self):
        return [torch.zeros(5), torch.zeros(5)]

    def forward(self, input_dict, state, seq_lens):
        x, _ = self.call(input_dict, seq_lens)
        y, (h, c) = self.cell(
            x.view(len(seq_lens), -1, x.shape[1]), (state[0][None], state[1][None])
        )
        return self.logits(y.flatten(0, 1)), [h[0], c[0]]


@pytest.mark.parametrize(
    "call",
    [
        lambda self, inputs, seq_lens: self.trunk(inputs, [], seq_lens),
        lambda self, inputs, seq_lens: self.trunk(inputs, [], None),
        lambda self, inputs, seq_lens: features_of(self.trunk, inputs, [], None),
        lambda self, inputs, seq_lens: self.trunk({"obs": inputs["obs"]}, [], seq_lens),
    ],
    ids=["lengths", "none", "features_of", "own_dict"],
)
def test_however_a_memory_calls_its_trunk(monkeypatch, call):
    """Rows as the contract has them, padded with what is no number: the trunk is not shown it."""
    monkeypatch.setattr(TorchOwnMemory, "call", call, raising=False)
    trunk = TorchUnit(BOX, TWO, None, {}, "trunk")
    memory = TorchOwnMemory(BOX, TWO, 2, {}, "memory", trunk=trunk)
    rng = np.random.default_rng(0)
    padded = np.full((2, 5, 4), np.nan, np.float32)
    padded[0, :2], padded[1, :4] = rng.uniform(size=(2, 4)), rng.uniform(size=(4, 4))
    zeros = [torch.zeros(2, 5), torch.zeros(2, 5)]
    output, _ = memory(
        {"obs": torch.from_numpy(padded.reshape(-1, 4))}, zeros, torch.tensor([2, 4])
    )
    assert torch.isfinite(output).all()
    np.testing.assert_array_equal(trunk.saw[-1], np.concatenate([padded[0, :2], padded[1, :4]]))
    # Without padding, and step by step, the rows are the trunk's as they are.
    for lengths, rows in (([2, 2], padded[:, :2]), ([1, 1], padded[:, :1])):
        memory({"obs": torch.from_numpy(rows.reshape(-1, 4))}, zeros, torch.tensor(lengths))
        np.testing.assert_array_equal(trunk.saw[-1], rows.reshape(-1, 4))
