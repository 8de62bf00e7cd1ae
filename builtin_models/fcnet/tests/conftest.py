"""Fixtures that build fully connected networks in both frameworks."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog_tf import FullyConnectedNetwork as TFNet
from rlcatalog_torch import FullyConnectedNetwork as TorchNet

NETS = {"torch": TorchNet, "tf": TFNet}


@pytest.fixture(autouse=True, scope="module")
def _one_thread(one_thread):
    """Small tensors gain nothing from a second thread."""


@pytest.fixture
def build_net():
    """Build a network that reads 3 numbers, with 4 outputs by default."""

    def build(framework, num_outputs=4, **config):
        obs_space = spaces.Box(-1, 1, (3,), np.float32)
        return NETS[framework](obs_space, spaces.Discrete(4), num_outputs, config, "net")

    return build
