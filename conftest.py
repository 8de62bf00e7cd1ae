"""Settings for all tests."""

import os

import pytest
from hypothesis import settings

from rlcatalog.frameworks import before_tensorflow, frameworks
from rlcatalog.spaces import action_codecs

# Small networks are fastest on one thread; several, on a busy machine, wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Tests use TensorFlow and PyTorch's optimisers side by side; the order that is safe is made here, before any of them.
before_tensorflow()

# The same examples at each run: what `make test` says depends on the code alone. HYPOTHESIS_PROFILE=random explores.
settings.register_profile("same", derandomize=True)
settings.register_profile("random")
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

pytest_plugins = ["frameworks", "learning"]  # tests/support


@pytest.fixture(autouse=True)
def _tables_as_before():
    """The tables of frameworks and action codecs are the process's: after each test they are as they were."""
    before = [(table, dict(table)) for table in (frameworks(), action_codecs())]
    yield
    for table, entries in before:
        table.clear()
        table.update(entries)
