"""The house: every package has the same rooms, and nobody imports what it must not.

The arrows are read from the source (an import that is never executed counts too) and from running processes.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]

#: Top-level modules of each framework.
FRAMEWORK_MODULES = {"torch": {"torch"}, "tf": {"tensorflow", "keras"}}

#: Packages that serve PyTorch alone: any of their modules may import it but `plugin.py`, and none TensorFlow.
TORCH_ONLY = {"rlcatalog_rllib", "rlcatalog_sb3"}

#: Names under which the kernel hands a framework on.
HANDED_ON = {"torch": set(), "tf": {"rlcatalog.tf.tf", "rlcatalog.tf.keras"}}


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
            found.append(Package(path.parent, tomllib.loads(path.read_text(encoding="utf-8"))["project"]))
    return found


PACKAGES = find_packages()
MODULES = {package.module for package in PACKAGES}
PLUGINS = [package for package in PACKAGES if not package.is_kernel]


def by_name(packages):
    return pytest.mark.parametrize("package", packages, ids=lambda package: package.distribution)


# --- the scanner -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Import:
    """One import: the dotted name, as far as the source tells, and where it stands."""

    name: str
    line: int
    top_level: bool

    @property
    def root(self) -> str:
        return self.name.partition(".")[0]

    def within(self, module: str) -> bool:
        return self.name == module or self.name.startswith(module + ".")


def imports(source: str, module: str = "m", is_package: bool = False) -> Iterator[Import]:
    """Find every import in a source text: statements anywhere, and import functions called with a literal.

    Args:
        source: The text.
        module: Dotted name of its module, to resolve relative imports.
        is_package: Whether it is a package's `__init__`.
    """
    tree = ast.parse(source)
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".") if is_package else module.split(".")[:-1]
                base = ".".join([*parents[: len(parents) - node.level + 1], *([base] if base else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                names = [node.args[0].value]
        for name in names:
            yield Import(name, node.lineno, id(node) not in inside)


def framework_of(path: Path) -> str | None:
    """Return the framework a file may import: `torch.py`'s or `tf.py`'s, in the kernel that of the folder."""
    if path.parts[0] in TORCH_ONLY:
        return None if path.name == "plugin.py" else "torch"
    name = path.parts[1] if path.parts[0] == "rlcatalog" else path.stem
    return name if name in FRAMEWORK_MODULES else None


def violations(source: str, path: Path, module: str) -> list[str]:
    """Say what a file of the repository imports that it must not.

    Args:
        source: The file's text.
        path: Its path, relative to the folder that holds its top package.
        module: Import name of its distribution.
    """
    mine = framework_of(path)
    is_package = path.name == "__init__.py"
    dotted = ".".join((path.parent if is_package else path.with_suffix("")).parts)
    wrong = []
    for found in imports(source, dotted, is_package):
        if found.root in MODULES - {module, "rlcatalog"}:
            who = "the kernel imports a plugin" if module == "rlcatalog" else "a plugin imports another plugin"
            wrong.append(f"{path}:{found.line}: {who}: {found.name}")
        for framework, names in FRAMEWORK_MODULES.items():
            own = found.within(f"rlcatalog.{framework}") or found.within(f"{module}.{framework}")
            # Neutral code hands over to a framework's part inside a function, once it knows which one is wanted.
            itself = found.root in names or found.name in HANDED_ON[framework]
            handed_over = own and mine is None and not found.top_level and not itself
            if (itself or own) and mine != framework and not handed_over:
                where = f"{mine} code" if mine else "framework-neutral code"
                wrong.append(f"{path}:{found.line}: {where} imports {found.name}")
        if path.name == "plugin.py" and found.top_level:
            allowed = found.root in sys.stdlib_module_names or found.root == "rlcatalog"
            if not allowed:
                wrong.append(f"{path}:{found.line}: plugin.py imports {found.name} at its top")
    return wrong


# --- the scanner, tried on texts that it must flag, and on texts that it must not ------------------------------------

OFFENDERS = [
    ("import rlcatalog_fcnet", "rlcatalog/registry.py", "rlcatalog", "the kernel imports a plugin"),
    ("def f():\n    from rlcatalog_fcnet.torch import X", "rlcatalog/a.py", "rlcatalog", "the kernel imports a plugin"),
    ("import importlib\nimportlib.import_module('rlcatalog_fcnet')", "rlcatalog/a.py", "rlcatalog", "a plugin"),
    ("__import__('rlcatalog_fcnet.config')", "rlcatalog/a.py", "rlcatalog", "the kernel imports a plugin"),
    (
        "from rlcatalog_categorical.plugin import size",
        "rlcatalog_gaussian/torch.py",
        "rlcatalog_gaussian",
        "a plugin imports another plugin: rlcatalog_categorical.plugin.size",
    ),
    ("if TYPE_CHECKING:\n    import torch", "rlcatalog/model.py", "rlcatalog", "framework-neutral code imports torch"),
    ("def f():\n    import torch.nn as nn", "rlcatalog_fcnet/config.py", "rlcatalog_fcnet", "imports torch.nn"),
    ("def f():\n    from tensorflow import keras", "rlcatalog_fcnet/plugin.py", "rlcatalog_fcnet", "tensorflow.keras"),
    ("import keras", "rlcatalog/policy.py", "rlcatalog", "framework-neutral code imports keras"),
    ("import tensorflow as tf", "rlcatalog/torch/nn.py", "rlcatalog", "torch code imports tensorflow"),
    ("def f():\n    from rlcatalog.tf import tf", "rlcatalog_fcnet/config.py", "rlcatalog_fcnet", "rlcatalog.tf.tf"),
    ("from rlcatalog.tf import keras", "rlcatalog_fcnet/torch.py", "rlcatalog_fcnet", "imports rlcatalog.tf.keras"),
    ("import torch", "rlcatalog/tf/ops.py", "rlcatalog", "tf code imports torch"),
    ("import torch", "rlcatalog_fcnet/tf.py", "rlcatalog_fcnet", "tf code imports torch"),
    ("from rlcatalog.torch.nn import dense", "rlcatalog_fcnet/tf.py", "rlcatalog_fcnet", "imports rlcatalog.torch.nn"),
    ("from .torch import Net", "rlcatalog_fcnet/tf.py", "rlcatalog_fcnet", "imports rlcatalog_fcnet.torch.Net"),
    ("def f():\n    from .torch import Net", "rlcatalog_fcnet/tf.py", "rlcatalog_fcnet", "tf code imports"),
    ("def f():\n    import torch", "rlcatalog_sb3/plugin.py", "rlcatalog_sb3", "framework-neutral code imports torch"),
    ("import keras", "rlcatalog_rllib/envs.py", "rlcatalog_rllib", "torch code imports keras"),
    ("import torch", "rlcatalog_fcnet/torch/net.py", "rlcatalog_fcnet", "framework-neutral code imports torch"),
    ("from rlcatalog import torch", "rlcatalog_fcnet/config.py", "rlcatalog_fcnet", "imports rlcatalog.torch"),
    ("from . import tf", "rlcatalog/__init__.py", "rlcatalog", "framework-neutral code imports rlcatalog.tf"),
    ("from ..tf import nn", "rlcatalog/torch/__init__.py", "rlcatalog", "torch code imports rlcatalog.tf.nn"),
    ("from ..tf import nn", "rlcatalog/torch/nn.py", "rlcatalog", "torch code imports rlcatalog.tf.nn"),
    ("import numpy as np", "rlcatalog_fcnet/plugin.py", "rlcatalog_fcnet", "plugin.py imports numpy at its top"),
    ("import rlcatalog_fcnet.config", "rlcatalog_fcnet/plugin.py", "rlcatalog_fcnet", "at its top"),
    ("if True:\n    import gymnasium", "rlcatalog_fcnet/plugin.py", "rlcatalog_fcnet", "imports gymnasium at its top"),
]

INNOCENTS = [
    ("import torch\nfrom torch import nn\nfrom rlcatalog.torch.nn import dense", "rlcatalog_fcnet/torch.py"),
    ("import tensorflow as tf\nfrom rlcatalog.tf.nn import Dense\nimport keras", "rlcatalog_fcnet/tf.py"),
    ("from rlcatalog.tf import keras, tf", "rlcatalog_fcnet/tf.py"),
    ("import math\nfrom rlcatalog import hookimpl\nimport rlcatalog.errors", "rlcatalog_fcnet/plugin.py"),
    ("def f():\n    from rlcatalog_fcnet.config import plan", "rlcatalog_fcnet/plugin.py"),
    ("def f():\n    from rlcatalog.torch.nn import dense\n    from .tf import Net", "rlcatalog_fcnet/config.py"),
    ("TARGET = 'rlcatalog_fcnet.torch:Net'\nprint('import torch')", "rlcatalog_fcnet/plugin.py"),
    ("import torchlike\nimport numpy", "rlcatalog_fcnet/config.py"),
    ("import torch\nfrom rlcatalog.torch.nn import dense", "rlcatalog_sb3/policies.py"),
]


@pytest.mark.parametrize(("source", "path", "module", "says"), OFFENDERS)
def test_the_scanner_flags_an_offender(source, path, module, says):
    (found,) = violations(source, Path(path), module) or [""]
    assert says in found
    assert path in found


@pytest.mark.parametrize(("source", "path"), INNOCENTS)
def test_the_scanner_leaves_an_innocent_alone(source, path):
    assert violations(source, Path(path), Path(path).parts[0]) == []


# --- the arrows ------------------------------------------------------------------------------------------------------


@by_name(PACKAGES)
def test_a_package_imports_only_what_it_may(package):
    files = sorted(package.source.rglob("*.py"))
    assert len(files) >= 2
    wrong = []
    for path in files:
        place = path.relative_to(package.folder / "src")
        wrong += violations(path.read_text(encoding="utf-8"), place, package.module)
    assert wrong == []


def test_the_frameworks_are_used_somewhere():
    """Else the scan above would prove nothing."""
    for framework, names in FRAMEWORK_MODULES.items():
        users = {
            package.distribution
            for package in PACKAGES
            for path in package.source.rglob("*.py")
            for found in imports(path.read_text(encoding="utf-8"))
            if found.root in names or found.name in HANDED_ON[framework]
        }
        assert {"rlcatalog", "rlcatalog-fcnet", "rlcatalog-categorical"} <= users, framework


# --- the rooms -------------------------------------------------------------------------------------------------------


def test_the_packages_of_one_framework_are_found():
    assert {package.module for package in PACKAGES} >= TORCH_ONLY


def test_the_packages_are_found():
    assert PACKAGES[0].is_kernel
    assert {"rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical", "rlcatalog-gaussian"} <= {
        package.distribution for package in PACKAGES
    }


def test_names_are_unique():
    for names in (
        [package.distribution for package in PACKAGES],
        [name for package in PLUGINS for name in package.project["entry-points"]["rlcatalog.plugins"]],
    ):
        assert len(set(names)) == len(names)


@by_name(PACKAGES)
def test_every_package_folder_looks_the_same(package):
    readme = (package.folder / "README.md").read_text(encoding="utf-8")
    assert readme.startswith(f"# {package.distribution}\n\n")
    assert len(readme.splitlines()) > 5
    assert [path.name for path in (package.folder / "src").iterdir() if path.name != "__pycache__"] == [package.module]
    assert (package.source / "__init__.py").read_text(encoding="utf-8").startswith('"""')
    assert (package.source / "py.typed").is_file()
    assert list((package.folder / "tests").glob("test_*.py"))
    assert not (package.folder / "tests" / "__init__.py").exists()
    if not package.is_kernel:
        assert (package.source / "plugin.py").read_text(encoding="utf-8").startswith('"""')


