"""The packages: each folder looks the same, and says the same about itself."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement

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


def by_name(packages):
    return pytest.mark.parametrize("package", packages, ids=lambda package: package.distribution)


def test_the_packages_are_found():
    assert PACKAGES[0].is_kernel
    assert {
        "rlcatalog-preprocessors",
        "rlcatalog-fcnet",
        "rlcatalog-categorical",
        "rlcatalog-gaussian",
    } <= {package.distribution for package in PACKAGES}


def test_names_are_unique():
    for names in (
        [package.distribution for package in PACKAGES],
        [
            name
            for package in PLUGINS
            for name in package.project["entry-points"]["rlcatalog.plugins"]
        ],
    ):
        assert len(set(names)) == len(names)


@by_name(PACKAGES)
def test_every_package_folder_looks_the_same(package):
    readme = (package.folder / "README.md").read_text(encoding="utf-8")
    assert readme.startswith(f"# {package.distribution}\n\n")
    assert len(readme.splitlines()) > 5
    assert [
        path.name for path in (package.folder / "src").iterdir() if path.name != "__pycache__"
    ] == [package.module]
    assert (package.source / "__init__.py").read_text(encoding="utf-8").startswith('"""')
    assert (package.source / "py.typed").is_file()
    assert list((package.folder / "tests").glob("test_*.py"))
    assert not (package.folder / "tests" / "__init__.py").exists()
    if not package.is_kernel:
        assert (package.source / "plugin.py").read_text(encoding="utf-8").startswith('"""')


@by_name(PACKAGES)
def test_every_pyproject_says_the_same(package):
    settings = tomllib.loads((package.folder / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["build-system"] == {
        "requires": ["hatchling"],
        "build-backend": "hatchling.build",
    }
    assert settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [
        f"src/{package.module}"
    ]
    assert package.project["readme"] == "README.md"
    assert package.project["license"] == "Apache-2.0"
    assert package.project["requires-python"] == PACKAGES[0].project["requires-python"]
    assert package.project["description"].endswith(".")


@by_name(PACKAGES)
def test_the_frameworks_are_extras_and_nothing_more(package):
    required = {Requirement(line).name for line in package.project["dependencies"]}
    own = {"rlcatalog-torch": "torch", "rlcatalog-tf": "tensorflow"}.get(package.project["name"])
    assert required & {"torch", "tensorflow", "tensorflow-cpu", "keras"} == (
        {own} if own else set()
    )
    if own or package.project["name"] in (
        "rlcatalog-policy",
        "rlcatalog-runs",
        "rlcatalog-testing",
        "rlcatalog-cli",
    ):
        return  # the frameworks' own packages, and what runs with any
    extras = package.project["optional-dependencies"]
    for framework in ("torch", "tf"):
        wanted = {Requirement(line).name for line in extras[framework]}
        assert f"rlcatalog-{framework}" in wanted
        assert not wanted & {"torch", "tensorflow", "tensorflow-cpu"}


@by_name(PLUGINS)
def test_every_plugin_bounds_the_kernel_it_needs(package):
    from rlcatalog import __version__

    (kernel,) = [
        r for r in map(Requirement, package.project["dependencies"]) if r.name == "rlcatalog"
    ]
    operators = {specifier.operator for specifier in kernel.specifier}
    assert ">=" in operators
    assert "<" in operators
    assert kernel.specifier.contains(__version__, prereleases=True)


@by_name(PLUGINS)
def test_every_plugin_has_one_entry_point_its_plugin_module(package):
    assert list(package.project["entry-points"]["rlcatalog.plugins"].values()) == [
        f"{package.module}.plugin"
    ]


def test_the_kernel_is_no_plugin():
    assert "rlcatalog.plugins" not in PACKAGES[0].project.get("entry-points", {})
