"""Fixtures that build transformers with random weights in both frameworks."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from model_runs import set_random_weights

from rlcatalog_tf import GTrXLNet as TFNet
from rlcatalog_torch import GTrXLNet as TorchNet

NETS = {"torch": TorchNet, "tf": TFNet}
SMALL = {
    "num_transformer_units": 2,
    "attention_dim": 6,
    "num_heads": 2,
    "head_dim": 3,
    "position_wise_mlp_dim": 5,
    "memory_inference": 4,
    "memory_training": 4,
}


@pytest.fixture(autouse=True, scope="module")
def _one_thread(one_thread):
    """Small tensors gain nothing from a second thread."""


@pytest.fixture
def build_net():
    """Build a small net with random weights: 3 inputs, 2 units of width 6, 4 outputs.

    It sees and keeps 4 past steps.
    """

    def build(framework, **sizes):
        obs_space = spaces.Box(-1, 1, (3,), np.float32)
        sizes = {**SMALL, **sizes}
        net = NETS[framework](obs_space, spaces.Discrete(4), 4, {}, "net", **sizes)
        return set_random_weights(net)

    return build
