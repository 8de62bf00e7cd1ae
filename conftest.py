"""Settings for all tests."""

import importlib
import os
import sys
from contextlib import suppress

import pytest
from hypothesis import settings

from rlcatalog.frameworks import frameworks, load_first, ops
from rlcatalog.plugins import ActionCodecSpec, EnvAdapterSpec, FrameworkSpec

# Small networks are fastest on one thread; several, on a busy machine, wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# It compiles a kernel for each new shape, which pays where a shape comes back more often than in a
# test.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

# Tests use TensorFlow and PyTorch's optimisers side by side; the order that is safe is made here,
# before any of them.
load_first("triton", before="tensorflow")

# The same examples at each run: what `make test` says depends on the code alone.
# HYPOTHESIS_PROFILE=random explores.
settings.register_profile("same", derandomize=True)
# The same, all of them: see tests/support/properties.py.
settings.register_profile("full", derandomize=True)
settings.register_profile("random")
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# tests/support.
pytest_plugins = ["frameworks", "grids", "learning", "overheads", "scheduling", "shared"]


def pytest_collection_finish():
    """Keep TensorFlow's eager execution on: RLlib turns it off if it imports TensorFlow first.

    Test files import RLlib, whose parts import TensorFlow there or in the middle of a test.
    """
    if "tf" not in frameworks():
        return
    if "ray" in sys.modules:
        with suppress(ImportError):
            importlib.import_module("tensorflow")
    frameworks()["tf"].prepare()


@pytest.fixture(autouse=True, scope="session")
def _logs_of_stable_baselines(tmp_path_factory):
    """Each model of Stable-Baselines3 makes a folder for its logs: in the tests' own, not one after
    another in /tmp.
    """
    os.environ.setdefault("SB3_LOGDIR", str(tmp_path_factory.mktemp("sb3")))


@pytest.fixture(autouse=True)
def _tables_as_before(monkeypatch):
    """The tables of frameworks, action codecs and adapters are the process's: after each test they
    are as they were.
    """
    for table in (FrameworkSpec.table, ActionCodecSpec.table, EnvAdapterSpec.table):
        monkeypatch.setattr(table, "_specs", table.specs)
    monkeypatch.setattr(ops, "_OPS_BY_CLASS", {**ops._OPS_BY_CLASS})


@pytest.fixture
def blank_curves(monkeypatch):
    """Runs of `rlcatalog train` leave an empty picture: a learning curve takes longer to draw than
    a short run.
    """

    def draw(path, rows, title):  # noqa: ARG001, the real function takes a title
        list(rows)  # damaged ones raise an error
        path.write_bytes(b"")

    monkeypatch.setattr("rlcatalog_runs.session.draw", draw)


@pytest.fixture(autouse=True)
def _ray_is_the_fixtures():
    """Ray is started by the fixture `local_ray` alone: a test that starts it unasked breaks
    whichever asks next.
    """
    before = _ray_runs()
    yield
    if _ray_runs() and not before:
        sys.modules["ray"].shutdown()
        pytest.fail("this test started Ray: let it use the fixture local_ray")


def _ray_runs():
    return "ray" in sys.modules and sys.modules["ray"].is_initialized()
