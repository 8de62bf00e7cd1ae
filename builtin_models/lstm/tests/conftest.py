"""Fixtures that build and run LSTM models, with the same random weights in both frameworks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog import ModelCatalog

OBS = spaces.Box(-10, 10, (3,), np.float32)
ACTIONS = spaces.Discrete(4)
SMALL_LSTM = {"fcnet_hiddens": [7], "use_lstm": True, "lstm_cell_size": 5}


@pytest.fixture(autouse=True, scope="module")
def _one_thread(one_thread):
    """Small tensors gain nothing from a second thread."""


@pytest.fixture(params=["torch", "tf"])
def framework(request):
    return request.param


def _set_random_weights(model, seed):
    random = np.random.default_rng(seed)
    weights = {}
    for name, array in model.get_weights().items():
        weights[name] = random.normal(0, 0.5, array.shape)
    model.set_weights(weights)


def _build_model(framework, config=None, num_outputs=4, seed=0):
    model = ModelCatalog.get_model_v2(
        OBS, ACTIONS, num_outputs, {**SMALL_LSTM, **(config or {})}, framework
    )
    _set_random_weights(model, seed)
    return model


@pytest.fixture(scope="session")
def build_model():
    """Build an LSTM with 5 cells behind a dense layer of 7, with random weights.

    It reads 3 numbers and returns 4 outputs and a value.
    """
    return _build_model


def _build_policy(framework, config=None, obs_space=OBS, action_space=ACTIONS):
    config = {**SMALL_LSTM, **(config or {})}
    policy = rlcatalog.build(obs_space, action_space, config, framework)
    _set_random_weights(policy.model, seed=0)
    return policy


@pytest.fixture
def build_policy():
    """Build a policy with an LSTM of 5 cells behind a dense layer of 7, with random weights.

    By default it reads 3 numbers and chooses one of 4 actions.
    """
    return _build_policy


def _to_array(x):
    return x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)


@pytest.fixture
def to_array():
    """Return a tensor of either framework as an array."""
    return _to_array


@dataclass
class Results:
    """What a model returned.

    Attributes:
        outputs: Array of shape [sequences, steps, outputs].
        values: Array of shape [sequences, steps], or None for a trunk.
        state: Two arrays of shape [sequences, cells].
    """

    outputs: np.ndarray
    values: np.ndarray | None
    state: list[np.ndarray]


def _run_model(model, inputs, state=None, lengths=None):
    to_tensor = {"torch": torch.from_numpy, "tf": tf.constant}[model.framework]
    sequences, steps = inputs["obs"].shape[:2]
    rows = {}
    for name, array in inputs.items():
        flat = np.asarray(array, np.float32).reshape(sequences * steps, *array.shape[2:])
        rows[name] = to_tensor(flat)
    if state is not None:
        state = [to_tensor(np.asarray(part, np.float32)) for part in state]
    if lengths is not None:
        lengths = to_tensor(np.asarray(lengths, np.int32))

    outputs, new_state = model(rows, state, lengths)

    values = None
    if model.outputs is not None:
        values = _to_array(model.value_function()).reshape(sequences, steps)
    return Results(
        _to_array(outputs).reshape(sequences, steps, -1),
        values,
        [_to_array(part) for part in new_state],
    )


@pytest.fixture
def run_model():
    """Run a model on arrays of shape [sequences, steps, ...], and return its `Results`."""
    return _run_model


def _select_real_steps(array, lengths):
    return array[np.arange(array.shape[1]) < np.asarray(lengths)[:, None]]


@pytest.fixture
def select_real_steps():
    """Return the steps of an array [sequences, steps, ...] before each sequence's end."""
    return _select_real_steps


def _assert_close(result, expected, tolerance=1e-5):
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


@pytest.fixture
def assert_close():
    return _assert_close
