"""Fixtures that build fully connected networks with random weights, run and compare them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

from rlcatalog_torch import FullyConnectedNetwork as TorchNet

OBS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Discrete(4)
X = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)

#: The simplest network: linear logits and a linear value.
WITHOUT_LAYERS = {
    "fcnet_hiddens": [],
    "post_fcnet_hiddens": [],
    "no_final_linear": False,
    "vf_share_layers": True,
    "free_log_std": False,
    "fcnet_activation": "linear",
    "post_fcnet_activation": "linear",
}


@pytest.fixture(autouse=True, scope="module")
def _one_thread(one_thread):
    """Small tensors gain nothing from a second thread."""


def _build_net(cls, seed=0, num_outputs=4, **config):
    model = cls(OBS, ACTIONS, num_outputs, {**WITHOUT_LAYERS, **config}, "net")
    random = np.random.default_rng(seed)
    weights = {}
    for name, array in model.get_weights().items():
        weights[name] = random.normal(0, 0.7, array.shape)
    model.set_weights(weights)
    return model


@pytest.fixture
def build_net():
    """Build a network for 3 inputs with random weights and biases.

    Without keys of the config it has no hidden layers and no activations.
    """
    return _build_net


def _to_array(tensor):
    if isinstance(tensor, torch.Tensor):
        return tensor.detach().numpy()
    return tensor.numpy()


def _run_net(model, x=X):
    is_torch = isinstance(model, TorchNet)
    output, state = model({"obs": torch.from_numpy(x) if is_torch else tf.constant(x)})
    assert state == []
    if model.outputs is None:
        return _to_array(output), None
    return _to_array(output), _to_array(model.value_function())


@pytest.fixture
def run_net():
    """Return a network's outputs and values for 16 rows; a trunk's values are None."""
    return _run_net


def _assert_same_results(results, expected, tolerance=1e-5):
    for result, value in zip(results, expected, strict=True):
        assert (result is None) == (value is None)
        if result is not None:
            assert result.shape == value.shape
            np.testing.assert_allclose(result, value, rtol=tolerance, atol=tolerance)


@pytest.fixture
def assert_same_results():
    """Compare outputs and values that `run_net` returned."""
    return _assert_same_results
