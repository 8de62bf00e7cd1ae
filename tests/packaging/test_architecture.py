"""The architecture: which package may import which.

import-linter checks the contracts in `pyproject.toml`. `tools/house_imports.py` checks what it does
not see: imports by string, and names behind a package's `__init__`. Both also have to find faults
that are written into a copy of the sources.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path, PurePosixPath

import pytest
from gymnasium.spaces import Box, Discrete
from house_code import Source, read_sources
from house_imports import LIBRARY, Imports, is_library

from rlcatalog import Match, ModelSpec, Rank
from rlcatalog.errors import AmbiguousChoiceError
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = ("catalog", "builtin_models/*", "builtin_dists/*", "plugins/*")
SOURCES = [path for pattern in PATTERNS for path in sorted(ROOT.glob(f"{pattern}/src"))]

#: File → a line that breaks the contract of that name.
FAULTS = {
    "The kernel's rooms import downward only": (
        "rlcatalog/spaces/info.py",
        "def upward():\n    from rlcatalog.choice import Resolution",
    ),
    "The kernel imports no plugin, and plugins import downward only": (
        "rlcatalog/catalog/catalog.py",
        "def upward():\n    from rlcatalog_policy import Policy",
    ),
    "Outsiders come in by the rooms' doors": (
        "rlcatalog_fcnet/config.py",
        "from rlcatalog.config.schema import Key",
    ),
    "The kernel's internals are the library packages' alone": (
        "rlcatalog_lstm/config.py",
        "from rlcatalog.internals import may_claim",
    ),
    "PyTorch is imported by files and folders called torch alone": (
        "rlcatalog_fcnet/config.py",
        "def net():\n    import torch.nn",
    ),
    "TensorFlow is imported by files and folders called tf alone": (
        "rlcatalog_torch/nn.py",
        "def net():\n    from tensorflow import nn",
    ),
    "What is written for one framework does not import the other's": (
        "rlcatalog_fcnet/torch.py",
        "from rlcatalog_fcnet.tf import FullyConnectedNetwork as Twin",
    ),
    "What is written for the other framework does not import the one's": (
        "rlcatalog_lstm/tf.py",
        "from rlcatalog_torch import dense",
    ),
    "A part runs no policy": (
        "rlcatalog_fcnet/torch.py",
        "def run():\n    from rlcatalog_policy import Policy",
    ),
    "Framework packages are imported by files called torch and tf": (
        "rlcatalog_runs/folders.py",
        "def act():\n    from rlcatalog_torch import TorchBackend",
    ),
    "The command line is imported by files called commands": (
        "rlcatalog_ppo/engine.py",
        "def shown():\n    from rlcatalog_cli import show_progress",
    ),
    "The conformance kit is imported by files called examples and checks": (
        "rlcatalog_lstm/config.py",
        "def tried():\n    from rlcatalog_testing import Example",
    ),
    "A plugin module imports nothing heavy": (
        "rlcatalog_visionnet/plugin.py",
        "import numpy as np",
    ),
}


def lint_imports(folders: list[Path]) -> str:
    """Return import-linter's report on the packages in some folders."""
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    options = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    done = subprocess.run(
        [sys.executable, "-c", code, *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


def test_sources_keep_every_contract():
    report = lint_imports(SOURCES)
    assert re.findall(r"^(.+) KEPT", report, re.M) == list(FAULTS), report
    assert " 0 broken" in report


def test_contracts_find_their_faults(tmp_path):
    for source in SOURCES:
        without_caches = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, tmp_path, dirs_exist_ok=True, ignore=without_caches)
    # Each fault is a line, written into a file, that breaks one contract.
    for file, line in FAULTS.values():
        with (tmp_path / file).open("a", encoding="utf-8") as copy:
            copy.write(f"\n{line}\n")

    report = lint_imports([tmp_path])

    broken_contracts = re.findall(r"^(.+) BROKEN", report, re.MULTILINE)
    assert broken_contracts == list(FAULTS), report


# --- imports that import-linter does not see ------------------------------------------------------


@pytest.fixture(scope="module")
def imports():
    """The imports of all packages."""
    return Imports(ROOT, read_sources(ROOT))


def test_imports_are_read_from_all_sources(imports):
    assert len(imports.sources) > 300


def test_rooms_of_the_kernel_import_downward(imports):
    assert imports.upward() == []


def test_packages_import_those_of_the_table(imports):
    assert imports.arrows() == []


def test_import_cycles_have_at_most_two_files(imports):
    assert [files for files in imports.cycles() if len(files) > 2] == []


#: Modules that read the files of installed distributions.
METADATA_READERS = ("importlib_metadata", "importlib.metadata", "pkg_resources")


def test_one_file_reads_installed_distributions(imports):
    assert imports.importers(METADATA_READERS) == ["rlcatalog.plugins.discovery"]


@pytest.mark.parametrize(
    "line",
    [
        "import importlib.metadata",
        "from importlib import metadata",
        "from importlib.metadata import version",
        "def read():\n    import importlib_metadata as metadata",
        "module = import_module('pkg_resources')",
    ],
)
def test_second_reader_of_distributions_is_found(line):
    source = Source(PurePosixPath("plugins/acme/src/acme/config.py"), line)
    imports = Imports(ROOT, [source])
    assert imports.importers(METADATA_READERS) == ["acme.config"]


def test_public_names_of_the_kernel_are_used_by_plugins(imports):
    plugins = imports.packages() - {"rlcatalog"}
    # The library packages may use internals, so they do not count.
    plugins -= {f"rlcatalog_{name}" for name in LIBRARY}

    def is_of_a_plugin(module):
        # Nor do files for one framework count.
        return module.partition(".")[0] in plugins or is_library(module, ("torch", "tf"))

    used_names = {name for _, name in imports.used_names(is_of_a_plugin)}
    public_names = [name for _, name in imports.names_at_doors({"rlcatalog"})]

    assert len(public_names) > 100
    # Those for users are not used: registration, explanations, RLlib's names.
    unused_names = [name for name in public_names if name not in used_names]
    assert len(unused_names) <= 20


# --- the page on the architecture -----------------------------------------------------------------


def read_architecture_page():
    return (ROOT / "docs/architecture.md").read_text(encoding="utf-8")


def read_rooms():
    """Return the kernel's rooms from the contract, the lowest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["id"] == "rooms")
    rooms = []
    for layer in reversed(layers):
        rooms += [room for room in layer.split(" | ") if not room.startswith("_")]
    return rooms


def test_page_lists_the_rooms_from_the_lowest():
    table = read_architecture_page().partition("| room |")[2].partition("\n\n")[0]
    listed = []
    for line in table.splitlines()[2:]:
        first_cell = line.split("|")[1]
        listed += re.findall(r"`(\w+)`", first_cell)
    rooms = read_rooms()
    assert sorted(listed) == sorted(rooms)
    assert listed[:11] == rooms[:11]  # further up, several rooms share a layer


def test_page_names_existing_files():
    files = set(re.findall(r"`([\w/]+/\w+\.py)`", read_architecture_page()))
    assert len(files) > 20
    for file in files:
        assert (ROOT / "catalog/src/rlcatalog" / file).is_file() or (ROOT / file).is_file(), file


def test_page_names_the_function_that_reports_ties():
    row = r"^\| how a tie is reported \| `(.+)`, function `(\w+)` \|$"
    file, function = re.search(row, read_architecture_page(), re.MULTILINE).groups()

    def match_all(request):
        return Match(Rank.SPECIFIC, "always")

    one = ModelSpec("one", {"torch": "m:C"}, "", match=match_all)
    two = ModelSpec("two", {"torch": "m:C"}, "", match=match_all)
    acme = PluginEntryPoint(plugin_of(rlcatalog_models=[one, two]), "acme")
    catalog = isolated_catalog("rlcatalog-preprocessors", "rlcatalog-categorical", acme)
    with pytest.raises(AmbiguousChoiceError, match="equally well") as caught:
        catalog.explain(Box(-1, 1, (3,)), Discrete(2), {}, "torch")

    # The error is raised in that file, by code that calls that function.
    last_frame = caught.traceback[-1]
    assert Path(last_frame.path) == ROOT / "catalog/src/rlcatalog" / file
    assert function in last_frame.frame.code.raw.co_names
