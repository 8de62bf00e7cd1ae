"""Prints what the house is measured by: rooms, cycles, imports upward, switches on kinds of space, sizes.

`python tools/house.py [FOLDER]`, FOLDER another checkout to compare with. Imports inside functions and by string count.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = {
    "box", "discrete", "multi_discrete", "multi_binary", "tuple", "dict", "text", "sequence", "graph", "oneof",
    "repeated", "simplex",
}  # fmt: skip


class House:
    """The modules of the kernel and what each imports.

    Args:
        folder: A checkout.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "catalog/src"
        self.files = {self._name(path): path for path in sorted((self.source / "rlcatalog").rglob("*.py"))}
        self.doors = {name: self._door(path) for name, path in self.files.items() if path.name == "__init__.py"}
        self.imports = {name: set(self._imports(name, path)) for name, path in self.files.items()}

    def _name(self, path: Path) -> str:
        parts = path.relative_to(self.source).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def _door(self, path: Path) -> dict[str, str]:
        """Return name → module of what a room's door shows, read from its stub."""
        stub, room, found = path.with_suffix(".pyi"), self._name(path), {}
        if stub.is_file():
            for node in ast.parse(stub.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ImportFrom):
                    for alias in node.names:
                        found[alias.name] = f"{room}.{node.module}" if node.module else f"{room}.{alias.name}"
        return found

    def _imports(self, name: str, path: Path) -> Iterator[str]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        unseen = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if id(node) in unseen:
                continue
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                for alias in node.names:
                    yield from self._behind(node.module, alias.name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._behind(alias.name, "")
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                module = node.value.partition(":")[0]
                if module.startswith("rlcatalog.") and module in self.files:
                    yield from self._behind(module, "")

    def _behind(self, module: str, name: str) -> Iterator[str]:
        """Yield the file that an imported name stands in, past the doors on the way."""
        if f"{module}.{name}" in self.files:
            module = f"{module}.{name}"
        while module in self.doors and name in self.doors[module]:
            module = self.doors[module][name]
        if module in self.files and module != "rlcatalog":
            yield module

    def cycles(self) -> list[list[str]]:
        """Return the sets of modules that import one another, the largest first (Tarjan 1972)."""
        index: dict[str, int] = {}
        low: dict[str, int] = {}
        stack: list[str] = []
        found: list[list[str]] = []

        def visit(name: str) -> None:
            index[name] = low[name] = len(index)
            stack.append(name)
            for other in self.imports[name]:
                if other not in index:
                    visit(other)
                if other in stack:
                    low[name] = min(low[name], low[other])
            if low[name] == index[name]:
                members = stack[stack.index(name) :]
                del stack[stack.index(name) :]
                found.append(sorted(members))

        for name in self.files:
            if name not in index and name != "rlcatalog":
                visit(name)
        return sorted((members for members in found if len(members) > 1), key=len, reverse=True)

    def upward(self) -> list[str]:
        """Return the imports from a lower room to a higher one, by the order that `pyproject.toml` gives."""
        contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
        layers = next(c["layers"] for c in contracts["contracts"] if c["id"] == "rooms")
        height = {room: -i for i, layer in enumerate(layers) for room in layer.split(" | ")}
        if "rlcatalog.spaces" not in self.doors:
            return ["no such rooms"]
        return [
            f"{name} -> {other}"
            for name, others in self.imports.items()
            for other in sorted(others)
            if name.count(".") and height.get(_room(name), 0) < height.get(_room(other), 0)
        ]


def _room(name: str) -> str:
    return name.split(".")[1]


def sources(folder: Path) -> list[Path]:
    """Return the source files of all packages but the example."""
    found = [path for pattern in ("catalog", "builtin_*/*", "plugins/*") for path in folder.glob(f"{pattern}/src")]
    return sorted(file for path in found if "example" not in path.parts for file in path.rglob("*.py"))


def switches(path: Path) -> Iterator[str]:
    """Yield the functions of a file that compare a kind of space with two names of kinds or more."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef):
            continue
        compared: set[str] = set()
        for inner in ast.walk(node):
            if isinstance(inner, ast.Compare) and "kind" in ast.unparse(inner.left):
                values = [c.value for part in inner.comparators for c in ast.walk(part) if isinstance(c, ast.Constant)]
                compared |= KINDS & {value for value in values if isinstance(value, str)}
        if len(compared) > 1:
            yield f"{path.name}:{node.lineno} {node.name}"


#: Builds an LSTM policy and counts how often a value was converted to its config key's type.
_CONVERSIONS = """
import sys, gymnasium, rlcatalog
found = []
def watch(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "convert" and "rlcatalog" in frame.f_code.co_filename:
        found.append(frame.f_back.f_code.co_name)
env = gymnasium.make("CartPole-v1")
rlcatalog.build(env=env)
sys.setprofile(watch)
rlcatalog.build(env=env, config={"use_lstm": True})
sys.setprofile(None)
print(len(found))
"""


def conversions(folder: Path) -> str:
    """Return how many config values are converted for one LSTM policy."""
    path = os.pathsep.join(str(path) for path in folder.glob("*/**/src") if "site-packages" not in path.parts)
    done = subprocess.run(
        [sys.executable, "-c", _CONVERSIONS],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() or "not run: " + (done.stderr.strip().splitlines() or ["?"])[-1]


def lines(paths: list[Path]) -> int:
    """Return the number of lines of files."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def report(folder: Path) -> dict[str, str]:
    """Return the measures of a checkout, by name."""
    house, files = House(folder), sources(folder)
    kernel = folder / "catalog/src/rlcatalog"
    rooms = [path for path in kernel.iterdir() if (path / "__init__.py").is_file()]
    cycles, upward = house.cycles(), house.upward()
    by_kind = [found for path in files for found in switches(path)]
    columns = [path for path in files if _MASK_COLUMNS.search(path.read_text(encoding="utf-8"))]
    found = {
        "rooms of the kernel": str(len(rooms)),
        "files at its top": str(len(list(kernel.glob("*.py")))),
        "files of the kernel": str(len(house.files)),
        "largest cycle of imports": f"{len(cycles[0])} files: {', '.join(cycles[0])}" if cycles else "none",
        "imports upward": "; ".join(upward) or "none",
        "functions that switch on kinds of space": str(len(by_kind)),
        "files that know the columns of masks": str(len(columns)),
        "config values converted for one LSTM policy": conversions(folder),
        "lines of src": str(lines(files)),
    }
    for name in ("sb3", "rllib"):
        own = [path for path in files if f"rlcatalog_{name}" in path.parts]
        found[f"files and lines of {name}"] = f"{len(own)}, {lines(own)}"
    return found


#: What a file says that knows which column of a mask stands for which value; how many there are tells nobody.
_MASK_COLUMNS = re.compile(
    r"(?<!\.)\bgroups\(|import groups|\bmask_places\b|(codec|masks|part)\.choices\b|self\.choices\b(?!\[|\.values)"
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT)
    for measure, value in report(parser.parse_args().folder).items():
        print(f"{measure}: {value}")
