"""The transformer's results, gradients and initial weights, against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from model_runs import assert_close, assert_same_gradients, run_sequences
from scipy import stats

from rlcatalog_attention.config import AttentionConfig, distances
from rlcatalog_tf import GTrXLNet as TFNet
from rlcatalog_torch import GTrXLNet as TorchNet

# --- the formulas, one number after the other -----------------------------------------------------


def normalize(x, weights, name):
    centered = x - x.mean()
    scaled = centered / math.sqrt((centered**2).mean() + 1e-5)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gate(x, y, weights, name):
    w_r, w_z, w_h = np.split(weights[f"{name}.w"], 3)
    u_r, u_z = np.split(weights[f"{name}.u"], 2)
    u_h = weights[f"{name}.u_candidate"]
    r = sigmoid(w_r @ y + u_r @ x)
    z = sigmoid(w_z @ y + u_z @ x - weights[f"{name}.bias"])
    return (1 - z) * x + z * np.tanh(w_h @ y + u_h @ (r * x))


def encode_distance(distance, width):
    half = math.ceil(width / 2)
    angles = [distance / 10000 ** (2 * k / width) for k in range(half)]
    return np.array([*map(math.sin, angles), *map(math.cos, angles)][:width])


def attend(inputs, now, window, heads, weights, name):
    """Return what attention makes of `inputs[now]`."""
    width = len(inputs[0])
    split = {}
    for part in ("query", "key", "value", "position"):
        split[part] = np.split(weights[f"{name}.{part}"], heads)
    normal = [normalize(x, weights, f"{name}.norm") for x in inputs]
    outputs = []
    for head in range(heads):
        query = split["query"][head] @ normal[now]
        content_query = query + weights[f"{name}.content_bias"][head]
        position_query = query + weights[f"{name}.position_bias"][head]
        scores = []
        values = []
        for then in range(max(0, now - window), now + 1):
            key = split["key"][head] @ normal[then]
            position = split["position"][head] @ encode_distance(now - then, width)
            score = content_query @ key + position_query @ position
            scores.append(score / math.sqrt(len(query)))
            values.append(split["value"][head] @ normal[then])
        probabilities = np.exp(scores) / np.exp(scores).sum()
        outputs.append(probabilities @ np.array(values))
    return np.maximum(weights[f"{name}.output"] @ np.concatenate(outputs), 0)


def compute_by_hand(model, obs, past, window):
    """Compute a net for one sequence, in loops over steps, heads and distances.

    Args:
        model: The net.
        obs: Observations, [steps, inputs].
        past: What went into each unit in the steps before, [units, steps, width].
        window: Number of past steps that a step sees.

    Returns:
        Outputs [steps, outputs], values [steps], and what went into each unit in the last steps.
    """
    weights = {key: array.astype(np.float64) for key, array in model.get_weights().items()}
    sizes = model.transformer.sizes
    input_weight = weights["transformer.input.weight"]
    stream = [input_weight @ row + weights["transformer.input.bias"] for row in obs]
    memory = []
    for index, before in enumerate(past):
        unit = f"transformer.units.{index}"
        inputs = [*before, *stream]
        unit_outputs = []
        for step, x in enumerate(stream):
            now = len(before) + step
            y = attend(inputs, now, window, sizes.attention_num_heads, weights, f"{unit}.attention")
            o = gate(x, y, weights, f"{unit}.attention_gate")
            y = normalize(o, weights, f"{unit}.norm")
            for layer in (0, 1):
                name = f"{unit}.mlp.layers.{layer}"
                y = np.maximum(weights[f"{name}.weight"] @ y + weights[f"{name}.bias"], 0)
            unit_outputs.append(gate(o, y, weights, f"{unit}.mlp_gate"))
        memory.append(inputs[max(0, len(inputs) - sizes.slots) :])
        stream = unit_outputs
    features = np.array(stream)
    outputs = features @ weights["outputs.logits.weight"].T + weights["outputs.logits.bias"]
    values = features @ weights["outputs.value.weight"][0] + weights["outputs.value.bias"]
    return outputs, values, np.reshape(memory, (len(past), -1, sizes.attention_dim))


@pytest.mark.grid
@pytest.mark.parametrize("is_training", [False, True], ids=["acts", "trains"])
@pytest.mark.parametrize(
    ("sizes", "steps", "used"),  # used slots of the memory before the steps
    [
        pytest.param({"num_transformer_units": 1, "num_heads": 1}, 3, 0, id="one-unit-one-head"),
        pytest.param({}, 6, 2, id="two-units-two-heads"),
        pytest.param({"attention_dim": 7, "head_dim": 4}, 3, 4, id="odd-width"),
        pytest.param({"num_heads": 4, "head_dim": 1}, 9, 4, id="longer-than-the-window"),
        pytest.param({}, 1, 3, id="one-step"),
        pytest.param({"num_heads": 1}, 1, 4, id="one-step-one-head-full-memory"),
        pytest.param({"attention_dim": 5}, 1, 0, id="one-step-at-the-start"),
        pytest.param(
            {"memory_inference": 2, "memory_training": 5}, 4, 5, id="sees-less-than-it-keeps"
        ),
        pytest.param(
            {"memory_inference": 2, "memory_training": 5},
            1,
            3,
            id="one-step-sees-less-than-it-keeps",
        ),
        pytest.param({"memory_inference": 0, "memory_training": 0}, 4, 0, id="no-memory"),
        pytest.param({"memory_inference": 0, "memory_training": 0}, 1, 0, id="one-step-no-memory"),
    ],
)
def test_net_matches_numpy(framework, is_training, sizes, steps, used, build_net):
    model = build_net(framework, **sizes)
    random = np.random.default_rng(7)
    obs = random.normal(size=(1, steps, 3)).astype(np.float32)  # one sequence
    units, slots, width = model.get_initial_state()[0].shape
    memory = random.normal(size=(1, units, slots, width)).astype(np.float32)

    results = run_sequences(model, obs, [memory, [used]], is_training=is_training)

    outputs, values, inputs_of_units = compute_by_hand(
        model,
        obs[0],
        past=memory[0, :, slots - used :],  # the used slots are the last ones
        window=model.transformer.sizes.window(is_training),
    )
    assert_close(results.outputs[0], outputs)
    assert_close(results.values[0], values)
    new_memory, new_used = results.state
    first_used = slots - inputs_of_units.shape[1]
    assert new_used.tolist() == [min(slots, used + steps)]
    assert_close(new_memory[0, :, first_used:], inputs_of_units)


# --- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 5])
def test_gradients_are_the_same_in_both_frameworks(steps, build_net):
    sequences = 12  # with few rows a ReLU may let none through, and has no gradient
    random = np.random.default_rng(5)
    memory = random.normal(size=(sequences, 2, 4, 6))  # 2 units, 4 slots, width 6

    assert_same_gradients(
        build_net("tf", position_wise_mlp_dim=16),
        build_net("torch", position_wise_mlp_dim=16),
        obs=random.normal(size=(sequences * steps, 3)).astype(np.float32),
        state=[memory, [3] * sequences],
        lengths=[steps] * sequences,
        is_training=True,
    )


# --- initial weights ------------------------------------------------------------------------------


@pytest.fixture(params=[TorchNet, TFNet], ids=["torch", "tf"])
def initial_weights(request):
    """Weights of a new net: 4 heads of 16, width 32, and a gate bias of 1.5."""
    torch.manual_seed(0)
    tf.random.set_seed(0)
    obs_space = spaces.Box(-1, 1, (9,))
    sizes = {"attention_dim": 32, "num_heads": 4, "head_dim": 16, "init_gru_gate_bias": 1.5}
    return request.param(obs_space, spaces.Discrete(2), 2, {}, "net", **sizes).get_weights()


def assert_xavier_uniform(matrix):
    """Check that a matrix [outputs, inputs] is uniform, with the bound for its shape."""
    outputs, inputs = matrix.shape
    bound = np.sqrt(6 / (outputs + inputs))
    assert stats.kstest(matrix.ravel(), stats.uniform(-bound, 2 * bound).cdf).pvalue > 1e-4
    assert 0.8 * bound < np.abs(matrix).max() <= bound * 1.0001


def test_initial_biases_of_layers_are_zero(initial_weights):
    np.testing.assert_array_equal(initial_weights["transformer.input.bias"], 0)
    np.testing.assert_array_equal(initial_weights["transformer.units.0.mlp.layers.0.bias"], 0)
    np.testing.assert_array_equal(initial_weights["outputs.logits.bias"], 0)


def test_initial_normalizations_are_the_identity(initial_weights):
    for norm in ("transformer.units.0.norm", "transformer.units.0.attention.norm"):
        np.testing.assert_array_equal(initial_weights[f"{norm}.weight"], 1)
        np.testing.assert_array_equal(initial_weights[f"{norm}.bias"], 0)


def test_initial_bias_of_gates_is_the_argument(initial_weights):
    for gate_name in ("attention_gate", "mlp_gate"):
        bias = initial_weights[f"transformer.units.0.{gate_name}.bias"]
        np.testing.assert_array_equal(bias, 1.5)


def test_initial_matrices_of_gates_are_xavier_uniform(initial_weights):
    matrix = initial_weights["transformer.units.0.mlp_gate.w"]

    # The matrices of the three parts of a gate are drawn one by one.
    for part in np.split(matrix, 3):
        assert_xavier_uniform(part)


@pytest.mark.parametrize(
    "name",
    [
        "input.weight",
        "units.0.attention.query",
        "units.0.attention.key",
        "units.0.attention.value",
        "units.0.attention.position",
        "units.0.attention.output",
        "units.0.attention.content_bias",
        "units.0.attention.position_bias",
        "units.0.mlp.layers.0.weight",
        "units.0.mlp.layers.1.weight",
        "units.0.mlp_gate.u_candidate",
    ],
)
def test_initial_matrices_are_xavier_uniform(initial_weights, name):
    assert_xavier_uniform(initial_weights[f"transformer.{name}"])


def test_initial_output_layers_have_rows_of_norm_one_hundredth(initial_weights):
    for name in ("outputs.logits.weight", "outputs.value.weight"):
        norms = np.linalg.norm(initial_weights[name], axis=1)
        np.testing.assert_allclose(norms, 0.01, rtol=1e-5)


# --- distances ------------------------------------------------------------------------------------


def test_distances_are_encoded_with_the_sinusoids_of_the_paper():
    table = distances(3, 4)  # up to 3 steps ago, width 4

    assert table.shape == (4, 4)  # 0 to 3 steps ago
    assert table.dtype == np.float32
    np.testing.assert_array_equal(table[-1], [0, 0, 1, 1])  # the step itself
    expected = [np.sin(3), np.sin(0.03), np.cos(3), np.cos(0.03)]
    np.testing.assert_allclose(table[0], expected, rtol=1e-6)


def test_distances_may_have_an_odd_width():
    assert distances(3, 5).shape == (4, 5)


def test_slots_are_those_of_the_longer_window():
    config = AttentionConfig(attention_memory_inference=3, attention_memory_training=7)

    assert config.slots == 7
