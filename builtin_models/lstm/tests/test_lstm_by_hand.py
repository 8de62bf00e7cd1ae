"""The LSTM against NumPy by hand, against torch.nn.LSTM, and the two frameworks
against each other.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from scipy.special import expit

RANDOM = np.random.default_rng(0)
S, T, C = 4, 6, 5
LENGTHS = np.array([6, 2, 1, 4], np.int32)
X = RANDOM.normal(size=(S, T, 3)).astype(np.float32)
PREV_ACTIONS = RANDOM.normal(size=(S, T, 4)).astype(np.float32)
PREV_REWARDS = RANDOM.normal(size=(S, T)).astype(np.float32)
STATE = [RANDOM.normal(size=(S, C)).astype(np.float32) for _ in range(2)]
REAL = np.arange(T) < LENGTHS[:, None]
PASTS = [(False, False), (True, False), (False, True), (True, True)]


def inputs(action, reward, x=X):
    rows = {"obs": x.reshape(-1, 3)}
    if action:
        rows["past_actions"] = PREV_ACTIONS[:, : x.shape[1]].reshape(-1, 4)
    if reward:
        rows["past_rewards"] = PREV_REWARDS[:, : x.shape[1]].reshape(-1)
    return rows


def past(action, reward):
    return {"lstm_use_prev_action": action, "lstm_use_prev_reward": reward}


def by_hand(weights, action, reward, lengths=LENGTHS):
    """Outputs, values and states at the ends, sequence by sequence and step by step, in float64."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    outputs, values, ends = np.full((S, T, 4), np.nan), np.full((S, T), np.nan), []
    for s in range(S):
        h, c = (part[s].astype(np.float64) for part in STATE)
        for t in range(lengths[s]):
            features = np.tanh(
                w["trunk.hidden.layers.0.weight"] @ X[s, t] + w["trunk.hidden.layers.0.bias"]
            )
            parts = [
                features,
                *([PREV_ACTIONS[s, t]] if action else []),
                *([[PREV_REWARDS[s, t]]] if reward else []),
            ]
            x = np.concatenate(parts)
            net = w["cell.weight_ih"] @ x + w["cell.weight_hh"] @ h + w["cell.bias"]
            i, f, o = expit(net[:C]), expit(net[C : 2 * C]), expit(net[3 * C :])
            c = f * c + i * np.tanh(net[2 * C : 3 * C])
            h = o * np.tanh(c)
            outputs[s, t] = w["outputs.logits.weight"] @ h + w["outputs.logits.bias"]
            values[s, t] = (w["outputs.value.weight"] @ h + w["outputs.value.bias"])[0]
        ends.append((h, c))
    return outputs, values, [np.stack(part) for part in zip(*ends, strict=True)]


@pytest.mark.grid
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize(("action", "reward"), PASTS)
@pytest.mark.parametrize("lengths", [LENGTHS, np.full(S, T, np.int32)], ids=["mixed", "full"])
def test_it_computes_the_equations(framework, lstm, action, reward, lengths, time_major):
    model = lstm.model(framework, {**past(action, reward), "_time_major": time_major})
    outputs, values, state = lstm.run(model, inputs(action, reward), STATE, lengths)
    expected, expected_values, ends = by_hand(model.get_weights(), action, reward, lengths)
    real = np.arange(T) < lengths[:, None]
    lstm.close(outputs.reshape(S, T, 4)[real], expected[real])
    lstm.close(values.reshape(S, T)[real], expected_values[real])
    for found, end in zip(state, ends, strict=True):
        lstm.close(found, end)


def test_the_hand_written_reference_can_fail(lstm):
    model = lstm.model("torch")
    outputs, _, _ = lstm.run(model, inputs(False, False), STATE, LENGTHS)
    weights = model.get_weights()
    weights["cell.bias"] = np.roll(weights["cell.bias"], C)  # another order of gates
    assert not np.allclose(
        outputs.reshape(S, T, 4)[REAL], by_hand(weights, False, False)[0][REAL], atol=1e-3
    )


