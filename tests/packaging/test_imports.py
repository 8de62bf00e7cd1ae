"""Imports of running processes: very few at first, and no framework before something is built."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import warm

HEAVY = {"torch", "tensorflow", "keras"}
PRINT_MODULES = """
import sys
print("modules:", *sorted({name.partition(".")[0] for name in sys.modules}))
"""
WARNINGS_ARE_ERRORS = ["-W", "error::UserWarning"]


def imported_by(code: str) -> set[str]:
    """Return the top-level modules that a process has imported after running code.

    To be quick, the process begins with the modules that `warm.LIGHT` names, without frameworks.
    """
    arguments = [*WARNINGS_ARE_ERRORS, "-c", code + PRINT_MODULES]
    done = warm.run(arguments, Path(__file__).parent, frameworks=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("modules:")[2].split())


def imported_by_new_process(code: str) -> set[str]:
    """Return the same for a process that begins with nothing."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RLCATALOG_", "PYTHON"))
    }
    command = [sys.executable, *WARNINGS_ARE_ERRORS, "-c", code + PRINT_MODULES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("modules:")[2].split())


def test_probe_finds_imports():
    assert {"rlcatalog", "numpy", "sqlite3"} <= imported_by("import rlcatalog, numpy, sqlite3")


IMPORT_KERNEL = """
import rlcatalog
assert rlcatalog.__version__
"""


@pytest.mark.parametrize(
    "module",
    [
        "numpy",
        "gymnasium",
        "importlib_metadata",
        "msgspec",
        "pluggy",
        "typer",
        "rich",
        *sorted(HEAVY),
    ],
)
def test_import_of_the_kernel_does_not_import(module):
    assert module not in modules_of_the_kernel()


@functools.cache
def modules_of_the_kernel():
    modules = imported_by_new_process(IMPORT_KERNEL)
    assert "rlcatalog" in modules
    return modules


LOOK_UP = """
import gymnasium, rlcatalog

catalog = rlcatalog.default_catalog()
assert len(catalog.plugins) >= 4
assert catalog.parts()
assert rlcatalog.MODEL_DEFAULTS["fcnet_hiddens"]
for name in ("CartPole-v1", "Pendulum-v1"):
    env = gymnasium.make(name)
    for framework in ("torch", "tf"):
        catalog.resolve(env.observation_space, env.action_space, {}, framework)
        explanation = catalog.explain(env.observation_space, env.action_space, {}, framework)
        assert explanation.as_dict()
"""


def test_lookups_import_plugins_but_no_framework():
    modules = imported_by(LOOK_UP)
    assert "rlcatalog_fcnet" in modules
    assert not modules & HEAVY


WRONG_CONFIGS = """
import gymnasium, rlcatalog
from rlcatalog.errors import CatalogError

env = gymnasium.make("CartPole-v1")
for config in ({"fcnet_hidden": [1]}, {"fcnet_hiddens": "x"}, {"custom_model": "nobody"}):
    try:
        rlcatalog.build(env=env, config=config)
    except CatalogError:
        continue
    raise AssertionError(config)
"""


def test_errors_of_the_config_come_before_any_framework():
    assert not imported_by(WRONG_CONFIGS) & HEAVY


# --- commands -------------------------------------------------------------------------------------


def run_command(*arguments: str) -> str:
    """Return code that runs a command line."""
    return f"""
import runpy, sys
sys.argv = {["rlcatalog", *arguments]!r}
try:
    runpy.run_module("rlcatalog_cli", run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
"""


ALL_PLUGINS_ARE_LOADED = """
import rlcatalog
for plugin in rlcatalog.default_catalog().plugins:
    assert plugin.status == "loaded", plugin
"""
EXPLAIN_IN_TORCH = run_command("explain", "CartPole-v1", "--framework", "torch")
EXPLAIN_IN_TF = run_command("explain", "CartPole-v1", "--framework", "tf")
COMMANDS = {
    "list": run_command("list") + run_command("--help"),
    "explain": EXPLAIN_IN_TORCH + EXPLAIN_IN_TF,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_imports_every_plugin_but_no_framework(command):
    modules = imported_by(COMMANDS[command] + ALL_PLUGINS_ARE_LOADED)
    plugins = {entry.value.partition(".")[0] for entry in entry_points(group="rlcatalog.plugins")}
    assert len(plugins) >= 4
    assert plugins <= modules
    assert not modules & {*HEAVY, "matplotlib"}


def write_plugin_that_imports_frameworks(folder):
    """Write a plugin as if it were installed in a folder, and almost empty modules in place of the
    frameworks, which take long to import.
    """
    for framework in HEAVY:
        # rlcatalog-tf asks an imported TensorFlow whether it is eager.
        code = "def executing_eagerly():\n    return True\n"
        (folder / f"{framework}.py").write_text(code, encoding="utf-8")
    (folder / "hasty.py").write_text(f"import {', '.join(HEAVY)}\n", encoding="utf-8")
    metadata = folder / "hasty-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: hasty\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[rlcatalog.plugins]\nhasty = hasty\n")


@pytest.mark.parametrize("command", ["list", pytest.param("explain", marks=pytest.mark.slow)])
def test_plugin_that_imports_frameworks_is_found(command, tmp_path):
    write_plugin_that_imports_frameworks(tmp_path)
    use_the_folder = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
    modules = imported_by(use_the_folder + COMMANDS[command])
    assert modules & HEAVY == HEAVY
