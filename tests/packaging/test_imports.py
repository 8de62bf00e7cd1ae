"""What running processes import: next to nothing at first, and no framework before something is
built.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import warm


def loaded_by(code: str, fresh: bool = False) -> set[str]:
    """Return the top-level modules that a process has imported after running `code`.

    Unless it is to be a fresh one, it begins with what `warm.LIGHT` names.
    """
    script = (
        f"{code}\nimport sys\nprint('modules:', *sorted({{name.partition('.')[0] for name in"
        f" sys.modules}}))"
    )
    arguments = ["-W", "error::UserWarning", "-c", script]
    if fresh:
        clean = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("RLCATALOG_", "PYTHON"))
        }
        process = subprocess.run(
            [sys.executable, *arguments], env=clean, capture_output=True, text=True, timeout=60
        )
    else:
        process = warm.run(arguments, Path(__file__).parent, frameworks=False)
    assert process.returncode == 0, process.stderr
    return set(process.stdout.rpartition("modules:")[2].split())


HEAVY = {"torch", "tensorflow", "keras"}


def test_the_probe_sees_imports():
    assert {"rlcatalog", "numpy", "sqlite3"} <= loaded_by("import rlcatalog, numpy, sqlite3")


def test_importing_the_package_imports_next_to_nothing():
    loaded = loaded_by("import rlcatalog\nassert rlcatalog.__version__", fresh=True)
    assert "rlcatalog" in loaded
    assert not loaded & {
        *HEAVY,
        "numpy",
        "gymnasium",
        "importlib_metadata",
        "msgspec",
        "pluggy",
        "typer",
        "rich",
    }


def test_loading_plugins_resolving_and_explaining_import_no_framework():
    loaded = loaded_by(
        "import gymnasium, rlcatalog\ncatalog = rlcatalog.default_catalog()\nassert"
        " len(catalog.plugins) >= 4 and catalog.components()\nfor name in ('CartPole-v1',"
        " 'Pendulum-v1'):\n    env = gymnasium.make(name)\n    for framework in ('torch', 'tf'):\n"
        "        catalog.resolve(env.observation_space, env.action_space, {}, framework)\n"
        "        assert catalog.explain(env.observation_space, env.action_space, {},"
        " framework).as_dict()\nassert rlcatalog.MODEL_DEFAULTS['fcnet_hiddens']\n"
    )
    assert "rlcatalog_fcnet" in loaded
    assert not loaded & HEAVY


def command(*arguments: str) -> str:
    """Return code that runs the command line with these arguments."""
    return (
        "import runpy, sys\n"
        f"sys.argv = ['rlcatalog', *{arguments!r}]\n"
        "try:\n"
        "    runpy.run_module('rlcatalog_cli', run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
    )


LOAD = """
import rlcatalog
wrong = [plugin for plugin in rlcatalog.default_catalog().plugins if plugin.status != 'loaded']
assert not wrong, wrong
"""
WITHOUT_FRAMEWORK = {
    "list": command("list") + command("--help"),
    "explain": command("explain", "CartPole-v1", "--framework", "torch")
    + command("explain", "CartPole-v1", "--framework", "tf"),
}


@pytest.mark.parametrize("code", WITHOUT_FRAMEWORK.values(), ids=WITHOUT_FRAMEWORK)
def test_no_installed_plugin_imports_a_framework_before_it_builds(code):
    plugins = {entry.value.partition(".")[0] for entry in entry_points(group="rlcatalog.plugins")}
    loaded = loaded_by(code + LOAD)
    assert len(plugins) >= 4
    assert plugins <= loaded
    assert not loaded & {*HEAVY, "matplotlib"}


@pytest.mark.parametrize("code", ["list", pytest.param("explain", marks=pytest.mark.attack)])
def test_a_plugin_that_imports_frameworks_at_its_top_is_seen(code, tmp_path):
    """The negative control of the test above; the frameworks are nearly empty
    modules, to be quick.
    """
    for framework in HEAVY:
        # rlcatalog-tf asks a TensorFlow that is loaded already whether it is eager.
        (tmp_path / f"{framework}.py").write_text(
            "def executing_eagerly():\n    return True\n", encoding="utf-8"
        )
    (tmp_path / "hasty.py").write_text(f"import {', '.join(HEAVY)}\n", encoding="utf-8")
    metadata = tmp_path / "hasty-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: hasty\nVersion: 1.0\n", encoding="utf-8"
    )
    (metadata / "entry_points.txt").write_text(
        "[rlcatalog.plugins]\nhasty = hasty\n", encoding="utf-8"
    )
    loaded = loaded_by(
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{WITHOUT_FRAMEWORK[code]}"
    )
    assert loaded & HEAVY == HEAVY


def test_errors_about_the_config_come_before_any_framework():
    loaded = loaded_by(
        "import gymnasium, rlcatalog, rlcatalog.errors\nenv = gymnasium.make('CartPole-v1')\nfor"
        " config in ({'fcnet_hidden': [1]}, {'fcnet_hiddens': 'x'}, {'custom_model': 'nobody'}):\n"
        "    try:\n        rlcatalog.build(env=env, config=config)\n    except"
        " rlcatalog.errors.CatalogError as error:\n        print(error)\n    else:\n        raise"
        " AssertionError(config)\n"
    )
    assert not loaded & HEAVY
