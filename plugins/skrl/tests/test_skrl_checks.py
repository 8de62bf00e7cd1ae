"""The check that this package adds to the conformance kit: skrl trains each weight."""

import pytest

pytest.importorskip("skrl", reason="skrl is not installed; `make test` runs it apart")

from engine_models import WithUnusedWeight, register_part

from rlcatalog import Catalog
from rlcatalog.plugins.discovery import scan
from rlcatalog_skrl.checks import skrl_moves_every_weight
from rlcatalog_testing import cases


@pytest.fixture(scope="module")
def catalog():
    """A catalog of all installed plugins, for this file only."""
    return Catalog(scan(), environ={})


def test_check_names_an_unused_weight(catalog):
    part = register_part(catalog, "with_unused_weight", WithUnusedWeight)

    with pytest.raises(AssertionError, match="does not change these weights: idle"):
        skrl_moves_every_weight(part)


@pytest.mark.parametrize("distribution", ["rlcatalog-fcnet", "rlcatalog-lstm", "rlcatalog-bounded"])
def test_check_passes_for_parts_of_this_repository(catalog, distribution):
    all_cases = cases(distribution, catalog=catalog)
    cases_of_check = [case for case in all_cases if case.check is skrl_moves_every_weight]

    assert cases_of_check
    for case in cases_of_check:
        case()