@by_name(PACKAGES)
def test_every_pyproject_says_the_same(package):
    settings = tomllib.loads((package.folder / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["build-system"] == {"requires": ["hatchling"], "build-backend": "hatchling.build"}
    assert settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [f"src/{package.module}"]
    assert package.project["readme"] == "README.md"
    assert package.project["license"] == "Apache-2.0"
    assert package.project["requires-python"] == PACKAGES[0].project["requires-python"]
    assert package.project["description"].endswith(".")


@by_name(PACKAGES)
def test_the_frameworks_are_extras_and_nothing_more(package):
    required = {Requirement(line).name for line in package.project["dependencies"]}
    assert not required & {"torch", "tensorflow", "tensorflow-cpu", "keras"}
    extras = package.project["optional-dependencies"]
    assert {"torch", "tf"} <= set(extras)
    for framework, library in (("torch", "torch"), ("tf", "tensorflow")):
        wanted = [Requirement(line) for line in extras[framework]]
        if package.is_kernel:
            assert [requirement.name for requirement in wanted] == [library]
        else:
            assert [(requirement.name, requirement.extras) for requirement in wanted] == [("rlcatalog", {framework})]


@by_name(PLUGINS)
def test_every_plugin_bounds_the_kernel_it_needs(package):
    from rlcatalog import __version__

    (kernel,) = [r for r in map(Requirement, package.project["dependencies"]) if r.name == "rlcatalog"]
    operators = {specifier.operator for specifier in kernel.specifier}
    assert ">=" in operators
    assert "<" in operators
    assert kernel.specifier.contains(__version__, prereleases=True)


@by_name(PLUGINS)
def test_every_plugin_has_one_entry_point_its_plugin_module(package):
    assert list(package.project["entry-points"]["rlcatalog.plugins"].values()) == [f"{package.module}.plugin"]


def test_the_kernel_is_no_plugin():
    assert "rlcatalog.plugins" not in PACKAGES[0].project.get("entry-points", {})


# --- the arrows at run time ------------------------------------------------------------------------------------------


def loaded_by(code: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has imported after running `code`."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("RLCATALOG_", "PYTHON"))}
    script = f"{code}\nimport sys\nprint('modules:', *sorted({{name.partition('.')[0] for name in sys.modules}}))"
    process = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", script],
        env=clean, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return set(process.stdout.rpartition("modules:")[2].split())


HEAVY = {"torch", "tensorflow", "keras"}


def test_the_probe_sees_imports():
    assert {"rlcatalog", "numpy", "sqlite3"} <= loaded_by("import rlcatalog, numpy, sqlite3")


def test_importing_the_package_imports_next_to_nothing():
    loaded = loaded_by("import rlcatalog\nassert rlcatalog.__version__")
    assert "rlcatalog" in loaded
    assert not loaded & {*HEAVY, "numpy", "gymnasium", "importlib_metadata", "msgspec", "pluggy", "typer", "rich"}


def test_loading_plugins_resolving_and_explaining_import_no_framework():
    loaded = loaded_by(
        "import gymnasium, rlcatalog\n"
        "catalog = rlcatalog.default_catalog()\n"
        "assert len(catalog.plugins) >= 4 and catalog.components()\n"
        "for name in ('CartPole-v1', 'Pendulum-v1'):\n"
        "    env = gymnasium.make(name)\n"
        "    for framework in ('torch', 'tf'):\n"
        "        catalog.resolve(env.observation_space, env.action_space, {}, framework)\n"
        "        assert catalog.explain(env.observation_space, env.action_space, {}, framework).as_dict()\n"
        "assert rlcatalog.MODEL_DEFAULTS['fcnet_hiddens']\n"
    )
    assert "rlcatalog_fcnet" in loaded
    assert not loaded & HEAVY


def command(*arguments: str) -> str:
    """Return code that runs the command line with these arguments."""
    return (
        "import runpy, sys\n"
        f"sys.argv = ['rlcatalog', *{arguments!r}]\n"
        "try:\n"
        "    runpy.run_module('rlcatalog', run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
    )


LOAD = "import rlcatalog\nassert {plugin.status for plugin in rlcatalog.default_catalog().plugins} == {'loaded'}"
WITHOUT_FRAMEWORK = {
    "load": LOAD,
    "list": command("list"),
    "explain, torch": command("explain", "CartPole-v1", "--framework", "torch"),
    "explain, tf": command("explain", "CartPole-v1", "--framework", "tf"),
}


@pytest.mark.parametrize("code", WITHOUT_FRAMEWORK.values(), ids=WITHOUT_FRAMEWORK)
def test_no_installed_plugin_imports_a_framework_before_it_builds(code):
    plugins = {entry.value.partition(".")[0] for entry in entry_points(group="rlcatalog.plugins")}
    loaded = loaded_by(code)
    assert len(plugins) >= 4
    assert plugins <= loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize("framework", sorted(HEAVY))
@pytest.mark.parametrize("code", ["list", "explain, torch"])
def test_a_plugin_that_imports_a_framework_at_its_top_is_seen(code, framework, tmp_path):
    """The negative control of the test above; the framework is an empty module, to be quick."""
    (tmp_path / f"{framework}.py").touch()
    (tmp_path / "hasty.py").write_text(f"import {framework}\n", encoding="utf-8")
    metadata = tmp_path / "hasty-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: hasty\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("[rlcatalog.plugins]\nhasty = hasty\n", encoding="utf-8")
    loaded = loaded_by(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{WITHOUT_FRAMEWORK[code]}")
    assert loaded & HEAVY == {framework}


def test_errors_about_the_config_come_before_any_framework():
    loaded = loaded_by(
        "import gymnasium, rlcatalog, rlcatalog.errors\n"
        "env = gymnasium.make('CartPole-v1')\n"
        "for config in ({'fcnet_hidden': [1]}, {'fcnet_hiddens': 'x'}, {'custom_model': 'nobody'}):\n"
        "    try:\n"
        "        rlcatalog.build(env=env, config=config)\n"
        "    except rlcatalog.errors.CatalogError as error:\n"
        "        print(error)\n"
        "    else:\n"
        "        raise AssertionError(config)\n"
    )
    assert not loaded & HEAVY
