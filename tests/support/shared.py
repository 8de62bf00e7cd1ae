"""What the tests of the contract share: catalogs, and the settings of the frameworks.

Frameworks come in late.
"""

from __future__ import annotations

import pytest

from rlcatalog import Catalog
from rlcatalog.catalog import default_catalog
from rlcatalog.plugins.discovery import scan


@pytest.fixture(scope="module")
def one_thread():
    """Small tensors gain nothing from a second thread."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def seeded():
    """Both frameworks start at the same place."""
    import tensorflow as tf
    import torch

    torch.manual_seed(0)
    tf.random.set_seed(0)


@pytest.fixture(params=["torch", "tf"])
def framework(request):
    """Name of each framework, one after the other."""
    return request.param


@pytest.fixture
def catalog():
    """A catalog of all installed plugins, of this test's own."""
    return Catalog(scan(), environ={})


@pytest.fixture
def default():
    """A default catalog of this test's own."""
    default_catalog.cache_clear()
    yield default_catalog()
    default_catalog.cache_clear()


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """A small policy, exported in each format: name → path. Not to be written to."""
    from exported_files import exports

    return exports(tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="session")
def local_ray():
    """One Ray on this machine, for all tests that need processes."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    # Without a runtime_env, workers inherit this process's environment, and Ray uses its prestarted
    # workers.
    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        object_store_memory=150 * 2**20,
        log_to_driver=False,
        # Or workers starve beside a busy test.
        logging_level="ERROR",
        _system_config={"worker_niceness": 0},
    )
    yield ray
    ray.shutdown()
