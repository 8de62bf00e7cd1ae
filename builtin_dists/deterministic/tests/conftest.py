"""Fixture `kit`, with which a test runs in each framework."""

from __future__ import annotations

import pytest
from dist_kit import DistKit


@pytest.fixture(params=["torch", "tf"])
def kit(request):
    return DistKit("rlcatalog_deterministic", request.param)


@pytest.fixture
def torch_kit():
    return DistKit("rlcatalog_deterministic", "torch")


@pytest.fixture
def tf_kit():
    return DistKit("rlcatalog_deterministic", "tf")
