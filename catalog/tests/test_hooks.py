"""The hooks of plugins: their list, the page that documents them, and what each one does."""

from __future__ import annotations

import inspect
import json

import pytest
from plugin_processes import run_beside_plugins

from rlcatalog import (
    ActionCodecSpec,
    ActionDistSpec,
    Catalog,
    CheckSpec,
    CommandSpec,
    EngineSpec,
    EnvAdapterSpec,
    EnvWrapperSpec,
    ExporterSpec,
    FilterSpec,
    FrameworkSpec,
    ModelSpec,
    PreprocessorSpec,
)
from rlcatalog.plugins import hookspecs
from rlcatalog.plugins.loader import HOOK_RETURNS

#: Every hook, and the class of the declarations that it returns.
HOOKS = {
    "rlcatalog_preprocessors": "PreprocessorSpec",
    "rlcatalog_filters": "FilterSpec",
    "rlcatalog_env_wrappers": "EnvWrapperSpec",
    "rlcatalog_env_adapters": "EnvAdapterSpec",
    "rlcatalog_models": "ModelSpec",
    "rlcatalog_action_dists": "ActionDistSpec",
    "rlcatalog_action_codecs": "ActionCodecSpec",
    "rlcatalog_frameworks": "FrameworkSpec",
    "rlcatalog_exporters": "ExporterSpec",
    "rlcatalog_commands": "CommandSpec",
    "rlcatalog_engines": "EngineSpec",
    "rlcatalog_checks": "CheckSpec",
}


# --- the list of hooks ----------------------------------------------------------------------------


def find_hookspecs():
    """Return the functions that pluggy takes for hooks of rlcatalog."""
    return {
        name: function
        for name, function in vars(hookspecs).items()
        if getattr(function, "rlcatalog_spec", None) is not None
    }


def test_hooks_are_complete():
    assert set(find_hookspecs()) == set(HOOKS)


def test_loader_checks_what_each_hook_returns():
    assert {name: spec.__name__ for name, spec in HOOK_RETURNS.items()} == HOOKS


@pytest.mark.parametrize(("name", "declaration"), HOOKS.items())
def test_hook_takes_nothing_and_returns_a_list(name, declaration):
    hook = find_hookspecs()[name]

    signature = inspect.signature(hook)

    assert list(signature.parameters) == []
    assert signature.return_annotation == f"list[{declaration}]"
    assert hook.__doc__


# --- plugins with one hook ------------------------------------------------------------------------


#: Hook → the declaration that a plugin with only this hook returns.
DECLARATIONS = {
    "rlcatalog_preprocessors": PreprocessorSpec("sum", {"numpy": "m:C"}, "a preprocessor"),
    "rlcatalog_filters": FilterSpec("halve", {"numpy": "m:C"}, "a filter"),
    "rlcatalog_env_wrappers": EnvWrapperSpec("clip", {"numpy": "m:f"}, "a wrapper"),
    "rlcatalog_env_adapters": EnvAdapterSpec("sim", {"numpy": "m:f"}, "", modules=("simulator",)),
    "rlcatalog_models": ModelSpec("net", {"torch": "m:C", "tf": "m:C"}, "a model"),
    "rlcatalog_action_dists": ActionDistSpec("dist", {"torch": "m:C"}, "", size=len),
    "rlcatalog_action_codecs": ActionCodecSpec("codec", {"numpy": "m:C"}, "", kinds=("m.Space",)),
    "rlcatalog_frameworks": FrameworkSpec(
        "hooked", {"backend": "m:Backend", "ops": "m:OPS"}, "a framework", module="numpy"
    ),
    "rlcatalog_exporters": ExporterSpec("form", {"runner": "m:Runner"}, "", suffix=".form"),
    "rlcatalog_commands": CommandSpec("greet", {"cli": "m:f"}, "says hello"),
    "rlcatalog_engines": EngineSpec("steam", {"engine": "m:C"}, "an engine"),
    "rlcatalog_checks": CheckSpec("polite", {"checks": "m:f"}, "says hello once"),
}


def test_declarations_of_these_tests_are_complete():
    assert {hook: type(spec).__name__ for hook, spec in DECLARATIONS.items()} == HOOKS


@pytest.mark.parametrize(("hook", "declaration"), DECLARATIONS.items(), ids=DECLARATIONS)
def test_plugin_may_implement_one_hook_only(entry_point, plugin, hook, declaration):
    # The package has the name of its part.
    point = entry_point(declaration.name, plugin(**{hook: [declaration]}))

    catalog = Catalog([point], environ={"RLCATALOG_STRICT_PLUGINS": "1"})

    [record] = catalog.plugins
    assert record.status == "loaded"
    [part] = catalog.parts()
    assert part.declaration is declaration
    assert part.kind == declaration.kind
    assert part.provider == f"{declaration.name} 1.0"
    assert catalog.registry.get(declaration.kind, declaration.name) is part


@pytest.mark.parametrize("sequence", [list, tuple])
def test_hook_may_return_a_list_or_a_tuple(entry_point, plugin, sequence):
    spec = ModelSpec("net", {"torch": "m:C"}, "a model")
    acme = plugin(rlcatalog_models=sequence([spec]))

    catalog = Catalog([entry_point("acme", acme)], environ={"RLCATALOG_STRICT_PLUGINS": "1"})

    assert [part.name for part in catalog.parts()] == ["net"]


def test_hook_may_return_an_empty_list(entry_point, plugin):
    acme = plugin(rlcatalog_filters=[])

    catalog = Catalog([entry_point("acme", acme)], environ={"RLCATALOG_STRICT_PLUGINS": "1"})

    assert catalog.parts() == []


# --- a command of a plugin ------------------------------------------------------------------------

PLUGIN_WITH_A_COMMAND = """
from rlcatalog import CommandSpec, hookimpl


def greet(name: str, loud: bool = False) -> None:
    text = f"hello {name}"
    print(text.upper() if loud else text)


@hookimpl
def rlcatalog_commands():
    targets = {"cli": "polite_plugin:greet"}
    return [CommandSpec("polite-plugin-greet", targets, "says hello to someone")]
"""


@pytest.fixture
def run_command(tmp_path, install_plugin):
    """Run `rlcatalog` beside a plugin with the command polite-plugin-greet."""
    install_plugin(tmp_path, "polite-plugin", PLUGIN_WITH_A_COMMAND)

    def run(*arguments):
        command = run_beside_plugins([tmp_path], *arguments)
        assert command.returncode == 0, command.stderr
        return command.stdout

    return run


def test_declared_command_runs(run_command):
    assert run_command("polite-plugin-greet", "Ada", "--loud") == "HELLO ADA\n"


def test_declared_command_is_in_the_help(run_command):
    overview = run_command("--help")

    assert "polite-plugin-greet" in overview
    assert "says hello to someone" in overview


def test_declared_command_is_in_the_list_of_parts(run_command):
    listing = json.loads(run_command("list", "--kind", "command", "--json"))

    assert "polite-plugin-greet" in [part["name"] for part in listing["parts"]]
