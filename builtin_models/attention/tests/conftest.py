"""What the tests of the transformer share: one thread, building with random weights, running, and
NumPy by hand.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

from rlcatalog_tf import GTrXLNet as TFNet
from rlcatalog_torch import GTrXLNet as TorchNet

NETS = {"torch": TorchNet, "tf": TFNet}
ACTIONS = spaces.Discrete(4)
SMALL = {
    "num_transformer_units": 2,
    "attention_dim": 6,
    "num_heads": 2,
    "head_dim": 3,
    "position_wise_mlp_dim": 5,
    "memory_inference": 4,
    "memory_training": 4,
}


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Small tensors gain nothing from a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _scramble(model, seed=0):
    random = np.random.default_rng(seed)
    model.set_weights(
        {name: random.normal(0, 0.5, array.shape) for name, array in model.get_weights().items()}
    )
    return model


@pytest.fixture
def scramble():
    """Set all weights, biases and normalisations included, to random values of a seed."""
    return _scramble


@pytest.fixture
def build():
    """Build a small net of a framework with random weights."""

    def made(framework, seed=0, outputs=4, inputs=3, **sizes):
        space = spaces.Box(-1, 1, (inputs,), np.float32)
        return _scramble(
            NETS[framework](space, ACTIONS, outputs, {}, "net", **{**SMALL, **sizes}), seed
        )

    return made


class Run:
    """What came out of one pass, as arrays."""

    def __init__(self, output, value, state):
        self.output, self.value, self.state = output, value, state


@pytest.fixture
def run():
    """Run a net over sequences `[S, T, inputs]`; outputs and values come back as `[S, T, ...]`."""

    def ran(model, x, state=(), lengths=None, training=False):
        is_torch = isinstance(model, torch.nn.Module)
        convert = torch.tensor if is_torch else tf.constant
        sequences, steps = x.shape[:2]
        lengths = [steps] * sequences if lengths is None else lengths
        rows = x.reshape(-1, *x.shape[2:]).astype(np.float32)
        given = [convert(np.asarray(part, np.float32)) for part in state]
        lengths = (
            torch.tensor(lengths, dtype=torch.int32) if is_torch else tf.constant(lengths, tf.int32)
        )
        output, new = model({"obs": convert(rows), "is_training": training}, given, lengths)
        value = None if model.outputs is None else model.value_function()
        arrays = [
            None if part is None else (part.detach().numpy() if is_torch else part.numpy())
            for part in (output, value, *new)
        ]
        shaped = [
            None if a is None else a.reshape(sequences, steps, *a.shape[1:]) for a in arrays[:2]
        ]
        return Run(*shaped, arrays[2:])

    return ran


# --- the equations, one number after the other ----------------------------------------------------


def _normalised(x, weights, name):
    centred = x - x.mean()
    return (
        centred / math.sqrt((centred**2).mean() + 1e-5) * weights[f"{name}.weight"]
        + weights[f"{name}.bias"]
    )


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _gate(x, y, weights, name):
    w_r, w_z, w_h = np.split(weights[f"{name}.w"], 3)
    u_r, u_z, u_h = *np.split(weights[f"{name}.u"], 2), weights[f"{name}.u_candidate"]
    r = _sigmoid(w_r @ y + u_r @ x)
    z = _sigmoid(w_z @ y + u_z @ x - weights[f"{name}.bias"])
    return (1 - z) * x + z * np.tanh(w_h @ y + u_h @ (r * x))


def _wave(distance, width):
    half = math.ceil(width / 2)
    angles = [distance / 10000 ** (2 * k / width) for k in range(half)]
    return np.array([*map(math.sin, angles), *map(math.cos, angles)][:width])


def _attend(inputs, now, window, heads, weights, name):
    """Return what attention makes of `inputs[now]`."""
    width, found = len(inputs[0]), []
    split = {
        part: np.split(weights[f"{name}.{part}"], heads)
        for part in ("query", "key", "value", "position")
    }
    normal = [_normalised(x, weights, f"{name}.norm") for x in inputs]
    for head in range(heads):
        query = split["query"][head] @ normal[now]
        content = query + weights[f"{name}.content_bias"][head]
        place = query + weights[f"{name}.position_bias"][head]
        scores, values = [], []
        for then in range(max(0, now - window), now + 1):
            key = split["key"][head] @ normal[then]
            distance = split["position"][head] @ _wave(now - then, width)
            scores.append((content @ key + place @ distance) / math.sqrt(len(query)))
            values.append(split["value"][head] @ normal[then])
        chances = np.exp(scores) / np.exp(scores).sum()
        found.append(sum(chance * value for chance, value in zip(chances, values, strict=True)))
    return np.maximum(weights[f"{name}.output"] @ np.concatenate(found), 0)


def _by_hand(weights, x, past, window, slots, heads, name="transformer"):
    """Compute one sequence.

    Args:
        weights: Weights by canonical name.
        x: What the transformer reads, `[T, inputs]`.
        past: For each unit what went into it in the steps before, `[n, dim]`.
        window: Number of past steps a step sees.
        slots: Number of steps the memory keeps.
        heads: Number of heads.
        name: Where the transformer's weights stand.

    Returns:
        What comes out `[T, dim]`, and what went into each unit in the last steps.
    """
    weights = {key: array.astype(np.float64) for key, array in weights.items()}
    stream = [weights[f"{name}.input.weight"] @ row + weights[f"{name}.input.bias"] for row in x]
    kept = []
    for index, before in enumerate(past):
        unit = f"{name}.units.{index}"
        inputs, outputs = [*before, *stream], []
        for step, x_t in enumerate(stream):
            y = _attend(inputs, len(before) + step, window, heads, weights, f"{unit}.attention")
            o = _gate(x_t, y, weights, f"{unit}.attention_gate")
            y = _normalised(o, weights, f"{unit}.norm")
            for layer in (0, 1):
                y = (
                    weights[f"{unit}.mlp.layers.{layer}.weight"] @ y
                    + weights[f"{unit}.mlp.layers.{layer}.bias"]
                )
                y = np.maximum(y, 0)
            outputs.append(_gate(o, y, weights, f"{unit}.mlp_gate"))
        kept.append(np.array(inputs)[max(0, len(inputs) - slots) :])
        stream = outputs
    return np.array(stream), kept


@pytest.fixture
def by_hand():
    """The transformer in NumPy, as loops over steps, heads and distances."""
    return _by_hand
