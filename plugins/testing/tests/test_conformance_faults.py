"""Checks of the conformance kit for models: each one passes a sound part and finds a faulty one."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import faulty_parts
import pytest
from faults import find_checks, is_error_of_the_part, with_mutants

from rlcatalog import Match, Rank, Stage
from rlcatalog_testing import (
    ConformanceError,
    PluginEntryPoint,
    cases,
    isolated_catalog,
    outcomes,
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
    """Return the declaration of a trunk, a class of `faulty_parts`."""
    return faulty_parts.spec(f"faulty_parts:{cls}", **fields)


def switched_trunk(cls, **fields):
    """Return the declaration of a trunk that its name or its switch chooses."""
    return trunk(
        cls,
        config="faulty_parts:SwitchedConfig",
        switch="acme_net_use",
        examples="faulty_parts:switched_examples",
        **fields,
    )


def trunk_in_tf(cls):
    """Return the declaration of a trunk that is sound in PyTorch, with this class in TensorFlow."""
    return faulty_parts.spec(targets={**BOTH, "tf": f"faulty_parts_tf:{cls}"})


def memory(cls):
    return faulty_parts.memory(f"faulty_parts:{cls}")


def match_vectors_only(request):
    """Raise an error if the shape is not known yet."""
    if len(request.encoded_shape) != 1:
        return Match(None, "takes vectors")
    return Match(Rank.FALLBACK, "a vector")


def match_if_named(request):
    """Match by the part's name only, whatever its switch says."""
    if request.is_named:
        return Match(Rank.SPECIFIC, "named")
    return Match(None, "not named")


def describe_too_wide(request):
    return [*faulty_parts.describe(request)[:-1], Stage("logits", (99,))]


def describe_too_many_weights(request):
    return [Stage("layer", (6,), 10**6), *faulty_parts.describe(request)[1:]]


