"""Padding in the LSTM cell itself: what it returns there, and what real steps read of it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from model_runs import assert_close
from scipy.special import expit

from rlcatalog.errors import ModelContractError
from rlcatalog_lstm import tf as lstm_tf, torch as lstm_torch
from rlcatalog_lstm.config import CellPlan, Initial

RANDOM = np.random.default_rng(4)
#: Three sequences of up to four steps; 3 inputs and 2 cells.
LENGTHS = np.array([2, 4, 1], np.int32)
IS_REAL = np.arange(4) < LENGTHS[:, None]
X = RANDOM.normal(size=(3, 4, 3)).astype(np.float32)
H = RANDOM.normal(size=(3, 2)).astype(np.float32)
C = RANDOM.normal(size=(3, 2)).astype(np.float32)
WEIGHTS = {
    "weight_ih": RANDOM.normal(size=(8, 3)).astype(np.float32),  # 4 gates of 2 cells
    "weight_hh": RANDOM.normal(size=(8, 2)).astype(np.float32),
    "bias": RANDOM.normal(size=8).astype(np.float32),
}


def compute_by_hand():
    """Return outputs [3, 4, 2], zeros at padded steps, and the states at the ends, in float64."""
    outputs = np.zeros((3, 4, 2))
    states = np.zeros((2, 3, 2))
    for s in range(3):
        h = H[s].astype(np.float64)
        c = C[s].astype(np.float64)
        for t in range(LENGTHS[s]):
            gates = WEIGHTS["weight_ih"] @ X[s, t] + WEIGHTS["weight_hh"] @ h + WEIGHTS["bias"]
            i, f, g, o = np.split(gates, 4)
            c = expit(f) * c + expit(i) * np.tanh(g)
            h = expit(o) * np.tanh(c)
            outputs[s, t] = h
        states[:, s] = h, c
    return outputs, states


def pad_with(number):
    """Return the inputs with this number at all padded steps."""
    return np.where(IS_REAL[..., None], X, np.float32(number))


def run_cell(framework, x, lengths=LENGTHS, **options):
    """Return outputs [3, 4, 2], states at the ends, and the gradients of the outputs' sum."""
    zeros = Initial("zeros", {})
    plan = CellPlan(3, 2, (zeros,) * 4, (zeros,) * 4, (zeros,) * 4)
    inputs = (x.reshape(12, 3), H, C, lengths)
    if framework == "torch":
        return run_torch_cell(plan, inputs, options)
    return run_tf_cell(plan, inputs, options)


def run_torch_cell(plan, inputs, options):
    cell = lstm_torch.LSTMCell(plan)
    with torch.no_grad():
        for name, value in WEIGHTS.items():
            getattr(cell, name).copy_(torch.from_numpy(value))
    y, h, c = cell(*[torch.from_numpy(array) for array in inputs], **options)
    gradients = torch.autograd.grad(y.sum(), [getattr(cell, name) for name in WEIGHTS])
    states = [h.detach().numpy(), c.detach().numpy()]
    return y.detach().numpy().reshape(3, 4, 2), states, [g.numpy() for g in gradients]


def run_tf_cell(plan, inputs, options):
    cell = lstm_tf.LSTMCell(plan)
    variables = []
    for name, variable, axes in cell.canonical():
        value = WEIGHTS[name] if axes is None else WEIGHTS[name].transpose(axes)
        variable.assign(value)
        variables.append(variable)
    with tf.GradientTape() as tape:
        y, h, c = cell(*[tf.constant(array) for array in inputs], **options)
        loss = tf.reduce_sum(y)
    gradients = tape.gradient(loss, variables)
    states = [h.numpy(), c.numpy()]
    return y.numpy().reshape(3, 4, 2), states, [g.numpy().transpose() for g in gradients]


@pytest.mark.parametrize("time_major", [False, True], ids=["batch-major", "time-major"])
def test_cell_returns_zeros_at_padded_steps(framework, time_major):
    outputs, _, _ = run_cell(framework, pad_with(1e4), time_major=time_major)

    expected, _ = compute_by_hand()
    assert_close(outputs, expected)
    assert not outputs[~IS_REAL].any()


@pytest.mark.parametrize("time_major", [False, True], ids=["batch-major", "time-major"])
def test_cell_returns_the_states_before_the_padding(framework, time_major):
    _, states, _ = run_cell(framework, pad_with(1e4), time_major=time_major)

    _, expected = compute_by_hand()
    assert_close(states, expected)


@pytest.mark.parametrize("time_major", [False, True], ids=["batch-major", "time-major"])
def test_real_steps_ignore_padding_processed_like_steps(framework, time_major):
    outputs, _, _ = run_cell(framework, pad_with(1e4), time_major=time_major, like_steps=True)

    expected, _ = compute_by_hand()
    assert_close(outputs[IS_REAL], expected[IS_REAL])


def test_nan_in_padding_does_not_reach_the_outputs(framework):
    outputs, _, _ = run_cell(framework, pad_with(np.nan), time_major=False)

    expected, _ = compute_by_hand()
    assert_close(outputs, expected)


def test_nan_in_padding_does_not_reach_the_gradients(framework):
    _, _, gradients = run_cell(framework, pad_with(np.nan), time_major=False)

    _, _, expected = run_cell(framework, pad_with(0), time_major=False)
    for gradient, expected_gradient in zip(gradients, expected, strict=True):
        assert np.isfinite(gradient).all()
        assert_close(gradient, expected_gradient)


@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param([2, 4, 0], id="length-0"),
        pytest.param([2, 5, 1], id="length-5-of-4"),
    ],
)
def test_cell_rejects_impossible_lengths(framework, lengths):
    with pytest.raises(ModelContractError, match="expected lengths from 1 to 4, ") as caught:
        run_cell(framework, X, np.array(lengths, np.int32), time_major=False)

    assert "found [2, " in str(caught.value)
