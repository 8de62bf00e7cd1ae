"""Fixtures that build convolutional networks in both frameworks."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog_tf import VisionNetwork as TFNet
from rlcatalog_torch import VisionNetwork as TorchNet

NETS = {"torch": TorchNet, "tf": TFNet}


@pytest.fixture(autouse=True, scope="module")
def _one_thread(one_thread):
    """Small tensors gain nothing from a second thread."""


@pytest.fixture
def build_net():
    """Build a network for images of bytes with this shape, with 4 outputs by default."""

    def build(framework, shape, num_outputs=4, **config):
        images = spaces.Box(0, 255, shape, np.uint8)
        return NETS[framework](images, spaces.Discrete(4), num_outputs, config, "net")

    return build
