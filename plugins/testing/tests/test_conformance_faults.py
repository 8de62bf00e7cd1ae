"""Each check of the conformance kit passes a toy part that keeps its contract, and fails one with a
line broken.
"""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec

import faulty_parts
import pytest
from planted_mutants import MUTANTS

from rlcatalog import Match, Rank, Stage
from rlcatalog.errors import CatalogError
from rlcatalog_testing import (
    Check,
    ConformanceError,
    NotApplicable,
    PluginEntryPoint,
    cases,
    isolated_catalog,
    plugin_of,
)
from rlcatalog_testing.checks import (
    company,
    declarations,
    keys,
    memories,
    model_inputs,
    models,
    ways_in,
)

pytestmark = pytest.mark.usefixtures("one_thread")

MODULES = (declarations, ways_in, models, model_inputs, keys, company, memories)
INSTALLED = (
    "rlcatalog-preprocessors", "rlcatalog-categorical", "rlcatalog-gaussian", "rlcatalog-fcnet",
    "rlcatalog-visionnet", "rlcatalog-complex-input", "rlcatalog-lstm", "rlcatalog-parametric",
)  # fmt: skip
NEEDS_TF = pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed")
REQUIRES = ("rlcatalog>=0.1,<0.2",)
BOTH = {"torch": "faulty_parts:Net", "tf": "faulty_parts_tf:Net"}


def trunk(cls, **fields):
    return faulty_parts.spec(f"faulty_parts:{cls}", **fields)


def in_tf(cls):
    return faulty_parts.spec(targets={**BOTH, "tf": f"faulty_parts_tf:{cls}"})


def memory(cls):
    return faulty_parts.memory(f"faulty_parts:{cls}")


def narrow(request):
    return (
        Match(None, "takes vectors")
        if len(request.encoded_shape) != 1
        else Match(Rank.FALLBACK, "a vector")
    )


def too_wide(request):
    return [*faulty_parts.describe(request)[:-1], Stage("logits", (99,))]


def too_many(request):
    return [Stage("layer", (6,), 10**6), *faulty_parts.describe(request)[1:]]


#: Check → the faulty parts that it finds, each with words of its message.
FAULTS = {
    "has_a_summary": [(trunk("Net", summary=" "), "its summary is ' '")],
    "keys_are_described": [
        (
            trunk("Net", config="faulty_parts:BareConfig"),
            "acme_width without a one-line description",
        )
    ],
    "names_are_its_own": [(trunk("Net", name="glu"), "glu does not begin with 'acme'")],
    "answers_every_request": [
        (trunk("Net", match=narrow), r"encoded_shape=None.*raised TypeError")
    ],
    "output_width": [(trunk("OneOutputMore"), r"outputs \(3, 4\), expected \(3, 3\)")],
    "one_value_per_row": [
        (trunk("OneValue"), r"value \(1,\), expected \(3,\)"),
        (trunk("NoValue"), "it has no value_function"),
    ],
    "batches_of_one_and_none": [(trunk("Squeezed"), "max")],
    "rows_are_independent": [
        (trunk("Centred"), "rows with only one other, its outputs: .*, expected")
    ],
    "takes_bytes_and_floats": [(trunk("NotCast"), "dtype")],
    "describes_what_is_built": [
        (trunk("Net", describe=too_wide), "is 99 wide, but built 3 wide"),
        (trunk("Net", describe=too_many), "its stages declare 1000000 weights"),
    ],
    "every_weight_is_trained": [
        (
            trunk("HiddenLayer"),
            r"uses the weight .* of shape \(6,\), which is not in any attribute",
        ),
        (trunk("IdleLayer"), "does not change idle.weight, idle.bias"),
        (trunk("Detached"), "does not change layer.weight, layer.bias"),
    ],
    "saved_and_restored": [(trunk("ForgottenNoise"), "loaded, its outputs: .*, expected")],
    "frameworks_agree": [
        (
            in_tf("AnotherActivation"),
            "torch and tf with the same weights, its outputs: .*, expected",
        )
    ],
    "traced_equals_eager": [
        (in_tf("EagerBranch"), "traced, compared with eager, its outputs: .*, expected")
    ],
    "evaluates_batches": [
        (trunk("OtherRowsInTraining"), r"one number per row, .* found shape \(1,\) for 8 rows"),
        (
            trunk("WritesIntoItsInput"),
            r"must not write into its inputs; input_dict\['obs'\] has changed",
        ),
    ],
    "declared_keys_have_an_effect": [
        (trunk("IgnoresItsKey"), "change nothing in any of its examples: acme_width"),
        (
            trunk("Net", reads=("vf_share_layers",)),
            "change nothing in any of its examples: vf_share_layers",
        ),
    ],
    "undeclared_keys_have_none": [
        (trunk("ReadsAnothersKey"), r"'fcnet_hiddens': .* changes the model")
    ],
    "works_inside_memories": [
        (trunk("SaysNoWidth"), "did not set self.num_outputs"),
        (trunk("SaysAnotherWidth"), "declared num_outputs=7"),
    ],
    "works_under_heads": [(trunk("SaysAnotherWidth"), "declared num_outputs=7")],
    "works_for_a_part_of_an_observation": [(trunk("OneSize"), r"faulty_parts.py:\d+")],
    "works_around_trunks": [(memory("OneTrunkOnly"), r"faulty_parts.py:\d+")],
    "shows_the_trunk_its_input": [
        (memory("NoTrunk"), "never calls its trunk"),
        (faulty_parts.head("faulty_parts:ShowsTheGoal"), r"the trunk receives \['goal'\]"),
    ],
    "has_a_state": [
        (memory("Forgetful"), r"get_initial_state\(\) returned \[\]"),
        (memory("SaysNothing"), "its class does not set is_memory = True"),
    ],
    "state_keeps_its_shapes": [(memory("TwiceTheState"), r"\(3, 5\).*\(3, 10\)")],
    "steps_equal_a_sequence": [
        (memory("Backwards"), "step 0 on its own, compared with the sequence, its outputs: .*")
    ],
    "state_carries_everything": [
        (memory("KeepsItself"), "continued from a state, compared with all steps: ")
    ],
    "state_at_seq_lens": [(memory("LastPaddedState"), "state 0 after .* the state after step 1")],
    "padding_never_reaches_it": [(memory("MeetsPadding"), "padding changes outputs")],
}
#: Found on other ground than a declaration: each has a test of its own below.
ELSEWHERE = {"imports_no_framework", "bounds_the_kernel"}
#: The good parts, and a head for the trunks to stand under.
GOOD = {
    "trunk": faulty_parts.spec(targets=BOTH),
    "memory": faulty_parts.memory(),
    "head": faulty_parts.head(),
}


