"""Every line of a contract, broken once: each part is refused by an error that names it and its
plugin.

Crosses: policy, torch, tf.
"""

from __future__ import annotations

import re
import sys
import warnings
from typing import Any

import pytest
from grids import in_turn
from planted import DISTRIBUTION, FAULTS, MODULE, NAME, VERSION, Fault, catalog_of, use

from rlcatalog.errors import CatalogError, PluginWarning

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

#: Kinds of part that no framework has to do with are tried in one.
NEUTRAL = ("preprocessor", "filter")


@pytest.fixture(autouse=True)
def alone():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # that it is chosen before another
        yield
    sys.modules.pop(MODULE, None)


def refused(fault: Fault, framework: str) -> str:
    """Return what is said of a fault."""
    catalog = catalog_of(fault, framework)
    with pytest.raises(CatalogError) as raised:
        use(catalog, fault, framework)
    return str(raised.value)


def tried() -> list[Any]:
    """Each fault in each framework it has; of those with both, `make test` takes one in turn."""
    found = []
    for place, fault in enumerate(FAULTS):
        frameworks = fault.frameworks[:1] if fault.kind in NEUTRAL else fault.frameworks
        now = in_turn(place, frameworks)
        for framework in frameworks:
            found.append(
                pytest.param(
                    fault, framework, marks=[pytest.mark.attack] if framework != now else []
                )
            )
    return found


@pytest.mark.parametrize(("fault", "framework"), tried(), ids=lambda value: str(value))
def test_broken_part_is_refused_by_name(fault, framework):
    said = refused(fault, framework)
    assert re.search(fault.says, said), said
    assert f"{DISTRIBUTION} {VERSION}" in said, said
    assert NAME in said or "Planted" in said, said


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    "kind", ["model", "memory", "head", "action_dist", "preprocessor", "filter"]
)
def test_part_without_fault_is_accepted(kind, framework):
    if kind in NEUTRAL and framework == "tf":
        framework = "torch"
    fault = next(fault for fault in FAULTS if fault.kind == kind)
    whole = Fault(
        "nothing", kind, lambda base: type("Planted", (base,), {}), obs=fault.obs, check="always"
    )
    use(catalog_of(whole, framework), whole, framework)


def test_table_of_faults_is_long():
    assert len(FAULTS) >= 60
    assert len({str(fault) for fault in FAULTS}) == len(FAULTS)
