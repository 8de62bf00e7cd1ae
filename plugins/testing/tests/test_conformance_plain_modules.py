"""A plugin's plain modules pass the conformance kit, as model classes do, and faulty ones are
found.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from rlcatalog import ModelSpec
from rlcatalog_testing import (
    ConformanceError,
    NotApplicable,
    PluginEntryPoint,
    cases,
    isolated_catalog,
    plugin_of,
)

pytestmark = pytest.mark.usefixtures("one_thread")

INSTALLED = (
    "rlcatalog-preprocessors", "rlcatalog-categorical", "rlcatalog-gaussian", "rlcatalog-fcnet",
    "rlcatalog-lstm", "rlcatalog-parametric", "rlcatalog-complex-input",
)  # fmt: skip
EXAMPLES = {"PlainNet": "plain_nets:examples", "PlainPair": "plain_nets:pair_examples"}


def cases_of(name, frameworks, examples=None):
    modules = {"torch": f"plain_nets:{name}", "tf": f"plain_nets_tf:{name}"}
    spec = ModelSpec(
        "acme_plain",
        {framework: modules[framework] for framework in frameworks},
        "a toy",
        plain=True,
        examples=examples or EXAMPLES[name],
    )
    plugin = plugin_of(rlcatalog_models=[spec])
    entry = PluginEntryPoint(plugin, "acme", requires=("rlcatalog>=0.1,<0.2",))
    return cases("acme", catalog=isolated_catalog(*INSTALLED, entry))


@pytest.mark.parametrize(
    ("name", "frameworks"),
    [
        ("PlainNet", ["torch"]),
        ("PlainPair", ["torch"]),
        pytest.param("PlainPair", ["torch", "tf"], marks=pytest.mark.attack),
        pytest.param("PlainNet", ["torch", "tf"], marks=pytest.mark.attack),
    ],
)
def test_a_plain_module_passes_every_check(name, frameworks):
    if "tf" in frameworks and find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")
    ran = set()
    for case in cases_of(name, frameworks):
        try:
            case()
            ran.add(case.check.name)
        except NotApplicable:
            continue
    assert ran >= {
        "output_width",
        "every_weight_is_trained",
        "saved_and_restored",
        "rows_are_independent",
    }
    assert ("frameworks_agree" in ran) == ("tf" in frameworks)


@pytest.mark.parametrize(
    ("name", "check", "words"),
    [
        ("Centred", "rows_are_independent", "rows with only one other"),
        ("IdleLayer", "every_weight_is_trained", "does not change module.idle.weight"),
        ("KeepsAState", "output_width", "must return only floating-point features .*has no state"),
    ],
)
def test_a_faulty_plain_module_is_found(name, check, words):
    found = {case.check.name: case for case in cases_of(name, ["torch"], "plain_nets:examples")}
    with pytest.raises(ConformanceError, match=words):
        found[check]()