#: Check → the faulty parts that it finds, each with the cause in its message.
FAULTS = {
    "has_a_way_in": [
        (
            switched_trunk("Net", match=match_if_named),
            "its switch 'acme_net_use' does not select it",
        )
    ],
    "has_a_summary": [(trunk("Net", summary=" "), "its summary is ' '")],
    "keys_are_described": [
        (
            trunk("Net", config="faulty_parts:BareConfig"),
            "acme_width without a one-line description",
        )
    ],
    "names_are_its_own": [(trunk("Net", name="glu"), "glu does not begin with 'acme'")],
    "answers_every_request": [
        (trunk("Net", match=match_vectors_only), r"encoded_shape=None.*raised TypeError")
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
        (trunk("Net", describe=describe_too_wide), "is 99 wide, but built 3 wide"),
        (trunk("Net", describe=describe_too_many_weights), "its stages declare 1000000 weights"),
    ],
    "every_weight_is_trained": [
        (
            trunk("HiddenLayer"),
            r"uses the weight .* of shape \(6,\), which is not in any attribute",
        ),
        (trunk("IdleLayer"), "does not change idle.weight, idle.bias"),
        (trunk("Detached"), "does not change layer.weight, layer.bias"),
    ],
    "value_has_its_own_part": [
        (trunk("CriticUnderAnotherName"), "second_layer.bias, second_layer.weight")
    ],
    "saved_and_restored": [(trunk("ForgottenNoise"), "loaded, its outputs: .*, expected")],
    "frameworks_agree": [
        (
            trunk_in_tf("AnotherActivation"),
            "torch and tf with the same weights, its outputs: .*, expected",
        )
    ],
    "traced_equals_eager": [
        (trunk_in_tf("EagerBranch"), "traced, compared with eager, its outputs: .*, expected")
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
        # Its switch has no effect beside its name, which is no fault.
        (
            switched_trunk("IgnoresItsKey"),
            "change nothing in any of its examples: acme_width. Hint",
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
    "works_as_a_critic": [(trunk("SaysAnotherWidth"), "declared num_outputs=7")],
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
#: Checks of more than a declaration. Each has a test of its own below; `spaces_have_code`, which
#: never fails, has one in `tests/frameworks/test_partial_framework.py`.
TESTED_ALONE = {"imports_no_framework", "bounds_the_kernel", "spaces_have_code"}


def find_case(spec, check, *, requires=REQUIRES, plugin=None):
    """Return the case of a check for a part of a plugin, in a catalog with others.

    If there is a case per framework, it is the one of TensorFlow.
    """
    plugin = plugin or plugin_of(rlcatalog_models=[spec])
    catalog = isolated_catalog(*INSTALLED, PluginEntryPoint(plugin, "acme", requires=requires))
    cases_of_the_check = [
        case for case in cases("acme", catalog=catalog) if case.check.name == check
    ]
    return cases_of_the_check[-1]


def test_checks_all_have_a_fault():
    checks = find_checks(*MODULES)

    assert checks == set(FAULTS) | TESTED_ALONE | with_mutants(checks)


def list_faults():
    """Return a parameter for each fault: the check, the faulty part, and the cause."""
    parameters = []
    for check, faults in FAULTS.items():
        for number, (spec, cause) in enumerate(faults):
            marks = NEEDS_TF if "tf" in spec.targets else ()
            parameters.append(pytest.param(check, spec, cause, id=f"{check}-{number}", marks=marks))
    return parameters


@pytest.mark.parametrize(("check", "spec", "cause"), list_faults())
def test_check_finds_its_fault_and_names_the_part(check, spec, cause):
    case = find_case(spec, check)

    with pytest.raises(ConformanceError, match=cause) as caught:
        case()

    message = str(caught.value)
    assert f"-{check}" in message
    assert f"{spec.name!r} (acme 1.0)" in message
    assert "Hint: " in message or is_error_of_the_part(caught.value)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(faulty_parts.spec(targets=BOTH), id="trunk"),
        pytest.param(switched_trunk("Net"), id="trunk-with-a-switch"),
        pytest.param(faulty_parts.memory(), id="memory"),
        pytest.param(faulty_parts.head(), id="head"),
    ],
)
def test_sound_part_passes_all_checks(spec):
    plugin = plugin_of(rlcatalog_models=[spec])
    catalog = isolated_catalog(*INSTALLED, PluginEntryPoint(plugin, "acme", requires=REQUIRES))

    results = list(outcomes(cases("acme", catalog=catalog)))

    assert [outcome.why for outcome in results if outcome.status == "failed"] == []
    # Other checks do not apply to the part.
    assert len({outcome.name for outcome in results if outcome.status == "passed"}) > 15


PLUGIN = """
import rlcatalog


@rlcatalog.hookimpl
def rlcatalog_models():
    return [rlcatalog.ModelSpec('acme_net', {'torch': 'faulty_parts:Net'}, 'a toy')]
"""


@pytest.fixture
def write_plugin(tmp_path, monkeypatch):
    """Write the module of a plugin, beside an empty module that stands for PyTorch."""
    monkeypatch.syspath_prepend(tmp_path)
    # The check imports the plugin in another process, which finds this one.
    (tmp_path / "torch.py").touch()
    modules = []

    def write(module, source):
        modules.append(module)
        (tmp_path / f"{module}.py").write_text(source, encoding="utf-8")

    yield write
    for module in modules:
        sys.modules.pop(module, None)


def test_plugin_that_imports_no_framework_passes(write_plugin):
    write_plugin("acme_light", PLUGIN)

    find_case(None, "imports_no_framework", plugin="acme_light")()


def test_plugin_that_imports_a_framework_is_found(write_plugin):
    write_plugin("acme_heavy", PLUGIN.replace("    return", "    import torch\n    return"))

    with pytest.raises(ConformanceError, match="acme_heavy imports torch"):
        find_case(None, "imports_no_framework", plugin="acme_heavy")()


@pytest.mark.parametrize(
    "requires",
    [
        pytest.param(("numpy",), id="not-required"),
        pytest.param(("rlcatalog",), id="any-version"),
        pytest.param(("rlcatalog>=0.1",), id="no-upper-bound"),
        pytest.param(("rlcatalog[torch]<0.2; extra == 'torch'",), id="bound-of-an-extra"),
    ],
)
def test_package_without_a_bound_on_rlcatalog_is_found(requires):
    case = find_case(faulty_parts.spec(targets=BOTH), "bounds_the_kernel", requires=requires)

    with pytest.raises(ConformanceError, match="its metadata requires"):
        case()
