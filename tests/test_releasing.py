"""What is released: the umbrella that asks for all packages, and the command that raises every version."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import rlcatalog

ROOT = Path(__file__).resolve().parents[1]
UMBRELLA = tomllib.loads((ROOT / "plugins/all/pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def version():
    spec = importlib.util.spec_from_file_location("version", ROOT / "tools/version.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def projects(root=ROOT):
    found = [tomllib.loads(path.read_text(encoding="utf-8"))["project"] for path in
             sorted(root.glob("*/pyproject.toml")) + sorted(root.glob("*/*/pyproject.toml"))]  # fmt: skip
    return {project["name"]: project for project in found if project["name"].startswith("rlcatalog")}


def lines(project):
    """Return all that a package asks for."""
    return [
        *project["dependencies"],
        *(line for extra in project.get("optional-dependencies", {}).values() for line in extra),
    ]


def test_the_umbrella_asks_for_every_package_once():
    asked = [Requirement(line).name for line in UMBRELLA["dependencies"]]
    extras = UMBRELLA["optional-dependencies"]
    optional = [Requirement(line).name for name in ("torch", "tf", "sb3", "rllib", "onnx") for line in extras[name]]
    assert sorted([*asked, *optional, "rlcatalog-all"]) == sorted(projects())
    # What `make demo` installs from here is what the line with [torch] brings.
    demo = (ROOT / "requirements/demo.txt").read_text(encoding="utf-8").splitlines()
    folders = [ROOT / line.removeprefix("-e ") for line in demo if line.startswith("-e ")]
    names = [
        tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"] for folder in folders
    ]
    assert sorted(names) == sorted([*asked, "rlcatalog-torch"])


def test_the_umbrella_holds_no_code(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT / "plugins/all", check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = tmp_path.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        assert all(".dist-info/" in name for name in archive.namelist())
        metadata = archive.read(next(n for n in archive.namelist() if n.endswith("METADATA"))).decode()
    assert "Requires-Dist: rlcatalog-torch<0.2,>=0.1; extra == 'torch'" in metadata


def test_all_packages_have_one_version_and_ask_for_it(version):
    for name, project in projects().items():
        assert project.get("version", rlcatalog.__version__) == rlcatalog.__version__, name
        for line in lines(project):
            other = Requirement(line)
            if other.name.startswith("rlcatalog") and not other.extras:
                assert str(other.specifier) == str(
                    Requirement(f"x{version.bounds(Version(rlcatalog.__version__))}").specifier
                )


@pytest.mark.parametrize(
    ("asked", "bounds"),
    [("0.2.0", ">=0.2,<0.3"), ("0.2.3", ">=0.2.3,<0.3"), ("1.0.0", ">=1.0,<2"), ("1.2.3", ">=1.2.3,<2"),
     ("2.0.0rc1", ">=2.0.0rc1,<3")],
)  # fmt: skip
def test_what_packages_ask_of_each_other_follows_from_the_version(version, asked, bounds):
    assert version.bounds(Version(asked)) == bounds
    assert Requirement(f"rlcatalog{bounds}").specifier.contains(asked, prereleases=True)


@pytest.fixture
def copy(tmp_path):
    """The files of the repository that hold a version."""
    for path in [*ROOT.glob("*/pyproject.toml"), *ROOT.glob("*/*/pyproject.toml"), ROOT / "CHANGELOG.md",
                 ROOT / "catalog/src/rlcatalog/_version.py"]:  # fmt: skip
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return tmp_path


def test_one_command_raises_every_version(version, copy, capsys):
    before = projects(copy)
    assert version.main(["0.7.1"], copy) == 0
    assert "make generate" in capsys.readouterr().out
    assert '__version__ = "0.7.1"' in (copy / "catalog/src/rlcatalog/_version.py").read_text(encoding="utf-8")
    assert "## Unreleased: 0.7.1" in (copy / "CHANGELOG.md").read_text(encoding="utf-8")
    for name, project in projects(copy).items():
        assert project.get("version", "0.7.1") == "0.7.1"
        for line, was in zip(lines(project), lines(before[name]), strict=True):
            ours = Requirement(line).name.startswith("rlcatalog") and not Requirement(line).extras
            assert line.endswith(">=0.7.1,<0.8") if ours else line == was, name


@pytest.mark.parametrize(("asked", "said"), [("0.0.9", "expected a version above"), ("new", "'new' is no version")])
def test_what_is_no_higher_version_changes_nothing(version, copy, capsys, asked, said):
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert version.main([asked], copy) == 2
    assert said in capsys.readouterr().err
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
