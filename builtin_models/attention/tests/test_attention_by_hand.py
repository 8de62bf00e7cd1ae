"""The transformer's results, gradients and initial weights, against NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from scipy import stats

from rlcatalog_attention.config import AttentionConfig, distances
from rlcatalog_tf import GTrXLNet as TFNet
from rlcatalog_torch import GTrXLNet as TorchNet

both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])

#: Sizes, length of the sequences, and number of steps in the memory before.
CASES = [
    pytest.param({"num_transformer_units": 1, "num_heads": 1}, 3, 0, id="one-unit-one-head"),
    pytest.param({}, 6, 2, id="two-units-two-heads"),
    pytest.param(
        {"num_transformer_units": 3, "attention_dim": 7, "head_dim": 4},
        3,
        4,
        id="three-units-odd-width",
    ),
    pytest.param({"num_heads": 4, "head_dim": 1}, 9, 4, id="four-heads-of-one"),
    pytest.param({}, 1, 3, id="one-step"),
    pytest.param({"num_heads": 1}, 1, 4, id="one-step-one-head-full-memory"),
    pytest.param({"attention_dim": 5}, 1, 0, id="one-step-at-the-start"),
    pytest.param(
        {"num_transformer_units": 1, "memory_inference": 2, "memory_training": 2},
        11,
        1,
        id="longer-than-the-window",
    ),
    pytest.param({"memory_inference": 2, "memory_training": 5}, 4, 5, id="sees-less-than-it-keeps"),
    pytest.param(
        {"memory_inference": 2, "memory_training": 5}, 1, 3, id="one-step-sees-less-than-it-keeps"
    ),
    pytest.param({"memory_inference": 0, "memory_training": 0}, 4, 0, id="no-memory"),
    pytest.param({"memory_inference": 0, "memory_training": 0}, 1, 0, id="one-step-no-memory"),
]


def make_state(model, used, sequences, random):
    """Return a state in which each sequence remembers `used` steps, and these steps."""
    units, slots, width = model.get_initial_state()[0].shape
    memory = np.zeros((sequences, units, slots, width), np.float32)
    past = random.normal(size=(sequences, units, used, width)).astype(np.float32)
    memory[:, :, slots - used :] = past
    return [memory, np.full(sequences, used, np.float32)], past


@pytest.fixture
def compute_net_by_hand(compute_by_hand):
    """Compute outputs, values and the new memory of sequences, with NumPy."""

    def compute(model, x, past, training=False):
        weights = model.get_weights()
        sizes = model.transformer.sizes
        outputs = []
        values = []
        memories = []
        for rows, past_inputs in zip(x, past, strict=True):
            features, memory = compute_by_hand(
                weights,
                rows,
                past_inputs,
                sizes.window(training),
                sizes.slots,
                sizes.attention_num_heads,
            )
            outputs.append(
                features @ weights["outputs.logits.weight"].T + weights["outputs.logits.bias"]
            )
            values.append(
                features @ weights["outputs.value.weight"][0] + weights["outputs.value.bias"]
            )
            memories.append(memory)
        return np.array(outputs), np.array(values), memories

    return compute


def assert_close(result, expected):
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


# --- NumPy ----------------------------------------------------------------------------------------


@pytest.mark.grid
@both_frameworks
@pytest.mark.parametrize("training", [False, True], ids=["acts", "trains"])
@pytest.mark.parametrize(("sizes", "steps", "used"), CASES)
def test_net_matches_numpy(
    framework, training, sizes, steps, used, build_net, run_net, compute_net_by_hand
):
    model = build_net(framework, **sizes)
    random = np.random.default_rng(7)
    x = random.normal(size=(3, steps, 3)).astype(np.float32)
    state, past = make_state(model, used, sequences=3, random=random)

    results = run_net(model, x, state, training=training)

    outputs, values, memories = compute_net_by_hand(model, x, past, training)
    assert_close(results.output, outputs)
    assert_close(results.value, values)
    memory, new_used = results.state
    slots = memory.shape[2]
    np.testing.assert_array_equal(new_used, min(slots, used + steps))
    for sequence in range(3):
        for unit, expected in enumerate(memories[sequence]):
            # The used slots are the last.
            first_used = slots - len(expected)
            assert_close(memory[sequence, unit, first_used:], expected)
            np.testing.assert_array_equal(memory[sequence, unit, :first_used], 0)


@pytest.mark.parametrize(
    "name",
    [
        "content_bias",
        "position_bias",
        "position",
        "query",
        "key",
        "value",
        "output",
        "norm.weight",
        "norm.bias",
    ],
)
def test_comparison_with_numpy_sees_every_attention_weight(
    name, build_net, run_net, compute_net_by_hand
):
    model = build_net("torch")
    random = np.random.default_rng(1)
    x = random.normal(size=(1, 4, 3)).astype(np.float32)
    state, past = make_state(model, used=3, sequences=1, random=random)
    before = run_net(model, x, state).output

    weights = model.get_weights()
    weight = weights[f"transformer.units.0.attention.{name}"]
    weight += 0.3 * random.normal(size=weight.shape).astype(np.float32)
    model.set_weights(weights)

    outputs, _, _ = compute_net_by_hand(model, x, past)
    assert not np.allclose(before, outputs, atol=1e-4)


# --- PyTorch against TensorFlow -------------------------------------------------------------------


@pytest.mark.parametrize(("sizes", "steps", "used"), CASES)
def test_frameworks_have_the_same_weights_in_one_order(sizes, steps, used, build_net):
    torch_net = build_net("torch", **sizes)
    tf_net = build_net("tf", **sizes)

    torch_shapes = {name: array.shape for name, array in torch_net.get_weights().items()}
    tf_shapes = {name: array.shape for name, array in tf_net.get_weights().items()}

    assert torch_shapes == tf_shapes
    assert list(torch_net.variables(as_dict=True)) == list(torch_shapes)
    assert list(tf_net.variables(as_dict=True)) == list(torch_shapes)


@pytest.mark.parametrize(("sizes", "steps", "used"), CASES)
def test_frameworks_agree_after_weights_are_copied(sizes, steps, used, build_net, run_net):
    torch_net = build_net("torch", seed=1, **sizes)
    tf_net = build_net("tf", seed=2, **sizes)
    torch_weights = torch_net.get_weights()
    tf_weights = tf_net.get_weights()
    random = np.random.default_rng(3)
    x = random.normal(size=(2, steps, 3)).astype(np.float32)
    state, _ = make_state(torch_net, used, sequences=2, random=random)
    torch_results = run_net(torch_net, x, state)
    tf_results = run_net(tf_net, x, state)
    assert not np.allclose(torch_results.output, tf_results.output)

    tf_net.set_weights(torch_weights)
    torch_net.set_weights(tf_weights)

    assert_same_results(run_net(tf_net, x, state), torch_results)
    assert_same_results(run_net(torch_net, x, state), tf_results)


def assert_same_results(results, expected):
    assert_close(results.output, expected.output)
    assert_close(results.value, expected.value)
    for part, expected_part in zip(results.state, expected.state, strict=True):
        assert_close(part, expected_part)


def compute_torch_gradients(model, x, state, lengths, output_factors, value_factors):
    """Return the gradients of the weighted sum of outputs and values, by name."""
    inputs = {"obs": torch.from_numpy(x), "is_training": True}
    output, _ = model(inputs, [torch.from_numpy(part) for part in state], torch.tensor(lengths))
    loss = (output * torch.from_numpy(output_factors)).sum()
    loss = loss + (model.value_function() * torch.from_numpy(value_factors)).sum()
    parameters = model.trainable_variables(as_dict=True)
    gradients = torch.autograd.grad(loss, list(parameters.values()))
    return {name: gradient.numpy() for name, gradient in zip(parameters, gradients, strict=True)}


def compute_tf_gradients(model, x, state, lengths, output_factors, value_factors):
    """Return the same in TensorFlow, with matrices as [outputs, inputs]."""
    with tf.GradientTape() as tape:
        inputs = {"obs": tf.constant(x), "is_training": True}
        output, _ = model(inputs, state, tf.constant(lengths))
        loss = tf.reduce_sum(output * output_factors)
        loss += tf.reduce_sum(model.value_function() * value_factors)
    variables = model.trainable_variables(as_dict=True)
    gradients = tape.gradient(loss, list(variables.values()))
    arrays = {}
    for name, gradient in zip(variables, gradients, strict=True):
        is_vector = name.endswith(("bias", "norm.weight"))
        arrays[name] = gradient.numpy() if is_vector else gradient.numpy().T
    return arrays


@pytest.mark.parametrize("steps", [1, 5])
def test_frameworks_have_the_same_gradients(steps, build_net):
    torch_net = build_net("torch", position_wise_mlp_dim=16)
    tf_net = build_net("tf", position_wise_mlp_dim=16)
    tf_net.set_weights(torch_net.get_weights())
    sequences = 12  # with few rows, a ReLU may let none through, and has no gradient
    random = np.random.default_rng(5)
    x = random.normal(size=(sequences * steps, 3)).astype(np.float32)
    state, _ = make_state(torch_net, 3, sequences, random)
    output_factors = random.normal(size=(len(x), 4)).astype(np.float32)
    value_factors = random.normal(size=len(x)).astype(np.float32)

    arguments = (x, state, [steps] * sequences, output_factors, value_factors)
    torch_gradients = compute_torch_gradients(torch_net, *arguments)
    tf_gradients = compute_tf_gradients(tf_net, *arguments)

    assert list(torch_gradients) == list(tf_gradients)
    for name, gradient in torch_gradients.items():
        assert np.abs(gradient).sum() > 0, name
        np.testing.assert_allclose(gradient, tf_gradients[name], rtol=1e-3, atol=1e-4, err_msg=name)


# --- initial weights ------------------------------------------------------------------------------


@pytest.fixture(params=[TorchNet, TFNet])
def initial_weights(request):
    """Weights of a new net: 4 heads of 16, width 32, and a gate bias of 1.5."""
    torch.manual_seed(0)
    tf.random.set_seed(0)
    net = request.param(
        spaces.Box(-1, 1, (9,)),
        spaces.Discrete(2),
        2,
        {},
        "net",
        attention_dim=32,
        num_heads=4,
        head_dim=16,
        init_gru_gate_bias=1.5,
    )
    return net.get_weights()


def assert_xavier_uniform(array, fan_sum):
    """Check that the array is uniform with a bound for so many inputs plus outputs."""
    bound = np.sqrt(6 / fan_sum)
    assert stats.kstest(array.ravel(), stats.uniform(-bound, 2 * bound).cdf).pvalue > 1e-4
    assert np.abs(array).max() <= bound * 1.0001
    assert np.abs(array).max() > 0.8 * bound


def is_matrix(name):
    """Return whether a weight of this name is a matrix of the transformer."""
    return not name.startswith("outputs") and not name.endswith(("bias", "norm.weight"))


def test_initial_biases_are_zero_and_norms_one(initial_weights):
    for name, array in initial_weights.items():
        if name.endswith("norm.weight"):
            np.testing.assert_array_equal(array, 1, err_msg=name)
        elif name.endswith("bias") and array.ndim == 1 and not name.endswith("gate.bias"):
            np.testing.assert_array_equal(array, 0, err_msg=name)


def test_initial_bias_of_gates_is_the_argument(initial_weights):
    biases = [array for name, array in initial_weights.items() if name.endswith("gate.bias")]

    assert len(biases) == 2  # one unit: after the attention and after the MLP
    for bias in biases:
        np.testing.assert_array_equal(bias, 1.5)


def test_initial_biases_of_the_attention_are_xavier_uniform(initial_weights):
    for name in ("content_bias", "position_bias"):
        bias = initial_weights[f"transformer.units.0.attention.{name}"]
        assert_xavier_uniform(bias, 4 + 16)  # heads, width of a head


def test_initial_matrices_of_gates_are_xavier_uniform(initial_weights):
    for name, array in initial_weights.items():
        if name.endswith(("gate.w", "gate.u")):
            # Each gate's matrix is drawn by itself.
            for block in np.split(array, len(array) // 32):
                assert_xavier_uniform(block, 32 + 32)


def test_initial_matrices_of_layers_are_xavier_uniform(initial_weights):
    for name, array in initial_weights.items():
        if is_matrix(name) and not name.endswith(("gate.w", "gate.u")):
            assert_xavier_uniform(array, sum(array.shape))


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