def case_of(spec, check, requires=REQUIRES, plugin=None):
    """Return the case of a check for a part of a plugin, in a catalog with others."""
    plugin = plugin or plugin_of(rlcatalog_models=[spec])
    catalog = isolated_catalog(*INSTALLED, PluginEntryPoint(plugin, "acme", requires=requires))
    found = [case for case in cases("acme", catalog=catalog) if case.check.name == check]
    return found[-1]  # the last framework is TensorFlow, where there is code for it


def test_every_check_has_a_fault():
    own = {
        value.name
        for module in MODULES
        for value in vars(module).values()
        if isinstance(value, Check)
    }
    assert own == FAULTS.keys() | ELSEWHERE | ({mutant.check for mutant in MUTANTS} & own)


@pytest.mark.parametrize(
    ("check", "spec", "words"),
    [
        pytest.param(
            check,
            *fault,
            id=f"{check}-{number}",
            marks=NEEDS_TF if "tf" in fault[0].targets else (),
        )
        for check, faults in FAULTS.items()
        for number, fault in enumerate(faults)
    ],
)
def test_a_fault_is_found_under_the_name_of_its_part(check, spec, words):
    with pytest.raises(ConformanceError, match=words) as found:
        case_of(spec, check)()
    assert f"-{check}" in str(found.value)
    assert f"{spec.name!r} (acme 1.0)" in str(found.value)
    cause = found.value.__cause__
    if cause is None or (cause.__cause__ is None and isinstance(cause, CatalogError)):
        # what the part's own code raised needs no hint
        assert re.search(r"\. Hint: \w.*\.$", str(found.value))


@pytest.mark.parametrize("kind", GOOD)
def test_a_part_that_keeps_its_contract_passes(kind):
    plugin = plugin_of(rlcatalog_models=[GOOD[kind]])
    catalog = isolated_catalog(*INSTALLED, PluginEntryPoint(plugin, "acme", requires=REQUIRES))
    ran = set()
    for case in cases("acme", catalog=catalog):
        try:
            case()
            ran.add(case.check.name)
        except NotApplicable:
            continue
    assert len(ran) > 15, ran


def test_an_import_of_a_framework_is_found(tmp_path, monkeypatch):
    light = "import rlcatalog\n\n\n@rlcatalog.hookimpl\ndef rlcatalog_models():\n"
    spec = "    return [rlcatalog.ModelSpec('acme_net', {'torch': 'faulty_parts:Net'}, 'a toy')]\n"
    (tmp_path / "acme_light.py").write_text(light + spec, encoding="utf-8")
    (tmp_path / "acme_heavy.py").write_text(f"{light}    import torch\n{spec}", encoding="utf-8")
    (tmp_path / "torch.py").touch()  # in the process that is asked; this one has imported PyTorch
    monkeypatch.syspath_prepend(tmp_path)
    case_of(None, "imports_no_framework", plugin="acme_light")()
    with pytest.raises(ConformanceError, match="acme_heavy imports torch"):
        case_of(None, "imports_no_framework", plugin="acme_heavy")()
    for name in ("acme_heavy", "acme_light"):
        sys.modules.pop(name)


@pytest.mark.parametrize(
    "requires",
    [("numpy",), ("rlcatalog",), ("rlcatalog>=0.1",), ("rlcatalog[torch]<0.2; extra == 'torch'",)],
)
def test_a_missing_bound_is_found(requires):
    with pytest.raises(ConformanceError, match="its metadata requires"):
        case_of(GOOD["trunk"], "bounds_the_kernel", requires)()
