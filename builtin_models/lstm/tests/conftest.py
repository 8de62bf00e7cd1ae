"""What the tests of the LSTM share: one thread, models of both frameworks with equal weights,
running them.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog import ModelCatalog

OBS, ACTIONS = spaces.Box(-10, 10, (3,), np.float32), spaces.Discrete(4)
SMALL = {"fcnet_hiddens": [7], "use_lstm": True, "lstm_cell_size": 5}
PAST = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}
CONVERT = {"torch": torch.from_numpy, "tf": tf.constant}


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Small tensors gain nothing from a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["torch", "tf"])
def framework(request):
    return request.param


def _array(x):
    return x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)


def _randomise(model, seed=0):
    random = np.random.default_rng(seed)
    model.set_weights(
        {name: random.normal(0, 0.5, w.shape) for name, w in model.get_weights().items()}
    )


def _model(framework, config=None, obs=OBS, actions=ACTIONS, num_outputs=4, seed=0):
    model = ModelCatalog.get_model_v2(
        obs, actions, num_outputs, {**SMALL, **(config or {})}, framework
    )
    _randomise(model, seed)
    return model


def _policy(framework, config=None, obs=OBS, actions=ACTIONS, seed=0):
    policy = rlcatalog.build(obs, actions, {**SMALL, **(config or {})}, framework)
    _randomise(policy.model, seed)
    return policy


def _run(model, inputs, state, lengths):
    """Return outputs, values and the new states as arrays; inputs are arrays by name."""
    convert = CONVERT[model.framework]
    given = {name: convert(np.asarray(x, np.float32)) for name, x in inputs.items()}
    state = None if state is None else [convert(np.asarray(part, np.float32)) for part in state]
    lengths = None if lengths is None else convert(np.asarray(lengths, np.int32))
    outputs, new_state = model(given, state, lengths)
    values = None if model.outputs is None else _array(model.value_function())
    return _array(outputs), values, [_array(part) for part in new_state]


def _close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.fixture
def lstm():
    """Helpers of these tests: `model`, `policy`, `run`, `array`, `close`."""
    return SimpleNamespace(
        model=_model,
        policy=_policy,
        run=_run,
        array=_array,
        close=_close,
        randomise=_randomise,
        convert=CONVERT,
    )
