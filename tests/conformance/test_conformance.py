"""The packages of this repository pass the conformance kit as any stranger's, in every framework."""

from __future__ import annotations

import pytest

from rlcatalog import Catalog
from rlcatalog.plugins.discovery import scan
from rlcatalog_testing import parametrize_with_checks

pytestmark = pytest.mark.usefixtures("one_thread")

CATALOG = Catalog(scan(), environ={})
DISTRIBUTIONS = sorted({component.distribution for component in CATALOG.components()})


@parametrize_with_checks(*DISTRIBUTIONS, catalog=CATALOG)
def test_contract(check):
    check()


def test_all_packages_are_there():
    assert len(DISTRIBUTIONS) >= 18
