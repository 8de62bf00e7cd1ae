"""The packages: each folder looks the same, and says the same about itself."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import rlcatalog

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Package:
    """One folder of the repository that is a distribution."""

    folder: Path
    project: dict

    @property
    def distribution(self) -> str:
        return self.project["name"]

    @property
    def module(self) -> str:
        return self.distribution.replace("-", "_")

    @property
    def source(self) -> Path:
        return self.folder / "src" / self.module

    @property
    def is_kernel(self) -> bool:
        return self.distribution == "rlcatalog"


def find_packages() -> list[Package]:
    """Return the repository's packages, the kernel first."""
    found = []
    for pattern in ("catalog", "builtin_models/*", "builtin_dists/*", "plugins/*"):
        for path in sorted(ROOT.glob(f"{pattern}/pyproject.toml")):
            found.append(
                Package(path.parent, tomllib.loads(path.read_text(encoding="utf-8"))["project"])
            )
    return found


PACKAGES = find_packages()
PLUGINS = [package for package in PACKAGES if not package.is_kernel]


def for_each(packages):
    return pytest.mark.parametrize("package", packages, ids=lambda package: package.distribution)


def requirement_names(lines):
    return {Requirement(line).name for line in lines}


def test_kernel_is_the_first_package():
    assert PACKAGES[0].is_kernel


def test_packages_include_the_smallest_set_for_cartpole():
    names = {package.distribution for package in PACKAGES}
    assert {"rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical"} <= names


def test_distribution_names_are_unique():
    names = [package.distribution for package in PACKAGES]
    assert len(set(names)) == len(names)


def test_entry_point_names_are_unique():
    names = []
    for package in PLUGINS:
        names += package.project["entry-points"]["rlcatalog.plugins"]
    assert len(set(names)) == len(names)


# --- folders --------------------------------------------------------------------------------------


@for_each(PACKAGES)
def test_package_has_a_readme(package):
    readme = (package.folder / "README.md").read_text(encoding="utf-8")
    assert readme.startswith(f"# {package.distribution}\n\n")
    assert len(readme.splitlines()) > 5


@for_each(PACKAGES)
def test_package_has_one_typed_module_with_a_docstring(package):
    modules = [path for path in (package.folder / "src").iterdir() if path.name != "__pycache__"]
    assert [path.name for path in modules] == [package.module]
    assert (package.source / "py.typed").is_file()
    assert (package.source / "__init__.py").read_text(encoding="utf-8").startswith('"""')


@for_each(PLUGINS)
def test_plugin_module_has_a_docstring(package):
    assert (package.source / "plugin.py").read_text(encoding="utf-8").startswith('"""')


@for_each(PACKAGES)
def test_package_has_tests(package):
    assert list((package.folder / "tests").glob("test_*.py"))
    # With one, two packages' tests would be modules of the same name.
    assert not (package.folder / "tests" / "__init__.py").exists()


# --- pyproject.toml -------------------------------------------------------------------------------


@for_each(PACKAGES)
def test_package_is_built_by_hatch_from_its_module(package):
    settings = tomllib.loads((package.folder / "pyproject.toml").read_text(encoding="utf-8"))
    build_system = {"requires": ["hatchling"], "build-backend": "hatchling.build"}
    assert settings["build-system"] == build_system
    wheel = settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == [f"src/{package.module}"]


@for_each(PACKAGES)
def test_package_has_the_metadata_of_all(package):
    assert package.project["readme"] == "README.md"
    assert package.project["license"] == "Apache-2.0"
    assert package.project["requires-python"] == PACKAGES[0].project["requires-python"]
    assert package.project["description"].endswith(".")


#: The packages of the frameworks, which require them.
FRAMEWORKS = {"rlcatalog-torch": "torch", "rlcatalog-tf": "tensorflow"}
#: These work with any framework that is there.
WITHOUT_FRAMEWORK_EXTRAS = {
    *FRAMEWORKS,
    "rlcatalog-policy",
    "rlcatalog-runs",
    "rlcatalog-testing",
    "rlcatalog-cli",
    "rlcatalog-envs",
    "rlcatalog-rsl-rl",
    "rlcatalog-skrl",
}
FRAMEWORK_DISTRIBUTIONS = {"torch", "tensorflow", "tensorflow-cpu", "keras"}


@for_each(PACKAGES)
def test_only_packages_of_frameworks_require_one(package):
    required = requirement_names(package.project["dependencies"])
    expected = set()
    if package.distribution in FRAMEWORKS:
        expected = {FRAMEWORKS[package.distribution]}
    assert required & FRAMEWORK_DISTRIBUTIONS == expected


@for_each([p for p in PACKAGES if p.distribution not in WITHOUT_FRAMEWORK_EXTRAS])
@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_framework_extra_brings_our_package_of_the_framework(package, framework):
    names = requirement_names(package.project["optional-dependencies"][framework])
    assert f"rlcatalog-{framework}" in names
    assert not names & FRAMEWORK_DISTRIBUTIONS  # which that package brings


@for_each(PLUGINS)
def test_plugin_bounds_the_kernel_from_both_sides(package):
    requirements = map(Requirement, package.project["dependencies"])
    (kernel,) = (requirement for requirement in requirements if requirement.name == "rlcatalog")
    operators = {specifier.operator for specifier in kernel.specifier}
    assert {">=", "<"} <= operators
    assert kernel.specifier.contains(rlcatalog.__version__, prereleases=True)


@for_each(PLUGINS)
def test_plugin_has_its_plugin_module_as_only_entry_point(package):
    entry_points = package.project["entry-points"]["rlcatalog.plugins"]
    assert list(entry_points.values()) == [f"{package.module}.plugin"]


def test_kernel_has_no_entry_point_for_plugins():
    assert "rlcatalog.plugins" not in PACKAGES[0].project.get("entry-points", {})
