"""Fixture `framework`, with which a test runs in PyTorch and in TensorFlow."""

from __future__ import annotations

import importlib

import pytest
from dist_frameworks import DistFramework


class MultiActionFramework(DistFramework):
    """A framework that loads the distributions of all packages."""

    def __init__(self, name):
        super().__init__("rlcatalog_multi_action", name)

    def load(self, class_name):
        return getattr(importlib.import_module(f"rlcatalog_{self.name}"), class_name)


@pytest.fixture(params=["torch", "tf"])
def framework(request):
    return MultiActionFramework(request.param)
