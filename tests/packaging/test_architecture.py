"""The house: who may import whom.

The contracts stand in `pyproject.toml` and are import-linter's to check; what it does not see
(imports by string, what is behind a door) is `tools/house_imports.py`'s. Both are tried on copies
of the sources with faults put in.
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


def lint(folders: list[Path]) -> str:
    """Return import-linter's report on the packages in some folders."""
    path = os.pathsep.join(map(str, folders))
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--config",
            str(ROOT / "pyproject.toml"),
            "--no-cache",
        ],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def imports():
    """The imports of all packages."""
    return Imports(ROOT, read_sources(ROOT))


def test_the_contracts_are_kept():
    report = lint(SOURCES)
    assert re.findall(r"^(.+) KEPT", report, re.M) == list(FAULTS), report
    assert " 0 broken" in report


def test_each_contract_sees_its_fault(tmp_path):
    copy = tmp_path / "src"
    for source in SOURCES:
        shutil.copytree(
            source, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    assert lint([copy]).count("KEPT") == len(FAULTS)  # it is the copy's faults that are found below
    for file, line in FAULTS.values():
        with (copy / file).open("a", encoding="utf-8") as out:
            out.write(f"\n{line}\n")
    report = lint([copy])
    assert re.findall(r"^(.+) BROKEN", report, re.M) == list(FAULTS), report


def test_no_import_goes_upward_or_beside_the_table_and_no_cycle_is_large(imports):
    assert len(imports.sources) > 300
    assert imports.upward() == []
    assert imports.arrows() == []
    assert [members for members in imports.cycles() if len(members) > 2] == []


#: Packages that read the files of installed distributions.
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
def test_another_reader_of_distributions_is_seen(line):
    source = Source(PurePosixPath("plugins/acme/src/acme/config.py"), line)
    imports = Imports(ROOT, [source])
    assert imports.importers(METADATA_READERS) == ["acme.config"]


def test_doors_show_what_outsiders_use(imports):
    """Names that only the kernel or its library packages use stand at no door."""
    library = {f"rlcatalog_{name}" for name in LIBRARY}
    outsiders = imports.packages() - library - {"rlcatalog"}
    used = {
        name for _, name in imports.used_names(lambda module: module.partition(".")[0] in outsiders)
    }
    used |= {
        name for _, name in imports.used_names(lambda module: is_library(module, ("torch", "tf")))
    }
    names = imports.names_at_doors({"rlcatalog"})
    assert len(names) > 100
    # What users alone type: registration, explanations, RLlib's names; and what frameworks are
    # declared with.
    assert len([entry for entry in names if entry[1] not in used]) <= 20


def test_the_page_names_the_rooms_from_the_ground_up_and_files_that_are_there():
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "rooms")
    rooms = [
        room
        for layer in reversed(layers)
        for room in layer.split(" | ")
        if not room.startswith("_")
    ]
    table = page.partition("| room |")[2].partition("\n\n")[0]
    cells = [line.partition("|")[2].partition("|")[0] for line in table.splitlines()[2:]]
    named = [room for cell in cells for room in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(rooms)
    assert named[:11] == rooms[:11]  # above them, several stand side by side
    files = set(re.findall(r"`([\w/]+/\w+\.py)`", page))
    assert len(files) > 20
    kernel = ROOT / "catalog/src/rlcatalog"
    assert [
        file for file in files if not ((kernel / file).is_file() or (ROOT / file).is_file())
    ] == []


def test_the_page_sends_a_reader_of_ties_to_the_file_that_reports_them():
    twins = [
        ModelSpec(name, {"torch": "m:C"}, "", match=lambda request: Match(Rank.SPECIFIC, "always"))
        for name in ("acme_one", "acme_two")
    ]
    acme = PluginEntryPoint(plugin_of(rlcatalog_models=twins), "acme")
    catalog = isolated_catalog("rlcatalog-preprocessors", "rlcatalog-categorical", acme)
    with pytest.raises(AmbiguousChoiceError, match="equally well") as error:
        catalog.explain(Box(-1, 1, (3,)), Discrete(2), {}, "torch")
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    file, function = re.search(
        r"^\| how a tie is reported \| `(.+)`, function `(\w+)` \|$", page, re.M
    ).groups()
    kernel = ROOT / "catalog/src/rlcatalog"
    assert Path(str(error.traceback[-1].path)) == kernel / file
    assert function in error.traceback[-1].frame.code.raw.co_names
