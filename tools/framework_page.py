"""Writes the table of the page for authors of frameworks, `docs/howto/own_framework.md`.

It says which tensor operations the framework-neutral code asks for. What the code reads of a name
such as `ops` is found in the source.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import generated

from rlcatalog.frameworks import TensorOps

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/howto/own_framework.md"
#: Who asks → the files whose code asks, relative to the repository; a folder stands for all its
#: files. The order is that of the table, from what every policy needs to what few need.
ASKERS = {
    "every policy": (
        "catalog/src/rlcatalog/models/bookkeeping.py",
        "plugins/policy/src/rlcatalog_policy/encoder.py",
        "plugins/policy/src/rlcatalog_policy/raw_actions.py",
    ),
    "action masks": ("catalog/src/rlcatalog/actions/distribution.py",),
    "structured observations, for models that read them": (
        "catalog/src/rlcatalog/observations",
        "catalog/src/rlcatalog/models/flatten_structured.py",
        "plugins/preprocessors/src/rlcatalog_preprocessors/arrays.py",
        "plugins/preprocessors/src/rlcatalog_preprocessors/graph.py",
        "plugins/preprocessors/src/rlcatalog_preprocessors/integers.py",
        "plugins/preprocessors/src/rlcatalog_preprocessors/lists.py",
        "plugins/preprocessors/src/rlcatalog_preprocessors/text.py",
    ),
    "memories, views of past steps": (
        "plugins/policy/src/rlcatalog_policy/history.py",
        "plugins/policy/src/rlcatalog_policy/state.py",
        "catalog/src/rlcatalog/models/past_inputs.py",
        "catalog/src/rlcatalog/actions/tensor_actions.py",
        "catalog/src/rlcatalog/actions/codec.py",
        "plugins/preprocessors/src/rlcatalog_preprocessors/actions",
    ),
    "acting on tensors, if the backend has `tensor_device`": (
        "plugins/policy/src/rlcatalog_policy/tensor_acting.py",
        "plugins/policy/src/rlcatalog_policy/tensor_checks.py",
        "plugins/policy/src/rlcatalog_policy/tensor_encoder.py",
    ),
    "PPO, A2C and PG": (
        "plugins/ppo/src/rlcatalog_ppo/update.py",
        "plugins/ppo/src/rlcatalog_ppo/optimizer.py",
    ),
    "code that packages of models share between frameworks": ("builtin_models",),
    "code that packages of distributions share between frameworks": ("builtin_dists",),
    "the conformance kit": ("plugins/testing/src",),
    "exports": ("plugins/export/src", "plugins/filters/src"),
    "RLlib's functions in rlcatalog-compat": ("plugins/compat/src",),
}
#: Files for one framework, which use its library, and not these operations.
OF_ONE_FRAMEWORK = ("torch", "tf")
#: Functions whose result is a framework's operations.
MAKERS = ("tensor_ops", "ops_of")
#: The names of all operations.
OPERATIONS = frozenset(
    name for name, value in vars(TensorOps).items() if callable(value) and not name.startswith("_")
)


def operations_in(file: Path) -> set[str]:
    """Return the tensor operations that a file's code reads of a name such as `ops`."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr in OPERATIONS and _is_ops(node.value):
            found.add(node.attr)
    return found


def _is_ops(node: ast.expr) -> bool:
    """Return whether an expression is a framework's operations, by its name."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in MAKERS
    name = ""
    if isinstance(node, ast.Name):
        name = node.id
    elif isinstance(node, ast.Attribute):
        name = node.attr
    return name in ("ops", "_ops")


def files_of(path: str) -> Iterator[Path]:
    """Yield the files with framework-neutral code of a file or a folder."""
    place = ROOT / path
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    for file in files:
        names = {file.stem, *file.relative_to(ROOT).parts}
        if names.isdisjoint(OF_ONE_FRAMEWORK):
            yield file


def askers_of_operations() -> dict[str, list[str]]:
    """Return operation → who asks for it, in the order of `ASKERS`."""
    askers = defaultdict(list)
    for asker, paths in ASKERS.items():
        operations = set()
        for path in paths:
            for file in files_of(path):
                operations |= operations_in(file)
        for operation in operations:
            askers[operation].append(asker)
    return askers


def unlisted_files() -> list[Path]:
    """Return the files with framework-neutral code that reads operations and is in no row of the
    table.
    """
    listed = {file for paths in ASKERS.values() for path in paths for file in files_of(path)}
    unlisted = []
    for folder in ("catalog/src", "plugins", "builtin_models", "builtin_dists"):
        for file in files_of(folder):
            is_source = "src" in file.parts
            is_framework = {"rlcatalog_torch", "rlcatalog_tf", "rlcatalog_rllib"} & set(file.parts)
            is_table = file.name == "ops.py"
            if file in listed or not is_source or is_framework or is_table:
                continue
            if operations_in(file):
                unlisted.append(file)
    return unlisted


def operations_table() -> str:
    """Return the table of who asks for which operations."""
    askers = askers_of_operations()
    rows = []
    for asker in ASKERS:
        operations = sorted(name for name in askers if asker in askers[name])
        rows.append((asker, ", ".join(f"`{name}`" for name in operations) or "none"))
    return generated.table(("who asks", "operations"), *rows)


def main(arguments: list[str]) -> int:
    """Write the page's table, or with `--check` say whether it is up to date."""
    unlisted = unlisted_files()
    if unlisted:
        names = ", ".join(str(file.relative_to(ROOT)) for file in unlisted)
        raise SystemExit(f"framework_page.py: add to ASKERS: {names}")
    text = PAGE.read_text(encoding="utf-8")
    tables = {"operations": operations_table()}
    return generated.write({PAGE: generated.fill(PAGE, text, tables)}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
