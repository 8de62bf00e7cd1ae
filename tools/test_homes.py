"""Check of test homes: `python tools/test_homes.py` finds tests that belong to one package.

A file below `tests/` checks several packages together. If it imports only one package of this
repository, it belongs in that package's own `tests/`. Some packages do not count:

- the kernel, which every test imports, unless it is the only one;
- rlcatalog_testing, if only its helpers for made-up plugins are imported.

`rlcatalog.build` counts as rlcatalog_policy, because the kernel takes it from there.

The catalog finds parts by name, so a test can cross packages without importing them. The docstring
of such a file names them in its last line: `Crosses: policy, gaussian, bounded.` or, if it goes
through every installed package, `Crosses: all packages.`
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KERNEL = "rlcatalog"
#: Names that the kernel takes from other packages: name → package.
FROM_OTHERS = {
    "build": "rlcatalog_policy",
    "load": "rlcatalog_policy",
    "Policy": "rlcatalog_policy",
    "Actor": "rlcatalog_export",
}
#: Helpers of rlcatalog_testing that the tests of all packages use.
HELPERS = {"PluginEntryPoint", "isolated_catalog", "plugin_of"}
#: Folders of `tests/` for what is in no package: pages, examples, benchmarks, wheels, tools.
NOT_PACKAGES = ("docs", "learning", "packaging", "seeds", "support", "tools")


def find_packages(root: Path) -> dict[str, str]:
    """Return import name → folder for each package, such as rlcatalog_ppo → plugins/ppo."""
    packages = {}
    for project in [*root.glob("*/pyproject.toml"), *root.glob("*/*/pyproject.toml")]:
        for module in project.parent.glob("src/*"):
            packages[module.name] = project.parent.relative_to(root).as_posix()
    return packages


def imported_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield (package, name) for each import; the name is empty if a whole module is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield node.module.partition(".")[0], alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0], ""
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == KERNEL:
            yield KERNEL, node.attr


def imported_packages(tree: ast.AST, packages: dict[str, str]) -> set[str]:
    """Return the packages of this repository that a test file imports and that count."""
    imported = set()
    for package, name in imported_names(tree):
        if package == KERNEL:
            package = FROM_OTHERS.get(name, KERNEL)
        if package == "rlcatalog_testing" and name in HELPERS:
            package = KERNEL
        if package in packages:
            imported.add(package)
    if imported != {KERNEL}:
        imported.discard(KERNEL)
    return imported


def crossed_packages(tree: ast.Module) -> set[str]:
    """Return what the line `Crosses: …` of a file's docstring names: folders of packages."""
    line = re.search(r"^Crosses: (.+)\.$", ast.get_docstring(tree) or "", re.MULTILINE)
    if line is None:
        return set()
    return set(line[1].split(", "))


def find_faults(root: Path) -> Iterator[str]:
    """Yield a line for each test file that is not in its home."""
    packages = find_packages(root)
    folders = {Path(folder).name for folder in packages.values()}
    for path in sorted(root.glob("tests/**/test_*.py")):
        name = path.relative_to(root).as_posix()
        if path.relative_to(root).parts[1] in NOT_PACKAGES:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        crossed = crossed_packages(tree)
        if crossed == {"all packages"}:
            crossed = folders
        unknown = sorted(crossed - folders)
        imported = imported_packages(tree, packages)
        if unknown:
            yield f"{name}: `Crosses:` names {', '.join(unknown)}, not the folder of a package"
        elif len(imported) == 1 and len(crossed) < 2:
            (package,) = imported
            yield (
                f"{name}: imports {package} alone. Move it to {packages[package]}/tests, or name"
                " the packages that it crosses in its docstring: `Crosses: policy, gaussian.`"
            )


def main(root: Path = ROOT) -> int:
    """Run the command, and return its exit status."""
    faults = list(find_faults(root))
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
