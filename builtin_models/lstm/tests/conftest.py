"""Fixtures that build LSTM models, with the same random weights in both frameworks."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from model_runs import set_random_weights

import rlcatalog
from rlcatalog import ModelCatalog

OBS = spaces.Box(-10, 10, (3,), np.float32)
ACTIONS = spaces.Discrete(4)
SMALL_LSTM = {"fcnet_hiddens": [7], "use_lstm": True, "lstm_cell_size": 5}


@pytest.fixture(autouse=True, scope="module")
def _one_thread(one_thread):
    """Small tensors gain nothing from a second thread."""


@pytest.fixture
def build_model():
    """Build an LSTM with 5 cells behind a dense layer of 7, with random weights.

    It reads 3 numbers and returns 4 outputs and a value.
    """

    def build(framework, **config):
        model = ModelCatalog.get_model_v2(OBS, ACTIONS, 4, {**SMALL_LSTM, **config}, framework)
        return set_random_weights(model)

    return build


@pytest.fixture
def build_policy():
    """Build a policy with an LSTM of 5 cells behind a dense layer of 7, with random weights.

    By default it reads 3 numbers and chooses one of 4 actions.
    """

    def build(framework, config=None, obs_space=OBS, action_space=ACTIONS):
        config = {**SMALL_LSTM, **(config or {})}
        policy = rlcatalog.build(obs_space, action_space, config, framework)
        set_random_weights(policy.model)
        return policy

    return build
