"""What is released: the extras that ask for packages, and the command that raises every version."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest
import version
from packaging.requirements import Requirement
from packaging.version import Version

import rlcatalog

ROOT = Path(__file__).resolve().parents[2]
CLONE, KERNEL = (
    tomllib.loads((ROOT / path).read_text(encoding="utf-8"))["project"]
    for path in ("pyproject.toml", "catalog/pyproject.toml")
)


def projects(root=ROOT):
    found = [
        tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        for path in sorted(root.glob("*/pyproject.toml")) + sorted(root.glob("*/*/pyproject.toml"))
    ]
    return {
        project["name"]: project for project in found if project["name"].startswith("rlcatalog")
    }


def lines(project):
    """Return all that a package asks for."""
    return [
        *project["dependencies"],
        *(line for extra in project.get("optional-dependencies", {}).values() for line in extra),
    ]


def asked_for(project, extra):
    """Return the packages that an extra brings, those that it brings by another extra included:
    name → their extras.
    """
    found = {}
    for line in project["optional-dependencies"][extra]:
        asked = Requirement(line.replace("{root:uri}", "file:///clone"))
        if asked.name == project["name"]:
            for inner in asked.extras:
                found |= asked_for(project, inner)
        else:
            found[asked.name] = sorted(asked.extras)
    return found


def asks_of(names):
    """Return the packages of the repository that packages ask for without an extra, those of these
    included.
    """
    known, waiting = projects(), list(names)
    found = set()
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        waiting += [
            r.name for r in map(Requirement, known[name]["dependencies"]) if r.name in known
        ]
    return found - {"rlcatalog"}


@pytest.mark.parametrize("extra", KERNEL["optional-dependencies"])
def test_a_clone_and_the_kernel_bring_the_same(extra):
    assert list(CLONE["optional-dependencies"]) == list(KERNEL["optional-dependencies"])
    released, clone = asked_for(KERNEL, extra), asked_for(CLONE, extra)
    # No index has the packages of a clone: each that another one asks for stands there itself.
    assert set(clone) == asks_of(released)
    assert {name: extras for name, extras in clone.items() if name in released} == released


def test_the_extras_bring_every_package():
    assert set(asked_for(KERNEL, "all")) == set(projects()) - {"rlcatalog"}


def test_what_a_clone_installs_lies_where_it_says(tmp_path):
    for lines in CLONE["optional-dependencies"].values():
        for line in lines:
            asked, _, path = line.partition(" @ {root:uri}/")
            if path:
                name = tomllib.loads((ROOT / path / "pyproject.toml").read_text(encoding="utf-8"))[
                    "project"
                ]["name"]
                assert name == Requirement(asked).name


def test_the_demo_has_what_the_install_line_brings():
    demo = (ROOT / "requirements/demo.txt").read_text(encoding="utf-8").splitlines()
    folders = [ROOT / line.removeprefix("-e ") for line in demo if line.startswith("-e ")]
    names = {
        tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
        for folder in folders
    }
    # and for the tests: Atari, the kit, and the ports of RLlib's code
    assert names == {
        *asked_for(KERNEL, "torch"),
        "rlcatalog",
        "rlcatalog-atari",
        "rlcatalog-testing",
        "rlcatalog-compat",
    }


def test_all_packages_have_one_version_and_ask_for_it():
    for name, project in projects().items():
        assert project.get("version", rlcatalog.__version__) == rlcatalog.__version__, name
        for line in lines(project):
            other = Requirement(line)
            if other.name.startswith("rlcatalog") and other.name != name:
                assert str(other.specifier) == str(
                    Requirement(f"x{version.bounds(Version(rlcatalog.__version__))}").specifier
                )


@pytest.mark.parametrize(
    ("asked", "bounds"),
    [
        ("0.2.0", ">=0.2,<0.3"),
        ("0.2.3", ">=0.2.3,<0.3"),
        ("1.0.0", ">=1.0,<2"),
        ("1.2.3", ">=1.2.3,<2"),
        ("2.0.0rc1", ">=2.0.0rc1,<3"),
    ],
)
def test_what_packages_ask_of_each_other_follows_from_the_version(asked, bounds):
    assert version.bounds(Version(asked)) == bounds
    assert Requirement(f"rlcatalog{bounds}").specifier.contains(asked, prereleases=True)


@pytest.fixture
def copy(tmp_path):
    """The files of the repository that hold a version."""
    for path in [
        *ROOT.glob("*/pyproject.toml"),
        *ROOT.glob("*/*/pyproject.toml"),
        ROOT / "CHANGELOG.md",
        ROOT / "catalog/src/rlcatalog/_version.py",
    ]:
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return tmp_path


def test_one_command_raises_every_version(copy, capsys):
    before = projects(copy)
    assert version.main(["0.7.1"], copy) == 0
    assert "make generate" in capsys.readouterr().out
    assert '__version__ = "0.7.1"' in (copy / "catalog/src/rlcatalog/_version.py").read_text(
        encoding="utf-8"
    )
    assert "## Unreleased: 0.7.1" in (copy / "CHANGELOG.md").read_text(encoding="utf-8")
    for name, project in projects(copy).items():
        assert project.get("version", "0.7.1") == "0.7.1"
        for line, was in zip(lines(project), lines(before[name]), strict=True):
            ours = Requirement(line).name.startswith("rlcatalog") and Requirement(line).name != name
            assert line.endswith(">=0.7.1,<0.8") if ours else line == was, name


@pytest.mark.parametrize(
    ("asked", "said"), [("0.0.9", "expected a version above"), ("new", "'new' is no version")]
)
def test_what_is_no_higher_version_changes_nothing(copy, capsys, asked, said):
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert version.main([asked], copy) == 2
    assert said in capsys.readouterr().err
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
