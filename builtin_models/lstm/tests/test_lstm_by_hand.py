"""The LSTM's results and gradients against NumPy, `torch.nn.LSTM`, and the other framework."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from scipy.special import expit

RANDOM = np.random.default_rng(0)
#: Four sequences of up to six steps.
LENGTHS = np.array([6, 2, 1, 4], np.int32)
SEQUENCES = RANDOM.normal(size=(4, 6, 3)).astype(np.float32)
PREV_ACTIONS = RANDOM.normal(size=(4, 6, 4)).astype(np.float32)
PREV_REWARDS = RANDOM.normal(size=(4, 6)).astype(np.float32)
#: State of 5 cells: output and cell state.
STATE = [RANDOM.normal(size=(4, 5)).astype(np.float32) for _ in range(2)]

NO_PAST = {}
PREV_ACTION = {"lstm_use_prev_action": True}
PREV_REWARD = {"lstm_use_prev_reward": True}
PREV_BOTH = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}


def make_inputs(config):
    """Return observations and what the config reads of the past, [sequences, steps, ...]."""
    inputs = {"obs": SEQUENCES}
    if config.get("lstm_use_prev_action"):
        inputs["past_actions"] = PREV_ACTIONS
    if config.get("lstm_use_prev_reward"):
        inputs["past_rewards"] = PREV_REWARDS
    return inputs


# --- NumPy ----------------------------------------------------------------------------------------


def compute_by_hand(weights, config, lengths):
    """Return outputs, values and the last state, computed step by step in float64."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    outputs = np.full((4, 6, 4), np.nan)
    values = np.full((4, 6), np.nan)
    state = np.zeros((2, 4, 5))
    for s in range(4):
        h = STATE[0][s].astype(np.float64)
        c = STATE[1][s].astype(np.float64)
        for t in range(lengths[s]):
            dense = (
                w["trunk.hidden.layers.0.weight"] @ SEQUENCES[s, t]
                + w["trunk.hidden.layers.0.bias"]
            )
            parts = [np.tanh(dense)]
            if config.get("lstm_use_prev_action"):
                parts.append(PREV_ACTIONS[s, t])
            if config.get("lstm_use_prev_reward"):
                parts.append([PREV_REWARDS[s, t]])
            x = np.concatenate(parts)
            gates = w["cell.weight_ih"] @ x + w["cell.weight_hh"] @ h + w["cell.bias"]
            i, f, g, o = np.split(gates, 4)
            c = expit(f) * c + expit(i) * np.tanh(g)
            h = expit(o) * np.tanh(c)
            outputs[s, t] = w["outputs.logits.weight"] @ h + w["outputs.logits.bias"]
            values[s, t] = (w["outputs.value.weight"] @ h + w["outputs.value.bias"])[0]
        state[:, s] = h, c
    return outputs, values, state


@pytest.mark.grid
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize(
    "past",
    [NO_PAST, PREV_ACTION, PREV_REWARD, PREV_BOTH],
    ids=["no-past", "prev-action", "prev-reward", "prev-both"],
)
@pytest.mark.parametrize(
    "lengths", [LENGTHS, np.full(4, 6, np.int32)], ids=["mixed-lengths", "full-lengths"]
)
def test_lstm_matches_numpy(
    framework, past, lengths, time_major, build_model, run_model, select_real_steps, assert_close
):
    model = build_model(framework, {**past, "_time_major": time_major})

    results = run_model(model, make_inputs(past), STATE, lengths)

    outputs, values, state = compute_by_hand(model.get_weights(), past, lengths)
    assert_close(select_real_steps(results.outputs, lengths), select_real_steps(outputs, lengths))
    assert_close(select_real_steps(results.values, lengths), select_real_steps(values, lengths))
    assert_close(results.state, state)


def test_comparison_with_numpy_sees_another_order_of_gates(
    build_model, run_model, select_real_steps
):
    model = build_model("torch")
    results = run_model(model, {"obs": SEQUENCES}, STATE, LENGTHS)

    weights = model.get_weights()
    weights["cell.bias"] = np.roll(weights["cell.bias"], 5)  # by one gate of 5 cells

    outputs, _, _ = compute_by_hand(weights, NO_PAST, LENGTHS)
    assert not np.allclose(
        select_real_steps(results.outputs, LENGTHS),
        select_real_steps(outputs, LENGTHS),
        atol=1e-3,
    )


# --- torch.nn.LSTM --------------------------------------------------------------------------------


def run_torch_lstm(weights):
    """Return features [sequences, steps, cells] and state of `torch.nn.LSTM`."""
    lstm = torch.nn.LSTM(input_size=3, hidden_size=5, batch_first=True)
    lengths = torch.from_numpy(LENGTHS).long()
    state = tuple(torch.from_numpy(part)[None] for part in STATE)
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(torch.from_numpy(weights["cell.weight_ih"]))
        lstm.weight_hh_l0.copy_(torch.from_numpy(weights["cell.weight_hh"]))
        lstm.bias_ih_l0.copy_(torch.from_numpy(weights["cell.bias"]))
        lstm.bias_hh_l0.zero_()
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            torch.from_numpy(SEQUENCES), lengths, batch_first=True, enforce_sorted=False
        )
        packed, (h, c) = lstm(packed, state)
        features, _ = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    return features.numpy(), h[0].numpy(), c[0].numpy()


