"""Weights of layers that both frameworks have: one form, in which a net computes the same after
its weights were copied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from torch import nn

from rlcatalog.errors import ModelContractError
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

K = tf.keras.layers


# --- how layers are called with rows of numbers ---------------------------------------------------


def call(layer, x):
    return layer(x)


def call_torch_conv(layer, x):
    images = x.reshape(-1, 8, 8, 3).permute(0, 3, 1, 2)  # channels first
    return layer(images).permute(0, 2, 3, 1).flatten(1)


def call_torch_conv_1d(layer, x):
    return layer(x.reshape(-1, 4, 3).mT).mT.flatten(1)


def call_torch_embedding(layer, x):
    return layer(x.abs().long() % 6).flatten(1)


def call_torch_sequence(layer, x):
    outputs, _ = layer(x.reshape(-1, 4, 3))
    return outputs.flatten(1)


def call_torch_cell(layer, x):
    state = layer(x)
    if isinstance(state, torch.Tensor):
        return state
    return torch.cat(state, 1)


def flatten(x):
    return tf.reshape(x, [len(x), -1])


def call_keras_conv(layer, x):
    return flatten(layer(tf.reshape(x, [-1, 8, 8, 3])))


def call_keras_sequence(layer, x):
    return flatten(layer(tf.reshape(x, [-1, 4, 3])))


def call_keras_embedding(layer, x):
    return flatten(layer(tf.cast(abs(x), tf.int32) % 6))


def call_lstm_cell(layer, x):
    _, state = layer(x, [tf.zeros([len(x), 5]), tf.zeros([len(x), 5])])
    return tf.concat(state, 1)


def call_gru_cell(layer, x):
    _, state = layer(x, [tf.zeros([len(x), 5])])
    return tf.concat(state, 1)


# --- layers of layers -----------------------------------------------------------------------------


class TorchBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 5)
        self.rest = nn.ModuleList([nn.LayerNorm(5, eps=1e-3), nn.Linear(5, 4)])

    def forward(self, x):
        norm, last = self.rest
        return last(norm(self.first(x)))


class KerasBlock(K.Layer):
    def __init__(self):
        super().__init__()
        self.first = K.Dense(5)
        self.rest = [K.LayerNormalization(epsilon=1e-3), K.Dense(4)]

    def call(self, x):
        norm, last = self.rest
        return last(norm(self.first(x)))


class KerasModel(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.first = K.Dense(5)
        self.rest = [K.LayerNormalization(epsilon=1e-3), K.Dense(4)]

    def call(self, x):
        norm, last = self.rest
        return last(norm(self.first(x)))


def torch_sequential():
    return nn.Sequential(nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 4))


def keras_sequential():
    return tf.keras.Sequential([K.Dense(5), K.Activation("tanh"), K.Dense(4)])


@dataclass
class Case:
    """The same layer in both frameworks, how it is called, and how many numbers a row has."""

    torch_layer: Callable[[], nn.Module]
    keras_layer: Callable[[], Any]
    call_torch: Callable[[Any, Any], Any] = call
    call_keras: Callable[[Any, Any], Any] = call
    width: int = 12


CASES = {
    "dense": Case(partial(nn.Linear, 12, 5), partial(K.Dense, 5)),
    "dense without bias": Case(
        partial(nn.Linear, 12, 5, bias=False), partial(K.Dense, 5, use_bias=False)
    ),
    "conv": Case(
        partial(nn.Conv2d, 3, 4, 3, 2),
        partial(K.Conv2D, 4, 3, 2),
        call_torch_conv,
        call_keras_conv,
        width=192,
    ),
    "transposed conv": Case(
        partial(nn.ConvTranspose2d, 3, 4, 3, 2),
        partial(K.Conv2DTranspose, 4, 3, 2),
        call_torch_conv,
        call_keras_conv,
        width=192,
    ),
    "conv over a line": Case(
        partial(nn.Conv1d, 3, 4, 2),
        partial(K.Conv1D, 4, 2),
        call_torch_conv_1d,
        call_keras_sequence,
    ),
    "layer norm": Case(
        partial(nn.LayerNorm, 12, eps=1e-3), partial(K.LayerNormalization, epsilon=1e-3)
    ),
    "batch norm": Case(
        partial(nn.BatchNorm1d, 12, eps=1e-3), partial(K.BatchNormalization, epsilon=1e-3)
    ),
    "embedding": Case(
        partial(nn.Embedding, 6, 5),
        partial(K.Embedding, 6, 5),
        call_torch_embedding,
        call_keras_embedding,
        width=4,
    ),
    "lstm": Case(
        partial(nn.LSTM, 3, 5, batch_first=True),
        partial(K.LSTM, 5, return_sequences=True),
        call_torch_sequence,
        call_keras_sequence,
    ),
    "lstm cell": Case(
        partial(nn.LSTMCell, 12, 5), partial(K.LSTMCell, 5), call_torch_cell, call_lstm_cell
    ),
    "gru": Case(
        partial(nn.GRU, 3, 5, batch_first=True),
        partial(K.GRU, 5, return_sequences=True),
        call_torch_sequence,
        call_keras_sequence,
    ),
    "gru cell": Case(
        partial(nn.GRUCell, 12, 5), partial(K.GRUCell, 5), call_torch_cell, call_gru_cell
    ),
    "sequential": Case(torch_sequential, keras_sequential),
    "layer of layers": Case(TorchBlock, KerasBlock),
    "model of layers": Case(TorchBlock, KerasModel),
}


class TorchNet(TorchModelV2):
    """A model of one layer inside containers, whose weights begin with `net.part.0`."""

    def __init__(self, case, *arguments):
        super().__init__(*arguments)
        self.net = nn.ModuleDict({"part": nn.ModuleList([case.torch_layer()])})
        self.call_layer = case.call_torch

    def forward(self, input_dict, state, seq_lens):
        return self.call_layer(self.net["part"][0], input_dict["obs"]), state


class KerasNet(TFModelV2):
    """The same in TensorFlow."""

    def __init__(self, case, *arguments):
        super().__init__(*arguments)
        self.net = {"part": [case.keras_layer()]}
        self.call_layer = case.call_keras

    def forward(self, input_dict, state, seq_lens):
        return self.call_layer(self.net["part"][0], input_dict["obs"]), state


class Nets:
    """A layer as a model of each framework, and three rows of numbers for them."""

    def __init__(self, name):
        case = CASES[name]
        arguments = (
            spaces.Box(-9, 9, (case.width,), np.float32),
            spaces.Discrete(2),
            2,  # outputs
            {},
            "net",
        )
        self.torch_net = TorchNet(case, *arguments).eval()
        self.keras_net = KerasNet(case, *arguments)
        self.rows = np.random.default_rng(0).normal(0, 3, (3, case.width)).astype(np.float32)
        self.run_keras()  # Keras creates its variables at the first call

    def run_torch(self):
        outputs, _ = self.torch_net({"obs": torch.from_numpy(self.rows)})
        return outputs.detach().numpy()

    def run_keras(self):
        outputs, _ = self.keras_net({"obs": tf.constant(self.rows)})
        return np.asarray(outputs)


def draw_weights(weights, seed):
    """Return random weights of the same shapes; variances are positive, counts stay integers."""
    rng = np.random.default_rng(seed)
    random = {}
    for name, array in weights.items():
        if array.dtype.kind == "i":
            random[name] = array
        else:
            random[name] = rng.uniform(0.5, 1.5, array.shape).astype(np.float32)
    return random


def shapes_of(net):
    return {name: array.shape for name, array in net.get_weights().items()}


@pytest.fixture
def nets(name):
    return Nets(name)


# --- tests ----------------------------------------------------------------------------------------


each_layer = pytest.mark.parametrize("name", CASES)


@each_layer
def test_weights_have_the_same_names_and_shapes(nets):
    assert shapes_of(nets.keras_net) == shapes_of(nets.torch_net)
    for name in shapes_of(nets.torch_net):
        assert name.startswith("net.part.0")


@each_layer
def test_weights_of_pytorch_compute_the_same_in_keras(nets):
    nets.torch_net.set_weights(draw_weights(nets.torch_net.get_weights(), seed=1))

    nets.keras_net.set_weights(nets.torch_net.get_weights())

    np.testing.assert_allclose(nets.run_keras(), nets.run_torch(), rtol=1e-4, atol=1e-5)
    assert not np.allclose(nets.run_torch(), 0)


@each_layer
def test_weights_of_keras_compute_the_same_in_pytorch(nets):
    nets.keras_net.set_weights(draw_weights(nets.keras_net.get_weights(), seed=2))

    nets.torch_net.set_weights(nets.keras_net.get_weights())

    np.testing.assert_allclose(nets.run_torch(), nets.run_keras(), rtol=1e-4, atol=1e-5)
    assert not np.allclose(nets.run_torch(), 0)


some_layers = pytest.mark.parametrize("name", ["lstm", "gru", "batch norm", "layer of layers"])


@some_layers
def test_keras_weights_are_restored_exactly(nets):
    outputs = nets.run_keras()
    weights = nets.keras_net.get_weights()
    nets.keras_net.set_weights(draw_weights(weights, seed=1))
    assert not np.allclose(nets.run_keras(), outputs)

    nets.keras_net.set_weights(weights)

    np.testing.assert_array_equal(nets.run_keras(), outputs)


@some_layers
def test_variables_are_those_of_the_keras_layer(nets):
    layer = nets.keras_net.net["part"][0]
    assert len(nets.keras_net.variables()) == len(layer.weights)


@pytest.fixture
def gru_with_another_formula():
    """A model with a GRU of Keras that resets its state before the product, unlike PyTorch's."""
    nets = Nets("gru")
    nets.keras_net.net["part"][0] = K.GRU(5, return_sequences=True, reset_after=False)
    nets.run_keras()
    return nets.keras_net


def test_gru_with_another_formula_keeps_the_names_of_keras(gru_with_another_formula):
    assert sorted(gru_with_another_formula.get_weights()) == [
        "net.part.0.cell.bias",
        "net.part.0.cell.kernel",
        "net.part.0.cell.recurrent_kernel",
    ]


def test_weights_of_a_gru_with_another_formula_do_not_fit(gru_with_another_formula):
    torch_net = Nets("gru").torch_net
    with pytest.raises(ModelContractError, match="weights belong to a different model"):
        torch_net.set_weights(gru_with_another_formula.get_weights())
