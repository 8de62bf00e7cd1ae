"""The transformer against NumPy by hand, and between the frameworks."""

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

#: Sizes, length of the sequences, steps in the memory before; widths odd and even, windows longer
#: and shorter than T.
CASES = {
    "one unit, one head": ({"num_transformer_units": 1, "num_heads": 1}, 3, 0),
    "two units, two heads": ({}, 6, 2),
    "three units, odd width": (
        {"num_transformer_units": 3, "attention_dim": 7, "head_dim": 4},
        3,
        4,
    ),
    "four heads of one": ({"num_heads": 4, "head_dim": 1}, 9, 4),
    "one step": ({}, 1, 3),
    "one step, one head, full": ({"num_heads": 1}, 1, 4),
    "one step at the start": ({"attention_dim": 5}, 1, 0),
    "longer than the window": (
        {"num_transformer_units": 1, "memory_inference": 2, "memory_training": 2},
        11,
        1,
    ),
    "sees less than it keeps": ({"memory_inference": 2, "memory_training": 5}, 4, 5),
    "one step, sees less than it keeps": ({"memory_inference": 2, "memory_training": 5}, 1, 3),
    "no memory": ({"memory_inference": 0, "memory_training": 0}, 4, 0),
    "one step, no memory": ({"memory_inference": 0, "memory_training": 0}, 1, 0),
}
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def memory_of(model, held, sequences, rng):
    """Return a state in which each sequence remembers `held` steps, and those steps."""
    units, slots, dim = model.get_initial_state()[0].shape
    memory = np.zeros((sequences, units, slots, dim), np.float32)
    past = rng.normal(size=(sequences, units, held, dim)).astype(np.float32)
    memory[:, :, slots - held :] = past
    return [memory, np.full(sequences, held, np.float32)], past


