"""Settings of these tests, and the fixture `framework`."""

from __future__ import annotations

import pytest
import tensorflow as tf
import torch


@pytest.fixture(autouse=True, scope="module")
def _one_thread(one_thread):
    """Small tensors gain nothing from a second thread."""


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    tf.random.set_seed(0)
