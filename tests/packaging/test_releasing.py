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


def read_projects(root=ROOT):
    """Return name → project table of each of our packages, without the example of an outsider."""
    projects = {}
    for path in sorted(root.glob("*/pyproject.toml")) + sorted(root.glob("*/*/pyproject.toml")):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        if project["name"].startswith("rlcatalog"):
            projects[project["name"]] = project
    return projects


def requirement_lines(project):
    """Return the requirements of a package and of all its extras."""
    lines = list(project["dependencies"])
    for extra in project.get("optional-dependencies", {}).values():
        lines += extra
    return lines


def packages_of_extra(project, extra):
    """Return name → extras of the packages that an extra installs, also by another extra."""
    packages = {}
    for line in project["optional-dependencies"][extra]:
        requirement = Requirement(line.replace("{root:uri}", "file:///clone"))
        if requirement.name == project["name"]:
            for inner_extra in requirement.extras:
                packages |= packages_of_extra(project, inner_extra)
        else:
            packages[requirement.name] = sorted(requirement.extras)
    return packages


def with_dependencies(names):
    """Return our packages of these names, and those that they require, without the kernel."""
    projects = read_projects()
    waiting = list(names)
    found = set()
    while waiting:
        name = waiting.pop()
        if name in projects and name not in found:
            found.add(name)
            waiting += [Requirement(line).name for line in projects[name]["dependencies"]]
    return found - {"rlcatalog"}


# --- extras ---------------------------------------------------------------------------------------


def test_clone_has_the_extras_of_the_kernel():
    assert list(CLONE["optional-dependencies"]) == list(KERNEL["optional-dependencies"])


@pytest.mark.parametrize("extra", KERNEL["optional-dependencies"])
def test_extra_of_the_clone_installs_what_the_kernels_installs(extra):
    of_kernel = packages_of_extra(KERNEL, extra)
    of_clone = packages_of_extra(CLONE, extra)
    for name, extras in of_kernel.items():
        assert of_clone[name] == extras
    # No index has the packages of a clone, so it also lists those that these require.
    assert set(of_clone) == with_dependencies(of_kernel)


#: The packages that `[all]` leaves out: rsl_rl brings TensorBoard, and skrl is not needed without a
#: simulator.
NOT_IN_ALL = {"rlcatalog-rsl-rl", "rlcatalog-skrl"}


def test_extra_all_installs_every_package():
    others = set(read_projects()) - {"rlcatalog"} - NOT_IN_ALL
    assert set(packages_of_extra(KERNEL, "all")) == others


def test_paths_of_the_clone_lead_to_the_named_packages():
    for lines in CLONE["optional-dependencies"].values():
        for line in lines:
            requirement, _, path = line.partition(" @ {root:uri}/")
            if path:
                text = (ROOT / path / "pyproject.toml").read_text(encoding="utf-8")
                assert tomllib.loads(text)["project"]["name"] == Requirement(requirement).name


def test_demo_installs_the_torch_extra_and_packages_for_tests():
    names = set()
    for line in (ROOT / "requirements/demo.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("-e "):
            text = (ROOT / line.removeprefix("-e ") / "pyproject.toml").read_text(encoding="utf-8")
            names.add(tomllib.loads(text)["project"]["name"])
    for_tests = {"rlcatalog-atari", "rlcatalog-testing", "rlcatalog-compat"}
    assert names == {"rlcatalog"} | set(packages_of_extra(KERNEL, "torch")) | for_tests


# --- versions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", read_projects())
def test_package_has_the_version_of_the_kernel(name):
    version_of_package = read_projects()[name].get("version", rlcatalog.__version__)
    assert version_of_package == rlcatalog.__version__


@pytest.mark.parametrize("name", read_projects())
def test_package_requires_this_version_of_our_others(name):
    bounds = version.bounds(Version(rlcatalog.__version__))
    expected = Requirement(f"x{bounds}").specifier
    for requirement in map(Requirement, requirement_lines(read_projects()[name])):
        if requirement.name.startswith("rlcatalog") and requirement.name != name:
            assert str(requirement.specifier) == str(expected)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("0.2.0", ">=0.2,<0.3"),
        ("0.2.3", ">=0.2.3,<0.3"),
        ("1.0.0", ">=1.0,<2"),
        ("1.2.3", ">=1.2.3,<2"),
        ("2.0.0rc1", ">=2.0.0rc1,<3"),
    ],
)
def test_bounds_end_before_the_next_breaking_version(number, expected):
    assert version.bounds(Version(number)) == expected
    assert Requirement(f"rlcatalog{expected}").specifier.contains(number, prereleases=True)


# --- tools/version.py -----------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path):
    """A copy of the files of the repository that contain a version."""
    files = [*ROOT.glob("*/pyproject.toml"), *ROOT.glob("*/*/pyproject.toml")]
    files += [ROOT / "CHANGELOG.md", ROOT / "catalog/src/rlcatalog/_version.py"]
    for path in files:
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return tmp_path


def read_files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_version_raises_that_of_kernel_and_changelog(checkout, capsys):
    assert version.main(["0.7.1"], checkout) == 0
    text = (checkout / "catalog/src/rlcatalog/_version.py").read_text(encoding="utf-8")
    assert '__version__ = "0.7.1"' in text
    changelog = (checkout / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## Unreleased: 0.7.1" in changelog
    assert "make generate" in capsys.readouterr().out


def test_version_raises_that_of_every_package(checkout):
    version.main(["0.7.1"], checkout)
    for name, project in read_projects(checkout).items():
        assert project.get("version", "0.7.1") == "0.7.1", name


def test_version_raises_requirements_of_our_packages_alone(checkout):
    projects_before = read_projects(checkout)

    version.main(["0.7.1"], checkout)

    for name, project in read_projects(checkout).items():
        lines_before = requirement_lines(projects_before[name])
        for line_before, line in zip(lines_before, requirement_lines(project), strict=True):
            required = Requirement(line_before).name
            if required.startswith("rlcatalog") and required != name:
                assert line.endswith(">=0.7.1,<0.8")
            else:
                assert line == line_before


@pytest.mark.parametrize(
    ("number", "message"), [("0.0.9", "expected a version above"), ("new", "'new' is no version")]
)
def test_version_that_is_not_higher_changes_no_file(checkout, capsys, number, message):
    before = read_files(checkout)
    assert version.main([number], checkout) == 2
    assert message in capsys.readouterr().err
    assert read_files(checkout) == before
