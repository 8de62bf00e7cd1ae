"""A catalog for one test, in which the running program may register what it likes."""

from __future__ import annotations

import pytest

import rlcatalog


@pytest.fixture
def catalog():
    """The default catalog of this test alone."""
    rlcatalog.default_catalog.cache_clear()
    yield rlcatalog.default_catalog()
    rlcatalog.default_catalog.cache_clear()
