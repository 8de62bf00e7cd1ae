"""Padding at the cell itself: real steps never read it, and zeros come out if the states count."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from scipy.special import expit

from rlcatalog.errors import ModelContractError
from rlcatalog_lstm import tf as by_tf, torch as by_torch
from rlcatalog_lstm.config import CellPlan, Initial

S, T, C, WIDTH = 3, 4, 2, 3
LENGTHS = np.array([2, 4, 1], np.int32)
REAL = np.arange(T) < LENGTHS[:, None]
RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=(S, T, WIDTH)).astype(np.float32)
H, STATE = (RANDOM.normal(size=(S, C)).astype(np.float32) for _ in range(2))
WEIGHTS = {
    "weight_ih": RANDOM.normal(size=(4 * C, WIDTH)).astype(np.float32),
    "weight_hh": RANDOM.normal(size=(4 * C, C)).astype(np.float32),
    "bias": RANDOM.normal(size=4 * C).astype(np.float32),
}


def by_hand():
    """Outputs `[S, T, C]`, zeros at padded places, and the states where each sequence ends; in
    float64.
    """
    outputs, ends = np.zeros((S, T, C)), np.zeros((2, S, C))
    for s in range(S):
        h, c = H[s].astype(np.float64), STATE[s].astype(np.float64)
        for t in range(LENGTHS[s]):
            i, f, g, o = np.split(
                WEIGHTS["weight_ih"] @ X[s, t] + WEIGHTS["weight_hh"] @ h + WEIGHTS["bias"], 4
            )
            c = expit(f) * c + expit(i) * np.tanh(g)
            h = expit(o) * np.tanh(c)
            outputs[s, t] = h
        ends[:, s] = h, c
    return outputs, ends


def run(framework, x, lengths=LENGTHS, **options):
    """Return outputs, states at the ends, and gradients of the outputs' sum, by the names of the
    weights.
    """
    zeros = Initial("zeros", {})
    plan = CellPlan(WIDTH, C, (zeros,) * 4, (zeros,) * 4, (zeros,) * 4)
    rows = x.reshape(-1, WIDTH)
    if framework == "torch":
        cell = by_torch.LSTMCell(plan)
        with torch.no_grad():
            for name, value in WEIGHTS.items():
                getattr(cell, name).copy_(torch.from_numpy(value))
        y, h, c = cell(*map(torch.from_numpy, (rows, H, STATE, lengths)), **options)
        found = torch.autograd.grad(y.sum(), [getattr(cell, name) for name in WEIGHTS])
        return (
            y.detach().numpy(),
            [h.detach().numpy(), c.detach().numpy()],
            [g.numpy() for g in found],
        )
    cell = by_tf.LSTMCell(plan)
    variables = {name: (variable, axes) for name, variable, axes in cell.canonical()}
    for name, (variable, axes) in variables.items():
        variable.assign(WEIGHTS[name] if axes is None else WEIGHTS[name].transpose(axes))
    with tf.GradientTape() as tape:
        y, h, c = cell(*map(tf.constant, (rows, H, STATE, lengths)), **options)
        loss = tf.reduce_sum(y)
    found = tape.gradient(loss, [variable for variable, _ in variables.values()])
    return y.numpy(), [h.numpy(), c.numpy()], [g.numpy().transpose() for g in found]


@pytest.mark.parametrize("time_major", [False, True])
def test_zeros_come_out_of_padding_and_the_states_are_those_at_the_ends(
    framework, lstm, time_major
):
    outputs, ends = by_hand()
    spoilt = np.where(REAL[..., None], X, np.float32(1e4))
    y, states, _ = run(framework, spoilt, time_major=time_major)
    lstm.close(y.reshape(S, T, C), outputs)
    assert not y.reshape(S, T, C)[~REAL].any()
    lstm.close(states, ends)


@pytest.mark.parametrize("time_major", [False, True])
def test_real_steps_do_not_read_padding_that_counts_as_steps(framework, lstm, time_major):
    spoilt = np.where(REAL[..., None], X, np.float32(1e4))
    y, _, _ = run(framework, spoilt, time_major=time_major, like_steps=True)
    lstm.close(y.reshape(S, T, C)[REAL], by_hand()[0][REAL])


def test_padding_that_is_no_number_spoils_neither_outputs_nor_gradients(framework, lstm):
    clean = np.where(REAL[..., None], X, np.float32(0))
    spoilt = np.where(REAL[..., None], X, np.float32("nan"))
    expected, found = (run(framework, x, time_major=False) for x in (clean, spoilt))
    lstm.close(found[0].reshape(S, T, C), by_hand()[0])
    for one, other in zip(found[2], expected[2], strict=True):
        assert np.isfinite(one).all()
        lstm.close(one, other)


@pytest.mark.parametrize("lengths", [[2, 4, 0], [2, T + 1, 1], [0, T + 1, 1]])
def test_the_cell_refuses_lengths_that_do_not_fit_the_padding(framework, lengths):
    with pytest.raises(
        ModelContractError,
        match=rf"seq_lens: expected lengths from 1 to {T}, found \[{lengths[0]}, ",
    ):
        run(framework, X, np.array(lengths, np.int32), time_major=False)