def expected_of(model, by_hand, x, past, training=False):
    """Return outputs, values and kept inputs of sequences, by hand."""
    weights, sizes = model.get_weights(), model.transformer.sizes
    logits, values, kept = [], [], []
    for rows, before in zip(x, past, strict=True):
        found, after = by_hand(
            weights, rows, before, sizes.window(training), sizes.slots, sizes.attention_num_heads
        )
        logits.append(found @ weights["outputs.logits.weight"].T + weights["outputs.logits.bias"])
        values.append(found @ weights["outputs.value.weight"][0] + weights["outputs.value.bias"])
        kept.append(after)
    return np.array(logits), np.array(values), kept


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_equations(framework, case, build, run, by_hand):
    sizes, steps, held = case
    model, rng = build(framework, **sizes), np.random.default_rng(7)
    x = rng.normal(size=(3, steps, 3)).astype(np.float32)
    state, past = memory_of(model, held, 3, rng)
    for training in (False, True):
        found = run(model, x, state, training=training)
        logits, values, kept = expected_of(model, by_hand, x, past, training)
        np.testing.assert_allclose(found.output, logits, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found.value, values, rtol=1e-5, atol=1e-5)
        memory, count = found.state
        slots = memory.shape[2]
        np.testing.assert_array_equal(count, min(slots, held + steps))
        for row, parts in zip(memory, kept, strict=True):
            for one, other in zip(row, parts, strict=True):
                np.testing.assert_allclose(one[slots - len(other) :], other, rtol=1e-5, atol=1e-5)
                np.testing.assert_array_equal(one[: slots - len(other)], 0)


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
def test_the_reference_by_hand_sees_every_weight_of_the_attention(name, build, run, by_hand):
    model, rng = build("torch"), np.random.default_rng(1)
    x = rng.normal(size=(1, 4, 3)).astype(np.float32)
    state, past = memory_of(model, 3, 1, rng)
    found = run(model, x, state).output
    weights = model.get_weights()
    weights[f"transformer.units.0.attention.{name}"] += 0.3 * rng.normal(
        size=weights[f"transformer.units.0.attention.{name}"].shape
    ).astype(np.float32)
    model.set_weights(weights)
    assert not np.allclose(found, expected_of(model, by_hand, x, past)[0], atol=1e-4)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_weights_copied_across_give_the_same(case, build, run):
    sizes, steps, held = case
    first, second = build("torch", 1, **sizes), build("tf", 2, **sizes)
    weights, others = first.get_weights(), second.get_weights()
    assert {n: a.shape for n, a in weights.items()} == {n: a.shape for n, a in others.items()}
    assert (
        list(first.variables(as_dict=True)) == list(second.variables(as_dict=True)) == list(weights)
    )
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, steps, 3)).astype(np.float32)
    state, _ = memory_of(first, held, 2, rng)
    second.set_weights(weights)
    forth = run(first, x, state), run(second, x, state)
    first.set_weights(others)
    second.set_weights(others)
    back = run(first, x, state), run(second, x, state)
    for one, other in (forth, back):
        np.testing.assert_allclose(one.output, other.output, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(one.value, other.value, rtol=1e-5, atol=1e-5)
        for part, its in zip(one.state, other.state, strict=True):
            np.testing.assert_allclose(part, its, rtol=1e-5, atol=1e-5)
    assert not np.allclose(forth[0].output, back[0].output)


@pytest.mark.parametrize("steps", [1, 5])
def test_gradients_reach_every_parameter_and_are_the_same(steps, build):
    first, second = (build(name, position_wise_mlp_dim=16) for name in ("torch", "tf"))
    count = 12  # a ReLU that no row passes has no gradient
    second.set_weights(first.get_weights())
    rng = np.random.default_rng(5)
    x = rng.normal(size=(count * steps, 3)).astype(np.float32)
    (memory, held), _ = memory_of(first, 3, count, rng)
    a = rng.normal(size=(len(x), 4)).astype(np.float32)
    b = rng.normal(size=len(x)).astype(np.float32)
    given = {"obs": torch.from_numpy(x), "is_training": True}
    output, _ = first(
        given, [torch.from_numpy(memory), torch.from_numpy(held)], torch.tensor([steps] * count)
    )
    loss = (output * torch.from_numpy(a)).sum() + (
        first.value_function() * torch.from_numpy(b)
    ).sum()
    parameters = first.trainable_variables(as_dict=True)
    found = torch.autograd.grad(loss, list(parameters.values()))
    variables = second.trainable_variables(as_dict=True)
    with tf.GradientTape() as tape:
        output, _ = second(
            {"obs": tf.constant(x), "is_training": True},
            [memory, held],
            tf.constant([steps] * count),
        )
        loss = tf.reduce_sum(output * a) + tf.reduce_sum(second.value_function() * b)
    others = tape.gradient(loss, list(variables.values()))
    plain = ("bias", "norm.weight")
    for name, one, other in zip(parameters, found, others, strict=True):
        assert one.abs().sum() > 0, name
        other = other.numpy() if name.endswith(plain) else other.numpy().T
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_a_fresh_net(cls):
    torch.manual_seed(0)
    tf.random.set_seed(0)
    sizes = {"attention_dim": 32, "num_heads": 4, "head_dim": 16, "init_gru_gate_bias": 1.5}
    weights = cls(spaces.Box(-1, 1, (9,)), spaces.Discrete(2), 2, {}, "net", **sizes).get_weights()
    for name, array in weights.items():
        if name.endswith("gate.bias"):
            np.testing.assert_array_equal(array, 1.5, err_msg=name)
        elif name.endswith(("content_bias", "position_bias")):
            assert_uniform(array, 4 + 16)
        elif name.endswith(("bias", "norm.weight")):
            np.testing.assert_array_equal(array, float(name.endswith("norm.weight")), err_msg=name)
        elif name.endswith(("gate.w", "gate.u")):
            for block in np.split(array, len(array) // 32):
                assert_uniform(block, 32 + 32)
        elif not name.startswith("outputs"):
            assert_uniform(array, sum(array.shape))
        else:
            np.testing.assert_allclose(np.linalg.norm(array, axis=1), 0.01, rtol=1e-5, err_msg=name)


def assert_uniform(array, fans):
    bound = np.sqrt(6 / fans)
    assert stats.kstest(array.ravel(), stats.uniform(-bound, 2 * bound).cdf).pvalue > 1e-4
    assert np.abs(array).max() <= bound * 1.0001
    assert np.abs(array).max() > 0.8 * bound


def test_distances_are_the_paper_s_sinusoids():
    table = distances(3, 4)
    assert table.shape == (4, 4)
    assert table.dtype == np.float32
    np.testing.assert_array_equal(table[-1], [0, 0, 1, 1])  # the step itself
    np.testing.assert_allclose(
        table[0], [np.sin(3), np.sin(0.03), np.cos(3), np.cos(0.03)], rtol=1e-6
    )
    assert distances(3, 5).shape == (4, 5)
    assert AttentionConfig(attention_memory_inference=3, attention_memory_training=7).slots == 7