def test_it_is_pytorchs_own_lstm(framework, lstm):
    model = lstm.model(framework, {"fcnet_hiddens": []})
    weights = model.get_weights()
    own = torch.nn.LSTM(3, C, batch_first=True)
    with torch.no_grad():
        own.weight_ih_l0.copy_(torch.from_numpy(weights["cell.weight_ih"]))
        own.weight_hh_l0.copy_(torch.from_numpy(weights["cell.weight_hh"]))
        own.bias_ih_l0.copy_(torch.from_numpy(weights["cell.bias"]))
        own.bias_hh_l0.zero_()
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            torch.from_numpy(X),
            torch.from_numpy(LENGTHS).long(),
            batch_first=True,
            enforce_sorted=False,
        )
        packed, (h, c) = own(packed, tuple(torch.from_numpy(part)[None] for part in STATE))
        features, _ = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    logits = features.numpy() @ weights["outputs.logits.weight"].T + weights["outputs.logits.bias"]
    outputs, _, state = lstm.run(model, inputs(False, False), STATE, LENGTHS)
    lstm.close(outputs.reshape(S, T, 4)[REAL], logits[REAL])
    lstm.close(state[0], h[0])
    lstm.close(state[1], c[0])


@pytest.mark.parametrize(("action", "reward"), PASTS[::3])
@pytest.mark.parametrize("num_outputs", [4, None])
def test_weights_copied_across_and_back_give_the_same(lstm, action, reward, num_outputs):
    first, second = (
        lstm.model(f, past(action, reward), num_outputs=num_outputs, seed=i)
        for i, f in enumerate(("torch", "tf"))
    )
    rows = inputs(action, reward)
    shapes = {name: w.shape for name, w in first.get_weights().items()}
    assert shapes == {name: w.shape for name, w in second.get_weights().items()}
    assert list(shapes) == list(second.get_weights()) == list(first.variables(as_dict=True))
    width = 7 + 4 * action + reward
    assert [shapes[f"cell.{n}"] for n in ("weight_ih", "weight_hh", "bias")] == [
        (20, width),
        (20, 5),
        (20,),
    ]
    for source, target in ((first, second), (second, first)):
        lstm.randomise(source, 3)
        target.set_weights(source.get_weights())
        one, other = lstm.run(source, rows, STATE, LENGTHS), lstm.run(target, rows, STATE, LENGTHS)
        mask = REAL.reshape(-1)
        lstm.close(one[0][mask], other[0][mask])
        if num_outputs is not None:
            lstm.close(one[1][mask], other[1][mask])
        for a, b in zip(one[2], other[2], strict=True):
            lstm.close(a, b)


def gradients(model, rows, lengths, mask):
    """Gradients of a weighted sum of the outputs and values at real places, by canonical name."""
    weights = np.random.default_rng(5).normal(size=(S, T, 5)).astype(np.float32)[:, : mask.shape[1]]
    weights = (weights * mask[..., None]).reshape(-1, 5)
    convert = torch.from_numpy if model.framework == "torch" else tf.constant
    given = {name: convert(x) for name, x in rows.items()}
    state = [convert(part) for part in STATE]
    variables = model.trainable_variables(as_dict=True)
    if model.framework == "torch":
        outputs, _ = model(given, state, convert(lengths))
        loss = (outputs * torch.from_numpy(weights[:, :4])).sum()
        loss = loss + (model.value_function() * torch.from_numpy(weights[:, 4])).sum()
        found = torch.autograd.grad(loss, list(variables.values()))
        return {name: g.numpy() for name, g in zip(variables, found, strict=True)}
    with tf.GradientTape() as tape:
        outputs, _ = model(given, state, convert(lengths))
        loss = tf.reduce_sum(outputs * weights[:, :4]) + tf.reduce_sum(
            model.value_function() * weights[:, 4]
        )
    found = tape.gradient(loss, list(variables.values()))
    return {
        name: g.numpy().T if g.shape.rank == 2 else g.numpy()
        for name, g in zip(variables, found, strict=True)
    }