def test_lstm_matches_torch_nn_lstm(
    framework, build_model, run_model, select_real_steps, assert_close
):
    model = build_model(framework, {"fcnet_hiddens": []})  # the LSTM reads the observation
    weights = model.get_weights()

    results = run_model(model, {"obs": SEQUENCES}, STATE, LENGTHS)

    features, h, c = run_torch_lstm(weights)
    logits = features @ weights["outputs.logits.weight"].T + weights["outputs.logits.bias"]
    assert_close(select_real_steps(results.outputs, LENGTHS), select_real_steps(logits, LENGTHS))
    assert_close(results.state[0], h)
    assert_close(results.state[1], c)


# --- PyTorch against TensorFlow -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("past", "width"),
    [
        pytest.param(NO_PAST, 7, id="no-past"),
        pytest.param(PREV_BOTH, 7 + 4 + 1, id="prev-both"),  # features, action and reward
    ],
)
@pytest.mark.parametrize("num_outputs", [4, None], ids=["model", "trunk"])
def test_frameworks_have_the_same_weights(past, width, num_outputs, build_model):
    torch_model = build_model("torch", past, num_outputs)
    tf_model = build_model("tf", past, num_outputs)

    shapes = {name: array.shape for name, array in torch_model.get_weights().items()}
    tf_shapes = {name: array.shape for name, array in tf_model.get_weights().items()}

    assert list(tf_shapes.items()) == list(shapes.items())
    assert list(torch_model.variables(as_dict=True)) == list(shapes)
    assert shapes["cell.weight_ih"] == (20, width)  # 4 gates of 5 cells
    assert shapes["cell.weight_hh"] == (20, 5)
    assert shapes["cell.bias"] == (20,)


@pytest.mark.parametrize(
    ("source_framework", "target_framework"),
    [pytest.param("torch", "tf", id="torch-to-tf"), pytest.param("tf", "torch", id="tf-to-torch")],
)
@pytest.mark.parametrize("past", [NO_PAST, PREV_BOTH], ids=["no-past", "prev-both"])
@pytest.mark.parametrize("num_outputs", [4, None], ids=["model", "trunk"])
def test_frameworks_agree_after_weights_are_copied(
    source_framework,
    target_framework,
    past,
    num_outputs,
    build_model,
    run_model,
    select_real_steps,
    assert_close,
):
    source = build_model(source_framework, past, num_outputs, seed=3)
    target = build_model(target_framework, past, num_outputs, seed=1)

    target.set_weights(source.get_weights())

    results = run_model(target, make_inputs(past), STATE, LENGTHS)
    expected = run_model(source, make_inputs(past), STATE, LENGTHS)
    assert_close(
        select_real_steps(results.outputs, LENGTHS), select_real_steps(expected.outputs, LENGTHS)
    )
    if num_outputs is not None:
        assert_close(
            select_real_steps(results.values, LENGTHS), select_real_steps(expected.values, LENGTHS)
        )
    assert_close(results.state, expected.state)


# --- gradients ------------------------------------------------------------------------------------


def draw_loss_factors(lengths, steps=6):
    """Return factors of 4 outputs and a value for each row; those of padded steps are 0."""
    factors = np.random.default_rng(5).normal(size=(len(lengths), steps, 5)).astype(np.float32)
    is_real = np.arange(steps) < lengths[:, None]
    return (factors * is_real[..., None]).reshape(-1, 5)


def compute_gradients(model, inputs):
    """Return the gradients of a weighted sum of outputs and values of real steps, by name."""
    factors = draw_loss_factors(LENGTHS)
    variables = model.trainable_variables(as_dict=True)
    rows = {}
    for name, array in inputs.items():
        rows[name] = array.reshape(24, *array.shape[2:])  # 4 sequences of 6 steps
    if model.framework == "torch":
        gradients = compute_torch_gradients(model, rows, STATE, LENGTHS, factors)
    else:
        gradients = compute_tf_gradients(model, rows, factors)
    return dict(zip(variables, gradients, strict=True))


def compute_torch_gradients(model, rows, state, lengths, factors):
    tensors = {name: torch.from_numpy(array) for name, array in rows.items()}
    outputs, _ = model(
        tensors, [torch.from_numpy(part) for part in state], torch.from_numpy(lengths)
    )
    loss = (outputs * torch.from_numpy(factors[:, :4])).sum()
    loss = loss + (model.value_function() * torch.from_numpy(factors[:, 4])).sum()
    gradients = torch.autograd.grad(loss, list(model.trainable_variables()))
    return [gradient.numpy() for gradient in gradients]


