"""Weights of both frameworks' common layers have one form: copied from one to the other, a net
computes the same.
"""

from __future__ import annotations

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


def images_torch(layer):
    return lambda x: (
        layer(x.reshape(-1, 8, 8, 3).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).flatten(1)
    )


def sequences_torch(layer):
    return lambda x: layer(x.reshape(-1, 4, 3))[0].flatten(1)


def cell_torch(layer):
    def run(x):
        found = layer(x)
        return found if isinstance(found, torch.Tensor) else torch.cat(found, 1)

    return run


def cell_tf(layer, states):
    def run(x):
        _, found = layer(x, [tf.zeros([len(x), 5])] * states)
        return tf.concat(found if isinstance(found, list | tuple) else [found], 1)

    return run


class BlockTorch(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.rest = (
            nn.Linear(12, 5),
            nn.ModuleList([nn.LayerNorm(5, eps=1e-3), nn.Linear(5, 4)]),
        )

    def forward(self, x):
        return self.rest[1](self.rest[0](self.first(x)))


class BlockKeras(K.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.rest = K.Dense(5), [K.LayerNormalization(epsilon=1e-3), K.Dense(4)]

    def call(self, x):
        return self.rest[1](self.rest[0](self.first(x)))


class ModelKeras(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.rest = K.Dense(5), [K.LayerNormalization(epsilon=1e-3), K.Dense(4)]

    def call(self, x):
        return self.rest[1](self.rest[0](self.first(x)))


#: Name → width of the input, layers in PyTorch and how they are called, layers in Keras and how
#: they are called.
LAYERS = {
    "dense": (12, lambda: nn.Linear(12, 5), None, lambda: K.Dense(5), None),
    "dense without bias": (
        12,
        lambda: nn.Linear(12, 5, bias=False),
        None,
        lambda: K.Dense(5, use_bias=False),
        None,
    ),
    "conv": (
        192,
        lambda: nn.Conv2d(3, 4, 3, 2),
        images_torch,
        lambda: K.Conv2D(4, 3, 2),
        lambda layer: lambda x: tf.reshape(layer(tf.reshape(x, [-1, 8, 8, 3])), [len(x), -1]),
    ),
    "transposed conv": (
        192,
        lambda: nn.ConvTranspose2d(3, 4, 3, 2),
        images_torch,
        lambda: K.Conv2DTranspose(4, 3, 2),
        lambda layer: lambda x: tf.reshape(layer(tf.reshape(x, [-1, 8, 8, 3])), [len(x), -1]),
    ),
    "conv over a line": (
        12,
        lambda: nn.Conv1d(3, 4, 2),
        lambda layer: lambda x: layer(x.reshape(-1, 4, 3).mT).mT.flatten(1),
        lambda: K.Conv1D(4, 2),
        lambda layer: lambda x: tf.reshape(layer(tf.reshape(x, [-1, 4, 3])), [len(x), -1]),
    ),
    "layer norm": (
        12,
        lambda: nn.LayerNorm(12, eps=1e-3),
        None,
        lambda: K.LayerNormalization(epsilon=1e-3),
        None,
    ),
    "batch norm": (
        12,
        lambda: nn.BatchNorm1d(12, eps=1e-3),
        None,
        lambda: K.BatchNormalization(epsilon=1e-3),
        None,
    ),
    "embedding": (
        4,
        lambda: nn.Embedding(6, 5),
        lambda layer: lambda x: layer(x.abs().long() % 6).flatten(1),
        lambda: K.Embedding(6, 5),
        lambda layer: lambda x: tf.reshape(layer(tf.cast(abs(x), tf.int32) % 6), [len(x), -1]),
    ),
    "lstm": (
        12,
        lambda: nn.LSTM(3, 5, batch_first=True),
        sequences_torch,
        lambda: K.LSTM(5, return_sequences=True),
        lambda layer: lambda x: tf.reshape(layer(tf.reshape(x, [-1, 4, 3])), [len(x), -1]),
    ),
    "lstm cell": (
        12,
        lambda: nn.LSTMCell(12, 5),
        cell_torch,
        lambda: K.LSTMCell(5),
        lambda layer: cell_tf(layer, 2),
    ),
    "gru": (
        12,
        lambda: nn.GRU(3, 5, batch_first=True),
        sequences_torch,
        lambda: K.GRU(5, return_sequences=True),
        lambda layer: lambda x: tf.reshape(layer(tf.reshape(x, [-1, 4, 3])), [len(x), -1]),
    ),
    "gru cell": (
        12,
        lambda: nn.GRUCell(12, 5),
        cell_torch,
        lambda: K.GRUCell(5),
        lambda layer: cell_tf(layer, 1),
    ),
    "sequential": (
        12,
        lambda: nn.Sequential(nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 4)),
        None,
        lambda: tf.keras.Sequential([K.Dense(5), K.Activation("tanh"), K.Dense(4)]),
        None,
    ),
    "a layer of layers": (12, BlockTorch, None, BlockKeras, None),
    "a model of layers": (12, BlockTorch, None, ModelKeras, None),
}


class NetTorch(TorchModelV2):
    def __init__(self, make, call, *args):
        super().__init__(*args)
        self.net = nn.ModuleDict({"part": nn.ModuleList([make()])})
        self.call = call or (lambda layer: layer)

    def forward(self, input_dict, state, seq_lens):
        return self.call(self.net["part"][0])(input_dict["obs"]), state


class NetKeras(TFModelV2):
    def __init__(self, make, call, *args):
        super().__init__(*args)
        self.net = {"part": [make()]}
        self.call = call or (lambda layer: layer)

    def forward(self, input_dict, state, seq_lens):
        return self.call(self.net["part"][0])(input_dict["obs"]), state


def pair(name):
    width, *layers = LAYERS[name]
    standard = (spaces.Box(-9, 9, (width,), np.float32), spaces.Discrete(2), 2, {}, "net")
    ours, theirs = NetTorch(*layers[:2], *standard).eval(), NetKeras(*layers[2:], *standard)
    x = np.random.default_rng(0).normal(0, 3, (3, width)).astype(np.float32)
    run = (
        lambda: ours({"obs": torch.from_numpy(x)})[0].detach().numpy(),
        lambda: theirs({"obs": tf.constant(x)})[0],
    )
    return ours, theirs, run


def drawn(weights, seed):
    """Weights of these shapes; variances stay positive, counts whole."""
    rng = np.random.default_rng(seed)
    return {
        name: array
        if array.dtype.kind == "i"
        else rng.uniform(0.5, 1.5, array.shape).astype(np.float32)
        for name, array in weights.items()
    }


@pytest.mark.parametrize("name", LAYERS)
def test_weights_go_from_one_framework_to_the_other(name):
    ours, theirs, (run_ours, run_theirs) = pair(name)
    run_theirs()  # Keras makes its variables at the first call
    shapes = {name: array.shape for name, array in ours.get_weights().items()}
    assert {name: array.shape for name, array in theirs.get_weights().items()} == shapes
    assert all(name.startswith("net.part.0") for name in shapes)
    weights = drawn(ours.get_weights(), 1)
    ours.set_weights(weights)
    theirs.set_weights(weights)
    np.testing.assert_allclose(run_theirs(), run_ours(), rtol=1e-4, atol=1e-5)
    # And back: what Keras gives is what PyTorch takes.
    theirs.set_weights(drawn(weights, 2))
    ours.set_weights(theirs.get_weights())
    np.testing.assert_allclose(run_ours(), run_theirs(), rtol=1e-4, atol=1e-5)
    assert not np.allclose(run_ours(), 0)


@pytest.mark.parametrize("name", ["lstm", "gru", "batch norm", "a layer of layers"])
def test_weights_come_back_as_they_were(name):
    _, theirs, (_, run) = pair(name)
    before, weights = np.asarray(run()), theirs.get_weights()
    theirs.set_weights(drawn(weights, 1))
    assert not np.allclose(run(), before)
    theirs.set_weights(weights)
    np.testing.assert_array_equal(run(), before)
    assert len(theirs.variables()) == len(theirs.net["part"][0].weights)


def test_layer_with_other_computation_keeps_its_names():
    _, theirs, (_, run) = pair("gru")
    theirs.net["part"][0] = K.GRU(5, return_sequences=True, reset_after=False)
    run()
    own = [f"net.part.0.cell.{name}" for name in ("bias", "kernel", "recurrent_kernel")]
    assert sorted(theirs.get_weights()) == own
    other, _, _ = pair("gru")
    with pytest.raises(ModelContractError, match="these weights belong to a different model"):
        other.set_weights(theirs.get_weights())
