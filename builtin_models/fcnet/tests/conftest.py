"""What the tests of the network share: one thread, building with random weights, running,
comparing.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

from rlcatalog.config import ACTIVATIONS
from rlcatalog_torch import FullyConnectedNetwork as TorchNet

OBS, ACTIONS = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4)
X = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Small tensors gain nothing from a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def plain():
    """The simplest of all cases: no layers but the last ones."""
    return {
        "fcnet_hiddens": [],
        "post_fcnet_hiddens": [],
        "no_final_linear": False,
        "vf_share_layers": True,
        "free_log_std": False,
        "num_outputs": 4,
        "fcnet_activation": ACTIVATIONS[0],
        "post_fcnet_activation": ACTIVATIONS[0],
    }


def _build(cls, case, seed=0):
    config = {key: value for key, value in case.items() if key != "num_outputs"}
    model = cls(OBS, ACTIONS, case["num_outputs"], config, "net")
    random = np.random.default_rng(seed)
    weights = {
        name: random.normal(0, 0.7, array.shape) for name, array in model.get_weights().items()
    }
    model.set_weights(weights)
    return model


@pytest.fixture
def build():
    """Build a network of a case; its weights, biases included, are set to random
    values of a seed.
    """
    return _build


def _run(model, x=X):
    convert = torch.from_numpy if isinstance(model, TorchNet) else tf.constant
    output, state = model({"obs": convert(x)})
    assert state == []
    value = None if model.outputs is None else model.value_function()
    as_array = (
        (lambda t: t.detach().numpy()) if isinstance(model, TorchNet) else (lambda t: t.numpy())
    )
    return as_array(output), None if value is None else as_array(value)


@pytest.fixture
def run():
    """Run a network; return outputs and values as arrays, None for the values of a trunk."""
    return _run


def _assert_close(found, expected, tolerance=1e-5):
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.fixture
def assert_close():
    """Compare what `run` returned."""
    return _assert_close
