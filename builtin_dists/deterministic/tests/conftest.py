"""Fixture `framework`, with which a test runs in PyTorch and in TensorFlow."""

from __future__ import annotations

import pytest
from dist_frameworks import DistFramework


@pytest.fixture(params=["torch", "tf"])
def framework(request):
    return DistFramework("rlcatalog_deterministic", request.param)
