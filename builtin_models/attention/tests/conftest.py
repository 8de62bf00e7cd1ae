"""Fixtures that build and run transformers with random weights, and their formula in NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
def _one_thread(one_thread):
    """Small tensors gain nothing from a second thread."""


def _set_random_weights(model, seed=0):
    random = np.random.default_rng(seed)
    weights = {}
    for name, array in model.get_weights().items():
        weights[name] = random.normal(0, 0.5, array.shape)
    model.set_weights(weights)
    return model


@pytest.fixture
def set_random_weights():
    """Set all weights, biases and normalizations included, to random values of a seed."""
    return _set_random_weights


def _build_net(framework, seed=0, **sizes):
    space = spaces.Box(-1, 1, (3,), np.float32)
    net = NETS[framework](space, ACTIONS, 4, {}, "net", **{**SMALL, **sizes})
    return _set_random_weights(net, seed)


@pytest.fixture
def build_net():
    """Build a small net with random weights: 3 inputs, 2 units of width 6, 4 outputs.

    It sees and keeps 4 past steps.
    """
    return _build_net


@dataclass
class Results:
    """What a net returned.

    Attributes:
        output: Array of shape [sequences, steps, outputs].
        value: Array of shape [sequences, steps].
        state: What went into each unit in the last steps, [sequences, units, slots, width], and
            how many of these slots are used, [sequences].
    """

    output: np.ndarray
    value: np.ndarray
    state: list[np.ndarray]


def _run_net(model, x, state=(), lengths=None, training=False):
    is_torch = isinstance(model, torch.nn.Module)
    to_tensor = torch.tensor if is_torch else tf.constant
    sequences, steps = x.shape[:2]
    if lengths is None:
        lengths = [steps] * sequences
    rows = to_tensor(x.reshape(-1, *x.shape[2:]).astype(np.float32))
    state = [to_tensor(np.asarray(part, np.float32)) for part in state]
    lengths = to_tensor(np.asarray(lengths, np.int32))

    output, new_state = model({"obs": rows, "is_training": training}, state, lengths)

    def to_array(tensor):
        return tensor.detach().numpy() if is_torch else tensor.numpy()

    return Results(
        to_array(output).reshape(sequences, steps, -1),
        to_array(model.value_function()).reshape(sequences, steps),
        [to_array(part) for part in new_state],
    )


@pytest.fixture
def run_net():
    """Run a net over sequences [sequences, steps, inputs], and return its `Results`."""
    return _run_net


# --- the formulas, one number after the other -----------------------------------------------------


def _normalize(x, weights, name):
    centered = x - x.mean()
    scaled = centered / math.sqrt((centered**2).mean() + 1e-5)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _gate(x, y, weights, name):
    w_r, w_z, w_h = np.split(weights[f"{name}.w"], 3)
    u_r, u_z = np.split(weights[f"{name}.u"], 2)
    u_h = weights[f"{name}.u_candidate"]
    r = _sigmoid(w_r @ y + u_r @ x)
    z = _sigmoid(w_z @ y + u_z @ x - weights[f"{name}.bias"])
    return (1 - z) * x + z * np.tanh(w_h @ y + u_h @ (r * x))


def _encode_distance(distance, width):
    half = math.ceil(width / 2)
    angles = [distance / 10000 ** (2 * k / width) for k in range(half)]
    return np.array([*map(math.sin, angles), *map(math.cos, angles)][:width])


def _attend(inputs, now, window, heads, weights, name):
    """Return what attention makes of `inputs[now]`."""
    width = len(inputs[0])
    split = {}
    for part in ("query", "key", "value", "position"):
        split[part] = np.split(weights[f"{name}.{part}"], heads)
    normal = [_normalize(x, weights, f"{name}.norm") for x in inputs]
    outputs = []
    for head in range(heads):
        query = split["query"][head] @ normal[now]
        content_query = query + weights[f"{name}.content_bias"][head]
        position_query = query + weights[f"{name}.position_bias"][head]
        scores = []
        values = []
        for then in range(max(0, now - window), now + 1):
            key = split["key"][head] @ normal[then]
            position = split["position"][head] @ _encode_distance(now - then, width)
            score = content_query @ key + position_query @ position
            scores.append(score / math.sqrt(len(query)))
            values.append(split["value"][head] @ normal[then])
        probabilities = np.exp(scores) / np.exp(scores).sum()
        outputs.append(probabilities @ np.array(values))
    return np.maximum(weights[f"{name}.output"] @ np.concatenate(outputs), 0)


def _compute_by_hand(weights, x, past, window, slots, heads):
    weights = {key: array.astype(np.float64) for key, array in weights.items()}
    input_weight = weights["transformer.input.weight"]
    stream = [input_weight @ row + weights["transformer.input.bias"] for row in x]
    memory = []
    for index, before in enumerate(past):
        unit = f"transformer.units.{index}"
        inputs = [*before, *stream]
        outputs = []
        for step, x_t in enumerate(stream):
            y = _attend(inputs, len(before) + step, window, heads, weights, f"{unit}.attention")
            o = _gate(x_t, y, weights, f"{unit}.attention_gate")
            y = _normalize(o, weights, f"{unit}.norm")
            for layer in (0, 1):
                name = f"{unit}.mlp.layers.{layer}"
                y = np.maximum(weights[f"{name}.weight"] @ y + weights[f"{name}.bias"], 0)
            outputs.append(_gate(o, y, weights, f"{unit}.mlp_gate"))
        memory.append(np.array(inputs)[max(0, len(inputs) - slots) :])
        stream = outputs
    return np.array(stream), memory


@pytest.fixture
def compute_by_hand():
    """Compute the transformer for one sequence, in loops over steps, heads and distances.

    Args:
        weights: Weights by name.
        x: What the transformer reads, [steps, inputs].
        past: What went into each unit in the steps before, [steps, width] for each.
        window: Number of past steps that a step sees.
        slots: Number of steps that the memory keeps.
        heads: Number of heads.

    Returns:
        What comes out, [steps, width], and what went into each unit in the last steps.
    """
    return _compute_by_hand
