"""Fixtures that build and run convolutional networks, and the network computed with NumPy."""

from __future__ import annotations

import itertools
import math

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
def _one_thread(one_thread):
    """Small tensors gain nothing from a second thread."""


def _make_image_space(shape, dtype=np.uint8):
    return spaces.Box(0, 255 if dtype == np.uint8 else 1, shape, dtype)


@pytest.fixture
def make_image_space():
    """Return the space of images of a shape: bytes, or floats from 0 to 1."""
    return _make_image_space


def _draw_images(shape, dtype=np.uint8, rows=3):
    random = np.random.default_rng(0)
    if dtype == np.uint8:
        # Small ones: unscaled, they must not use up the digits of float32.
        return random.integers(0, 9, (rows, *shape), np.uint8)
    return random.random((rows, *shape)).astype(np.float32)


@pytest.fixture
def draw_images():
    """Return random images [rows, *shape]; three by default."""
    return _draw_images


def _build_net(cls, shape, config=None, num_outputs=4, dtype=np.uint8, seed=0):
    model = cls(_make_image_space(shape, dtype), ACTIONS, num_outputs, config or {}, "net")
    random = np.random.default_rng(seed)
    weights = {}
    for name, array in model.get_weights().items():
        scale = 0.3 if array.ndim == 1 else 0.8 / np.sqrt(array[0].size)
        weights[name] = random.normal(0, scale, array.shape).astype(np.float32)
    model.set_weights(weights)
    return model


@pytest.fixture
def build_net():
    """Build a network for images of a shape, with random weights and biases, and four outputs."""
    return _build_net


def _to_array(tensor):
    return tensor.detach().numpy() if isinstance(tensor, torch.Tensor) else tensor.numpy()


def _run_net(model, images):
    is_torch = isinstance(model, TorchNet)
    output, state = model({"obs": torch.from_numpy(images) if is_torch else tf.constant(images)})
    assert state == []
    if model.outputs is None:
        return _to_array(output), None
    return _to_array(output), _to_array(model.value_function())


@pytest.fixture
def run_net():
    """Return a network's outputs and values as arrays; a trunk's values are None."""
    return _run_net


def _assert_same_results(results, expected, tolerance=1e-5):
    for result, value in zip(results, expected, strict=True):
        assert (result is None) == (value is None)
        if result is not None:
            assert result.shape == value.shape
            largest = max(1, np.abs(value).max())
            np.testing.assert_allclose(result, value, rtol=0, atol=tolerance * largest)


@pytest.fixture
def assert_same_results():
    """Compare outputs and values that `run_net` returned, relative to the largest one."""
    return _assert_same_results


# --- the network in NumPy -------------------------------------------------------------------------


def _to_pair(value):
    return tuple(value) if isinstance(value, list | tuple) else (value, value)


def _list_windows(x, kernel, stride, padding, fill):
    """Return the size of the output, and (row, column, window [B, kh, kw, C]) of each place.

    The maps `x` have the shape [B, H, W, C].
    """
    size = []
    margins = [(0, 0)]
    for n, k, s in zip(x.shape[1:3], kernel, stride, strict=True):
        if padding == "same":
            places = math.ceil(n / s)
            total = max((places - 1) * s + k - n, 0)
        else:
            places = (n - k) // s + 1
            total = 0
        size.append(places)
        margins.append((total // 2, total - total // 2))
    padded = np.pad(x, [*margins, (0, 0)], constant_values=fill)
    windows = []
    for i, j in itertools.product(*map(range, size)):
        top = i * stride[0]
        left = j * stride[1]
        windows.append((i, j, padded[:, top : top + kernel[0], left : left + kernel[1]]))
    return size, windows


def _convolve_slowly(x, weight, bias, stride, padding):
    size, windows = _list_windows(x, weight.shape[2:], _to_pair(stride), padding, fill=0.0)
    result = np.zeros((len(x), *size, len(weight)))
    for i, j, window in windows:
        result[:, i, j] = np.einsum("bhwc,ochw->bo", window, weight.astype(np.float64)) + bias
    return result


@pytest.fixture
def convolve_slowly():
    """Convolve maps [B, H, W, C] with weights [out, in, kh, kw], window by window, in float64."""
    return _convolve_slowly


def _pool_slowly(x):
    """Return the largest value of each 3x3 window at stride 2, padded as "same"."""
    size, windows = _list_windows(x, (3, 3), (2, 2), "same", fill=-np.inf)
    result = np.zeros((len(x), *size, x.shape[-1]))
    for i, j, window in windows:
        result[:, i, j] = window.max(axis=(1, 2))
    return result


class NumpyNetwork:
    """The network in NumPy, from its weights and a plain list of its layers."""

    def __init__(self, weights, activation="relu"):
        self.weights = weights
        self.activate = ACTIVATIONS[activation]
        self.activate_post = ACTIVATIONS["relu"]

    def convolve(self, name, x, stride=1, padding="same"):
        weight = self.weights[f"{name}.weight"]
        return _convolve_slowly(x, weight, self.weights[f"{name}.bias"], stride, padding)

    def apply_dense(self, name, x):
        weight = self.weights[f"{name}.weight"].astype(np.float64)
        return x @ weight.T + self.weights[f"{name}.bias"]

    def apply_filters(self, stack, x, filters, padding=None):
        """Apply convolutions of a list; without padding, the last one is "valid"."""
        for i, (_, _, stride) in enumerate(filters):
            is_last = i == len(filters) - 1
            default_padding = "valid" if is_last else "same"
            maps = self.convolve(f"{stack}.layers.{i}", x, stride, padding or default_padding)
            x = self.activate(maps)
        return x

    def apply_impala(self, stack, x):
        for section in range(3):
            x = _pool_slowly(self.convolve(f"{stack}.layers.{4 * section}", x))
            for block in (2, 3):
                name = f"{stack}.layers.{4 * section + block}"
                inner = self.activate(self.convolve(f"{name}.first", self.activate(x)))
                x = x + self.convolve(f"{name}.second", inner)
        return self.activate(x)

    def apply_hidden(self, stack, x, activations):
        x = x.reshape(len(x), -1)
        for i, activation in enumerate(activations):
            x = activation(self.apply_dense(f"{stack}.layers.{i}", x))
        return x


@pytest.fixture
def numpy_network():
    """The class of the network in NumPy."""
    return NumpyNetwork
