"""The library of the framework tape: the gradient of each operation is the slope of its result."""

from __future__ import annotations

import numpy as np
import pytest
import tape
from tape import Array, gradients

X = np.array([[0.3, -1.2, 2.0], [1.5, 0.7, -0.4]])
Y = np.array([[1.1, 0.9, -0.6]])

FUNCTIONS = {
    "add": lambda x, y: x + y + 1.5,
    "subtract": lambda x, y: (x - y) * (2.0 - x),
    "multiply": lambda x, y: x * y * 3.0,
    "divide": lambda x, y: x / y + 2.0 / y,
    "power": lambda x, y: x**2 + (y + 2.0) ** 0.5,
    "absolute": lambda x, y: abs(x) + abs(-y),
    "matmul": lambda x, y: x @ y.T,
    "take": lambda x, y: x[[0, 1, 1], [2, 0, 0]] * y[0, 1],
    "slice": lambda x, y: x[:, 1:] * y[:, :1],
    "reshape": lambda x, y: x.reshape(3, 2) * y.reshape(3, 1),
    "sum": lambda x, y: x.sum(axis=1, keepdims=True) * y.sum(axis=0),
    "mean": lambda x, y: x.mean(axis=(0, 1)) * y.mean() * x.mean(0),
    "exp": lambda x, y: tape.exp(x) * tape.exp(y),
    "log": lambda x, y: tape.log(abs(x)) + tape.log(abs(y)),
    "tanh": lambda x, y: tape.tanh(x * y),
    "relu": lambda x, y: tape.relu(x * y),
    "where": lambda x, y: tape.where(x > y, x * 2.0, y),
    "minimum": lambda x, y: tape.minimum(x, y),
    "maximum": lambda x, y: tape.maximum(x, y),
    "clip": lambda x, y: tape.clip(x, -1.0, y),
    "concat": lambda x, y: tape.concat([x, y, x * y]),
    "numpy first": lambda x, y: (X * x) + (Y - y) + np.float64(2.0) / x,
    "diamond": lambda x, y: (x * y + x) * (x * y) + x * x,
}


def slopes(function, at):
    """Return the slopes of a function of an array, by central differences."""
    result = np.zeros(at.shape)
    for place in np.ndindex(at.shape):
        before = at[place]
        at[place] = before + 1e-6
        above = function()
        at[place] = before - 1e-6
        below = function()
        at[place] = before
        result[place] = (above - below) / 2e-6
    return result


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_slopes(name):
    function = FUNCTIONS[name]
    # A weighted sum of the results, so that each of them matters differently.
    factors = np.random.default_rng(0).normal(size=function(Array(X), Array(Y)).shape)

    def total(x, y):
        return (function(x, y) * factors).sum()

    arrays = [X.copy(), Y.copy()]
    inputs = [Array(array.copy(), learns=True) for array in arrays]

    found = gradients(total(*inputs), inputs)

    for array, gradient in zip(arrays, found, strict=True):
        expected = slopes(lambda: float(total(*map(Array, arrays))), array)
        if gradient is None:  # the function does not read it
            gradient = np.zeros(array.shape)
        np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8)


def test_only_what_depends_on_weights_is_recorded():
    constant = Array(X) * Array(Y)
    weight = Array(X, learns=True)

    assert not constant.is_tracked
    assert (weight * constant).is_tracked
    assert not (weight * constant).constant().is_tracked
    assert gradients((weight * 2).sum(), [constant]) == [None]


def test_gradient_has_the_dtype_of_its_array():
    weight = Array(X.astype(np.float32), learns=True)

    loss = (tape.tanh(weight * 2.0 + 1) / 3).mean()
    [gradient] = gradients(loss, [weight])

    assert loss.dtype == np.float32
    assert gradient.dtype == np.float32
