"""What the tests of the network share: one thread, random weights, running, and the network by hand
in NumPy.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from scipy import special

from rlcatalog_torch import VisionNetwork as TorchNet

ACTIONS = spaces.Discrete(4)
ACTIVATIONS = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "softmax": lambda x: special.softmax(x, axis=-1),
}


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Small tensors gain nothing from a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def image_space(shape, dtype=np.uint8):
    return spaces.Box(0, 255 if dtype == np.uint8 else 1, shape, dtype)


def random_images(shape, dtype=np.uint8, rows=3, seed=0):
    random = np.random.default_rng(seed)
    if dtype == np.uint8:  # small ones: unscaled, they must not use up the digits of float32
        return random.integers(0, 9, (rows, *shape), np.uint8)
    return random.random((rows, *shape)).astype(np.float32)


def _build(cls, shape, config=None, num_outputs=4, dtype=np.uint8, seed=0):
    model = cls(image_space(shape, dtype), ACTIONS, num_outputs, config or {}, "net")
    random = np.random.default_rng(seed)
    weights = {}
    for name, array in model.get_weights().items():
        scale = 0.3 if array.ndim == 1 else 0.8 / np.sqrt(array[0].size)
        weights[name] = random.normal(0, scale, array.shape).astype(np.float32)
    model.set_weights(weights)
    return model


def _run(model, images):
    convert = torch.from_numpy if isinstance(model, TorchNet) else tf.constant
    output, state = model({"obs": convert(images)})
    assert state == []
    value = None if model.outputs is None else model.value_function()
    as_array = (
        (lambda t: t.detach().numpy()) if isinstance(model, TorchNet) else (lambda t: t.numpy())
    )
    return as_array(output), None if value is None else as_array(value)


def _assert_close(found, expected, tolerance=1e-5):
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.shape == other.shape
            np.testing.assert_allclose(
                one, other, rtol=0, atol=tolerance * max(1, np.abs(other).max())
            )


def pair(value):
    return tuple(value) if isinstance(value, list | tuple) else (value, value)


def windows(x, kernel, stride, padding, fill):
    """Yield (row, column, window `[B, kh, kw, C]`) of maps `[B, H, W, C]`, in loops."""
    sizes = x.shape[1:3]
    if padding == "same":
        out = [int(np.ceil(n / s)) for n, s in zip(sizes, stride, strict=True)]
        total = [
            max((o - 1) * s + k - n, 0)
            for o, s, k, n in zip(out, stride, kernel, sizes, strict=True)
        ]
        pads = [(n // 2, n - n // 2) for n in total]
        x = np.pad(x, [(0, 0), *pads, (0, 0)], constant_values=fill)
    else:
        out = [
            int(np.floor((n - k) / s)) + 1 for n, k, s in zip(sizes, kernel, stride, strict=True)
        ]
    for i in range(out[0]):
        for j in range(out[1]):
            top, left = i * stride[0], j * stride[1]
            yield i, j, out, x[:, top : top + kernel[0], left : left + kernel[1]]


def slow_conv(x, weight, bias, stride, padding):
    """Convolve maps `[B, H, W, C]` with weights `[out, in, kh, kw]`, window by
    window, in float64.
    """
    result = None
    for i, j, out, window in windows(x, weight.shape[2:], pair(stride), padding, 0.0):
        if result is None:
            result = np.zeros((len(x), *out, len(weight)))
        result[:, i, j] = np.einsum("bhwc,ochw->bo", window, weight.astype(np.float64)) + bias
    return result


def slow_pool(x):
    """Return the largest value of each 3x3 window at stride 2, padded as "same"."""
    result = None
    for i, j, out, window in windows(x, (3, 3), (2, 2), "same", -np.inf):
        if result is None:
            result = np.zeros((len(x), *out, x.shape[-1]))
        result[:, i, j] = window.max(axis=(1, 2))
    return result


class ByHand:
    """The network in NumPy, from its weights and a plain list of its layers."""

    def __init__(self, weights, activation="relu", post_activation="relu"):
        self.weights = weights
        self.activate, self.post = ACTIVATIONS[activation], ACTIVATIONS[post_activation]

    def conv(self, name, x, stride=1, padding="same"):
        return slow_conv(
            x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], stride, padding
        )

    def dense(self, name, x):
        return (
            x @ self.weights[f"{name}.weight"].T.astype(np.float64) + self.weights[f"{name}.bias"]
        )

    def listed(self, stack, x, filters, padding=None):
        for i, (_, _, stride) in enumerate(filters):
            pads = padding or ("valid" if i == len(filters) - 1 else "same")
            x = self.activate(self.conv(f"{stack}.layers.{i}", x, stride, pads))
        return x

    def impala(self, stack, x):
        for section in range(3):
            x = slow_pool(self.conv(f"{stack}.layers.{4 * section}", x))
            for block in (2, 3):
                name = f"{stack}.layers.{4 * section + block}"
                inner = self.activate(self.conv(f"{name}.first", self.activate(x)))
                x = x + self.conv(f"{name}.second", inner)
        return self.activate(x)

    def hidden(self, stack, x, activations):
        x = x.reshape(len(x), -1)
        for i, activation in enumerate(activations):
            x = activation(self.dense(f"{stack}.layers.{i}", x))
        return x


@pytest.fixture
def build():
    """Build a network; its weights, biases included, are set to random values of a seed."""
    return _build


@pytest.fixture
def run():
    """Run a network; return outputs and values as arrays, None for the values of a trunk."""
    return _run


@pytest.fixture
def images():
    """Return random images `[rows, *shape]`."""
    return random_images


@pytest.fixture
def space():
    """Return the space of images of a shape."""
    return image_space


@pytest.fixture
def assert_close():
    """Compare what `run` returned, relative to the largest value."""
    return _assert_close


@pytest.fixture
def by_hand():
    """The network in NumPy."""
    return ByHand


@pytest.fixture
def convolve():
    """A slow convolution in NumPy."""
    return slow_conv
