"""Sound parts of a made-up package acme, and faults to plant in them for checks to find."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest
import sound_parts as sound
from planted_mutants import MUTANTS

from rlcatalog import (
    ActionCodecSpec,
    ActionDistSpec,
    Catalog,
    CommandSpec,
    EnvWrapperSpec,
    ExporterSpec,
    FilterSpec,
    FrameworkSpec,
    ModelSpec,
    PreprocessorSpec,
)
from rlcatalog.errors import CatalogError, UnsupportedSpaceError
from rlcatalog_testing import (
    Case,
    Check,
    ConformanceError,
    PluginEntryPoint,
    cases,
    isolated_catalog,
    outcomes,
    passes,
    plugin_of,
)

#: The module that the targets of the parts are in.
PARTS = "made_up_parts"
#: The packages beside the one under test.
AROUND = (
    "rlcatalog-preprocessors",
    "rlcatalog-fcnet",
    "rlcatalog-categorical",
    "rlcatalog-gaussian",
    "rlcatalog-multi-action",
    "rlcatalog-lstm",
    "rlcatalog-ppo",
)


def count_actions(action, config):
    if action.kind != "discrete":
        raise UnsupportedSpaceError(f"{action.path}: takes Discrete")
    return action.n


#: Name in these tests → the declaration of a sound part.
SPECS = {
    "choice": ActionDistSpec(
        "acme_choice",
        {"torch": f"{PARTS}:Choice"},
        "a choice",
        size=count_actions,
        examples=f"{PARTS}:choices",
    ),
    "heading": PreprocessorSpec(
        "acme_heading",
        {"numpy": f"{PARTS}:HeadingCodec"},
        "angles",
        kinds=("sound_parts.Heading",),
        examples=f"{PARTS}:headings",
    ),
    "pair": ActionCodecSpec(
        "acme_pair",
        {"numpy": f"{PARTS}:PairCodec"},
        "pairs",
        kinds=("sound_parts.Pair",),
        examples=f"{PARTS}:pairs",
    ),
    "largest": FilterSpec(
        "acme_largest", {"numpy": f"{PARTS}:Largest"}, "divides", examples=f"{PARTS}:mixed"
    ),
    "doubled": EnvWrapperSpec(
        "acme_doubled",
        {"numpy": f"{PARTS}:doubled"},
        "doubles rewards",
        match=sound.matches_pendulum,
        switch="acme_double",
        config=f"{PARTS}:DoubledConfig",
        examples=f"{PARTS}:pendulums",
    ),
    "sail": CommandSpec("acme_sail", {"cli": "made_up_commands:sail"}, "sails"),
    "plain": FrameworkSpec(
        "plain",
        {
            "backend": f"{PARTS}:Backend",
            "ops": f"{PARTS}:OPS",
            "bookkeeping": "rlcatalog_tape.models:Bookkeeping",
        },
        "arrays of tape",
        module="tape",
    ),
    "program": ExporterSpec(
        "acme_program", {"runner": f"{PARTS}:ProgramRunner"}, "programs", suffix=".acme"
    ),
    "trunk": ModelSpec("acme_trunk", {"torch": f"{PARTS}:Trunk"}, "a net"),
}
#: Hook of each kind of declaration.
HOOKS = {
    ActionDistSpec: "rlcatalog_action_dists", PreprocessorSpec: "rlcatalog_preprocessors",
    ActionCodecSpec: "rlcatalog_action_codecs", FilterSpec: "rlcatalog_filters",
    EnvWrapperSpec: "rlcatalog_env_wrappers", CommandSpec: "rlcatalog_commands",
    FrameworkSpec: "rlcatalog_frameworks", ModelSpec: "rlcatalog_models",
    ExporterSpec: "rlcatalog_exporters",
}  # fmt: skip
SOUND_COMMAND = 'def sail() -> None:\n    """Sail."""\n'


@dataclass
class Fault:
    """A part with a fault, and the check that finds it.

    Attributes:
        check: Name of the check.
        part: Name of the sound part in `SPECS`.
        cause: Regular expression for the message of the error.
        label: What is wrong; by default the name of the check.
        objects: Objects that replace those of the same names in the module of the sound parts.
        declared: Fields that replace those of the declaration.
        command: Source of the command, if the part is one.
        around: The packages beside it.
        is_slow: Whether the check takes a whole export.
    """

    check: str
    part: str
    cause: str
    label: str = ""
    objects: dict[str, Any] = field(default_factory=dict)
    declared: dict[str, Any] = field(default_factory=dict)
    command: str = SOUND_COMMAND
    around: tuple[str, ...] = AROUND
    is_slow: bool = False


def list_faults(faults: Iterable[Fault]) -> list[Any]:
    """Return a parameter for each fault; `make attack` tries the slow ones."""
    parameters = []
    for fault in faults:
        marks = [pytest.mark.slow] if fault.is_slow else []
        if fault.check == "frameworks_agree":
            has_tensorflow = find_spec("tensorflow") is not None
            marks.append(pytest.mark.skipif(not has_tensorflow, reason="needs TensorFlow"))
        parameters.append(pytest.param(fault, id=fault.label or fault.check, marks=marks))
    return parameters


def make_hooks(part, declared):
    """Return the hooks of a plugin with this part, and with the others that it needs."""
    spec = replace(SPECS[part], **declared)
    hooks: dict[str, Any] = {HOOKS[type(spec)]: [spec]}
    if part == "plain":
        # A framework needs a model and a distribution to act with.
        net = ModelSpec("fcnet", {"plain": f"{PARTS}:Net"}, "", extends="rlcatalog-fcnet/fcnet")
        dist = ActionDistSpec(
            "categorical",
            {"plain": f"{PARTS}:PlainChoice"},
            "",
            extends="rlcatalog-categorical/categorical",
        )
        hooks["rlcatalog_models"] = [net]
        hooks["rlcatalog_action_dists"] = [dist]
    if part == "program":
        # A format of export needs a framework that writes it.
        writer = {"export-acme_program": f"{PARTS}:write_program"}
        framework = FrameworkSpec("torch", writer, "", extends="rlcatalog-torch/torch")
        hooks["rlcatalog_frameworks"] = [framework]
    return hooks


def make_catalog_of(fault: Fault, monkeypatch: Any, folder: Any) -> Catalog:
    """Return a catalog with a part of acme that has this fault."""
    module = ModuleType(PARTS)
    module.__dict__.update(vars(sound))
    module.__dict__.update(fault.objects)
    monkeypatch.setitem(sys.modules, PARTS, module)
    if fault.part == "sail":
        # The command runs in another process, beside an empty module that stands for PyTorch.
        (folder / "made_up_commands.py").write_text(fault.command)
        (folder / "torch.py").write_text("")
        monkeypatch.syspath_prepend(str(folder))
        passes.run_apart.cache_clear()
    plugin = PluginEntryPoint(plugin_of(**make_hooks(fault.part, fault.declared)), "acme")
    return isolated_catalog(*fault.around, plugin)


def forget_loaded_parts() -> None:
    """Forget what the process knows of frameworks and codecs of earlier tests."""
    sys.modules["rlcatalog.frameworks.table"]._load.cache_clear()
    sys.modules["rlcatalog.frameworks.ops"]._OPS_BY_CLASS.clear()
    sys.modules["rlcatalog.spaces.action_codecs"]._load.cache_clear()


def find_checks(*modules: ModuleType) -> set[str]:
    """Return the names of the checks in these modules."""
    names = set()
    for module in modules:
        names |= {value.name for value in vars(module).values() if isinstance(value, Check)}
    return names


def find_cases(catalog: Catalog, checks: Iterable[str]) -> list[Case]:
    """Return the cases of these checks for package acme, without TensorFlow."""
    return [
        case
        for case in cases("acme", catalog=catalog)
        if case.check.name in checks and case.subject.framework != "tf"
    ]


def assert_check_finds(fault: Fault, catalog: Catalog) -> None:
    """Assert that a check finds a fault, and that its error names the package and the hint.

    Args:
        fault: The fault.
        catalog: The catalog with the faulty part.
    """
    [case] = find_cases(catalog, [fault.check])

    with pytest.raises(ConformanceError, match=fault.cause) as caught:
        case()

    assert "acme 1.0" in str(caught.value)
    assert case.check.hint in str(caught.value) or is_error_of_the_part(caught.value)


def assert_all_pass(checked_cases: list[Case]) -> None:
    """Assert that no case fails, and that at most three have nothing to say about the part.

    Those of a framework without code for the kit do not count.
    """
    results = []
    for outcome in outcomes(checked_cases):
        if "declares no code for the kit" not in outcome.why:
            results.append(outcome)

    assert [outcome.why for outcome in results if outcome.status == "failed"] == []
    passed = [outcome for outcome in results if outcome.status == "passed"]
    assert len(passed) >= len(results) - 3


def with_mutants(checks: Iterable[str]) -> set[str]:
    """Return those of the checks that find one of the planted mutants."""
    return {mutant.check for mutant in MUTANTS} & set(checks)


def is_error_of_the_part(error: ConformanceError) -> bool:
    """Return whether the code of a part raised the error; such an error needs no hint."""
    cause = error.__cause__
    if cause is None:
        return False
    return cause.__cause__ is not None or not isinstance(cause, CatalogError)
