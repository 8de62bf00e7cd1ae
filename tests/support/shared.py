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
