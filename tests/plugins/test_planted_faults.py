"""Parts that each break one line of a contract: the error names the part and its plugin.

Crosses: policy, torch, tf.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from grids import in_turn
from planted import DISTRIBUTION, FAULTS, MODULE, NAME, VERSION, Fault, catalog_of, use

from rlcatalog.errors import CatalogError, PluginWarning

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

#: Kinds of parts that use no framework. They are tested with one.
NEUTRAL = ("preprocessor", "filter")


@pytest.fixture(autouse=True)
def planted_module():
    """Ignore that a planted part is chosen before others, and remove its module afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)
        yield
    sys.modules.pop(MODULE, None)


def all_faults() -> Iterator[Any]:
    """Yield each fault in each of its frameworks; `make test` runs one of them."""
    for place, fault in enumerate(FAULTS):
        frameworks = fault.frameworks[:1] if fault.kind in NEUTRAL else fault.frameworks
        framework_of_make_test = in_turn(place, frameworks)
        for framework in frameworks:
            marks = [] if framework == framework_of_make_test else [pytest.mark.slow]
            yield pytest.param(fault, framework, marks=marks, id=f"{fault}-{framework}")


@pytest.mark.parametrize(("fault", "framework"), list(all_faults()))
def test_broken_part_is_refused_by_name(fault, framework):
    catalog = catalog_of(fault, framework)

    with pytest.raises(CatalogError) as caught:
        use(catalog, fault, framework)

    message = str(caught.value)
    assert re.search(fault.says, message), message
    assert f"{DISTRIBUTION} {VERSION}" in message
    assert NAME in message or "Planted" in message  # the part or its class


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    "kind", ["model", "memory", "head", "action_dist", "preprocessor", "filter"]
)
def test_part_without_fault_is_accepted(kind, framework):
    if kind in NEUTRAL:  # such a part uses no framework
        framework = "torch"
    a_fault = next(fault for fault in FAULTS if fault.kind == kind)

    def leave_as_it_is(sound_class):
        return type("Planted", (sound_class,), {})

    no_fault = Fault("nothing", kind, make=leave_as_it_is, obs=a_fault.obs, check="always")
    # This builds a policy, lets it act, and evaluates the actions. Nothing raises an error.
    use(catalog_of(no_fault, framework), no_fault, framework)