def test_gradients_reach_every_parameter_and_are_the_same(lstm):
    first, second = (lstm.model(f, past(True, True)) for f in ("torch", "tf"))
    rows = inputs(True, True)
    one, other = (gradients(model, rows, LENGTHS, REAL) for model in (first, second))
    assert list(one) == list(other) == list(first.get_weights())
    for name in one:
        assert np.abs(one[name]).sum() > 0, name
        lstm.close(one[name], other[name], 1e-4)


def test_gradients_do_not_depend_on_the_padding(framework, lstm):
    model = lstm.model(framework, past(True, True))
    plain = gradients(model, inputs(True, True), LENGTHS, REAL)
    spoilt = {name: x.copy() for name, x in inputs(True, True).items()}
    for x in spoilt.values():
        x[~REAL.reshape(-1)] = 1e4
    # One more step of padding for all.
    longer = {
        name: np.concatenate([x.reshape(S, T, -1), np.ones((S, 1, x.size // S // T))], axis=1)
        .reshape(S * (T + 1), *x.shape[1:])
        .astype(np.float32)
        for name, x in spoilt.items()
    }
    for name, found in gradients(model, spoilt, LENGTHS, REAL).items():
        lstm.close(found, plain[name])
    weights_fit = {
        name: x.reshape(S, T + 1, *x.shape[1:])[:, :T].reshape(-1, *x.shape[1:])
        for name, x in longer.items()
    }
    for name in spoilt:
        np.testing.assert_array_equal(weights_fit[name], spoilt[name])
    one, other = (lstm.run(model, rows, STATE, LENGTHS) for rows in (spoilt, longer))
    assert np.isfinite(one[0]).all()
    assert np.isfinite(one[1]).all()
    lstm.close(other[0].reshape(S, T + 1, 4)[:, :T][REAL], one[0].reshape(S, T, 4)[REAL])


def test_traced_it_is_the_same_for_any_number_of_sequences_and_steps(lstm):
    model, reference = (lstm.model(f) for f in ("tf", "torch"))
    traces = []

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 3]),
            tf.TensorSpec([None, C]),
            tf.TensorSpec([None, C]),
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([None, 5]),
        ],
        autograph=False,
    )
    def traced(x, h, c, lengths, weights):
        traces.append(1)
        with tf.GradientTape() as tape:
            outputs, state = model({"obs": x}, [h, c], lengths)
            values = model.value_function()
            loss = tf.reduce_sum(outputs * weights[:, :4]) + tf.reduce_sum(values * weights[:, 4])
        return outputs, values, state, tape.gradient(loss, model.trainable_variables())

    for rows, steps in ((S, T), (S, 1), (1, T), (2, 3)):
        lengths = np.minimum(LENGTHS[:rows], steps)
        mask = np.arange(steps) < lengths[:, None]
        x = np.ascontiguousarray(X[:rows, :steps]).reshape(-1, 3)
        state = [part[:rows] for part in STATE]
        weights = np.random.default_rng(5).normal(size=(rows * steps, 5)).astype(
            np.float32
        ) * mask.reshape(-1, 1)
        outputs, values, ends, found = traced(x, *state, lengths, weights)
        expected = lstm.run(reference, {"obs": x}, state, lengths)
        lstm.close(outputs.numpy()[mask.reshape(-1)], expected[0][mask.reshape(-1)])
        lstm.close(values.numpy()[mask.reshape(-1)], expected[1][mask.reshape(-1)])
        for one, other in zip(ends, expected[2], strict=True):
            lstm.close(one, other)
        parameters = reference.trainable_variables()
        loss = (reference.last_output() * torch.from_numpy(weights[:, :4])).sum()
        loss = loss + (reference.value_function() * torch.from_numpy(weights[:, 4])).sum()
        for one, other in zip(found, torch.autograd.grad(loss, parameters), strict=True):
            lstm.close(one.numpy().T if one.shape.rank == 2 else one.numpy(), other.numpy(), 1e-4)
    assert len(traces) == 1
