"""Settings of these tests, and the fixture `framework`."""

from __future__ import annotations

import pytest
import tensorflow as tf
import torch


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Small tensors gain nothing from a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    tf.random.set_seed(0)


@pytest.fixture(params=["torch", "tf"])
def framework(request):
    return request.param
