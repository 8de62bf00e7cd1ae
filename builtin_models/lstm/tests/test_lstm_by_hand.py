"""The LSTM's results and gradients, against NumPy and between the frameworks."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from model_runs import (
    assert_close,
    assert_same_gradients,
    compute_gradients,
    run_sequences,
)
from scipy.special import expit

RANDOM = np.random.default_rng(0)
#: Four sequences of up to six steps.
OBSERVATIONS = RANDOM.normal(size=(4, 6, 3)).astype(np.float32)
PAST_ACTIONS = RANDOM.normal(size=(4, 6, 4)).astype(np.float32)
PAST_REWARDS = RANDOM.normal(size=(4, 6)).astype(np.float32)
#: State of 5 cells: output and cell state.
STATE = [RANDOM.normal(size=(4, 5)).astype(np.float32) for _ in range(2)]


# --- NumPy ----------------------------------------------------------------------------------------


def compute_by_hand(weights, inputs, lengths):
    """Return outputs, values and the last state, computed step by step in float64."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    obs = inputs["obs"]
    outputs = np.zeros((4, obs.shape[1], 4))
    values = np.zeros((4, obs.shape[1]))
    state = np.zeros((2, 4, 5))
    for s, length in enumerate(lengths):
        h = STATE[0][s].astype(np.float64)
        c = STATE[1][s].astype(np.float64)
        for t in range(length):
            dense = w["trunk.hidden.layers.0.weight"] @ obs[s, t] + w["trunk.hidden.layers.0.bias"]
            parts = [np.tanh(dense)]
            if "past_actions" in inputs:
                parts.append(inputs["past_actions"][s, t])
            if "past_rewards" in inputs:
                parts.append([inputs["past_rewards"][s, t]])
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
@pytest.mark.parametrize("time_major", [False, True], ids=["batch-major", "time-major"])
@pytest.mark.parametrize("use_prev_action", [False, True], ids=["no-action", "prev-action"])
@pytest.mark.parametrize("use_prev_reward", [False, True], ids=["no-reward", "prev-reward"])
@pytest.mark.parametrize(
    ("steps", "lengths"),
    [
        pytest.param(6, [6, 2, 1, 4], id="mixed-lengths"),
        pytest.param(6, [6, 6, 6, 6], id="full-lengths"),
        pytest.param(6, [4, 2, 1, 4], id="padding-behind-all"),
        pytest.param(1, [1, 1, 1, 1], id="single-steps"),
    ],
)
def test_lstm_matches_numpy(
    framework, use_prev_action, use_prev_reward, steps, lengths, time_major, build_model
):
    model = build_model(
        framework,
        lstm_use_prev_action=use_prev_action,
        lstm_use_prev_reward=use_prev_reward,
        _time_major=time_major,
    )
    inputs = {"obs": OBSERVATIONS[:, :steps]}
    if use_prev_action:
        inputs["past_actions"] = PAST_ACTIONS[:, :steps]
    if use_prev_reward:
        inputs["past_rewards"] = PAST_REWARDS[:, :steps]

    results = run_sequences(model, state=STATE, lengths=lengths, **inputs)

    outputs, values, state = compute_by_hand(model.get_weights(), inputs, lengths)
    for sequence, length in enumerate(lengths):
        assert_close(results.outputs[sequence, :length], outputs[sequence, :length])
        assert_close(results.values[sequence, :length], values[sequence, :length])
    assert_close(results.state, state)


@pytest.mark.parametrize("lengths", [[6, 2, 1, 4], [6, 6, 6, 6]], ids=["padded", "full"])
def test_two_biases_are_added(framework, lengths, build_model):
    model = build_model(framework, lstm_two_biases=True)
    weights = model.get_weights()
    second_bias = weights.pop("cell.bias_hh")
    weights["cell.bias"] = weights["cell.bias"] + second_bias

    results = run_sequences(model, OBSERVATIONS, STATE, lengths)

    outputs, values, state = compute_by_hand(weights, {"obs": OBSERVATIONS}, lengths)
    for sequence, length in enumerate(lengths):
        assert_close(results.outputs[sequence, :length], outputs[sequence, :length])
        assert_close(results.values[sequence, :length], values[sequence, :length])
    assert_close(results.state, state)
    assert np.abs(second_bias).max() > 0.1


# --- gradients ------------------------------------------------------------------------------------


def test_gradients_are_the_same_in_both_frameworks(build_model):
    past = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}

    assert_same_gradients(
        build_model("tf", **past),
        build_model("torch", **past),
        obs=OBSERVATIONS.reshape(24, 3),  # four sequences of six steps
        past_actions=PAST_ACTIONS.reshape(24, 4),
        past_rewards=PAST_REWARDS.reshape(24),
        state=STATE,
        lengths=[6, 2, 1, 4],
    )


def test_gradients_do_not_depend_on_the_padding(framework, build_model):
    model = build_model(framework)
    obs = OBSERVATIONS[:2]
    with_large_padding = obs.copy()
    with_large_padding[1, 2:] = 1e4  # the sequences have 6 and 2 of 6 steps

    gradients = compute_gradients(model, with_large_padding.reshape(12, 3), lengths=[6, 2])

    expected = compute_gradients(model, obs.reshape(12, 3), lengths=[6, 2])
    for name, gradient in gradients.items():
        assert_close(gradient, expected[name])


def test_both_biases_have_the_gradient_of_their_sum(framework, build_model):
    model = build_model(framework, lstm_two_biases=True)

    gradients = compute_gradients(model, OBSERVATIONS.reshape(24, 3), lengths=[6, 2, 1, 4])

    assert np.abs(gradients["cell.bias"]).max() > 1e-3
    assert_close(gradients["cell.bias_hh"], gradients["cell.bias"])


# --- tf.function ----------------------------------------------------------------------------------


def test_one_trace_serves_sequences_and_single_steps(build_model):
    model = build_model("tf")

    def run(obs, lengths):
        with tf.GradientTape() as tape:
            outputs, _ = model({"obs": obs}, [], lengths)
        return outputs, tape.gradient(outputs, model.cell.kernel)

    run_traced = tf.function(
        run,
        input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([None], tf.int32)],
        autograph=False,
    )

    for steps, lengths in [(6, [6, 2, 1, 4]), (1, [1, 1, 1, 1]), (6, [6])]:
        obs = tf.constant(OBSERVATIONS[: len(lengths), :steps].reshape(-1, 3))
        outputs, gradient = run_traced(obs, tf.constant(lengths))
        eager_outputs, eager_gradient = run(obs, tf.constant(lengths))
        assert_close(outputs, eager_outputs)
        assert_close(gradient, eager_gradient)
    assert run_traced.experimental_get_tracing_count() == 1