def compute_tf_gradients(model, rows, factors):
    tensors = {name: tf.constant(array) for name, array in rows.items()}
    with tf.GradientTape() as tape:
        outputs, _ = model(tensors, [tf.constant(part) for part in STATE], tf.constant(LENGTHS))
        loss = tf.reduce_sum(outputs * factors[:, :4])
        loss += tf.reduce_sum(model.value_function() * factors[:, 4])
    gradients = tape.gradient(loss, model.trainable_variables())
    return [in_torch_layout(gradient) for gradient in gradients]


def in_torch_layout(gradient):
    """Return TensorFlow's gradient of a matrix as [outputs, inputs]."""
    return gradient.numpy().T if gradient.shape.rank == 2 else gradient.numpy()


def test_frameworks_have_the_same_gradients(build_model, assert_close):
    torch_model = build_model("torch", PREV_BOTH)
    tf_model = build_model("tf", PREV_BOTH)

    torch_gradients = compute_gradients(torch_model, make_inputs(PREV_BOTH))
    tf_gradients = compute_gradients(tf_model, make_inputs(PREV_BOTH))

    assert list(torch_gradients) == list(torch_model.get_weights())
    assert list(tf_gradients) == list(torch_gradients)
    for name, gradient in torch_gradients.items():
        assert np.abs(gradient).sum() > 0, name
        assert_close(gradient, tf_gradients[name], tolerance=1e-4)


def spoil_padding(array, number=1e4):
    """Return the array with this number in all padded steps."""
    spoilt = array.copy()
    is_padded = np.arange(array.shape[1]) >= LENGTHS[:, None]
    spoilt[is_padded] = number
    return spoilt


def test_gradients_do_not_depend_on_the_padding(framework, build_model, assert_close):
    model = build_model(framework, PREV_BOTH)
    inputs = make_inputs(PREV_BOTH)
    spoilt = {name: spoil_padding(array) for name, array in inputs.items()}

    gradients = compute_gradients(model, spoilt)

    for name, expected in compute_gradients(model, inputs).items():
        assert_close(gradients[name], expected)


def test_outputs_do_not_depend_on_the_amount_of_padding(
    framework, build_model, run_model, select_real_steps, assert_close
):
    model = build_model(framework, PREV_BOTH)
    spoilt = {}
    longer = {}
    for name, array in make_inputs(PREV_BOTH).items():
        spoilt[name] = spoil_padding(array)
        another_step = np.ones_like(array[:, :1])
        longer[name] = np.concatenate([spoilt[name], another_step], axis=1)

    results = run_model(model, longer, STATE, LENGTHS)

    expected = run_model(model, spoilt, STATE, LENGTHS)
    assert np.isfinite(expected.outputs).all()
    assert np.isfinite(expected.values).all()
    assert_close(
        select_real_steps(results.outputs, LENGTHS), select_real_steps(expected.outputs, LENGTHS)
    )


# --- tf.function ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_traced(build_model):
    """Compute outputs, values, state and gradients in TensorFlow, in one `tf.function`."""
    model = build_model("tf", seed=0)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 3]),
            tf.TensorSpec([None, 5]),
            tf.TensorSpec([None, 5]),
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([None, 5]),
        ],
        autograph=False,
    )
    def run(x, h, c, lengths, factors):
        with tf.GradientTape() as tape:
            outputs, state = model({"obs": x}, [h, c], lengths)
            values = model.value_function()
            loss = tf.reduce_sum(outputs * factors[:, :4]) + tf.reduce_sum(values * factors[:, 4])
        return outputs, values, state, tape.gradient(loss, model.trainable_variables())

    return run


@pytest.mark.parametrize(
    ("sequences", "steps"),
    [
        pytest.param(4, 6, id="4-sequences-of-6"),
        pytest.param(4, 1, id="4-sequences-of-1"),
        pytest.param(1, 6, id="1-sequence-of-6"),
        pytest.param(2, 3, id="2-sequences-of-3"),
    ],
)
def test_one_trace_serves_all_sizes_and_matches_torch(
    sequences, steps, run_traced, build_model, run_model, select_real_steps, assert_close
):
    torch_model = build_model("torch", seed=0)
    lengths = np.minimum(LENGTHS[:sequences], steps)
    x = np.ascontiguousarray(SEQUENCES[:sequences, :steps])
    state = [part[:sequences] for part in STATE]
    factors = draw_loss_factors(lengths, steps)

    outputs, values, new_state, gradients = run_traced(x.reshape(-1, 3), *state, lengths, factors)

    expected = run_model(torch_model, {"obs": x}, state, lengths)
    outputs = outputs.numpy().reshape(sequences, steps, 4)
    values = values.numpy().reshape(sequences, steps)
    assert_close(select_real_steps(outputs, lengths), select_real_steps(expected.outputs, lengths))
    assert_close(select_real_steps(values, lengths), select_real_steps(expected.values, lengths))
    assert_close(new_state, expected.state)
    expected_gradients = compute_torch_gradients(
        torch_model, {"obs": x.reshape(-1, 3)}, state, lengths, factors
    )
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        assert_close(in_torch_layout(gradient), expected_gradient, tolerance=1e-4)
    assert run_traced.experimental_get_tracing_count() == 1
