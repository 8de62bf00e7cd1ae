"""Fixture `kit`, with which a test runs in each framework."""

from __future__ import annotations

import importlib

import pytest
from dist_kit import DistKit


class MultiActionKit(DistKit):
    """A framework's kit that loads the distributions of all packages."""

    def __init__(self, framework):
        super().__init__("rlcatalog", framework)

    def load(self, name):
        return getattr(importlib.import_module(f"rlcatalog_{self.framework}"), name)


@pytest.fixture(params=["torch", "tf"])
def kit(request):
    return MultiActionKit(request.param)


@pytest.fixture
def torch_kit():
    return MultiActionKit("torch")


@pytest.fixture
def tf_kit():
    return MultiActionKit("tf")
