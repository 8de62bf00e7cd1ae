"""Who imports whom, for `tools/house.py`: cycles, imports upward, arrows between packages, names at
doors.

Imports inside functions and by string count, and those for type checkers alone if the caller asks
for them. The targets that a `plugin.py` declares do not count. A name imported through a door (an
`__init__.pyi`) counts as imported from the file that defines it.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from house_code import Source

#: Packages that hold what a user runs a choice with.
LIBRARY = ("torch", "tf", "policy", "export", "testing", "runs", "cli")
ENGINES = ("ppo", "sb3", "rllib")
#: Engines of simulators, which have no runs of `rlcatalog train`.
SIMULATOR_ENGINES = ("rsl_rl", "skrl")

#: What a package may import beside the kernel; other packages may import nothing else.
ALLOWED = {
    "rlcatalog": frozenset[str](),
    "rlcatalog_export": frozenset({"rlcatalog_policy", "rlcatalog_preprocessors"}),
    "rlcatalog_runs": frozenset({"rlcatalog_policy"}),
    # The latter where it is installed.
    "rlcatalog_testing": frozenset({"rlcatalog_policy", "rlcatalog_export"}),
    "rlcatalog_compat": frozenset({"rlcatalog_policy", "rlcatalog_ppo"}),
    **{
        f"rlcatalog_{engine}": frozenset({"rlcatalog_policy", "rlcatalog_runs"})
        for engine in ENGINES
    },
}
# All of their files are PyTorch's.
for _engine in ("sb3", "rllib"):
    ALLOWED[f"rlcatalog_{_engine}"] |= {"rlcatalog_torch"}
for _engine in SIMULATOR_ENGINES:
    ALLOWED[f"rlcatalog_{_engine}"] = frozenset({"rlcatalog_policy", "rlcatalog_torch"})

#: What a file may import beside that, by a part of its path: the package that alone loads it.
ALLOWED_BY_FILE = {
    "torch": "rlcatalog_torch",
    "tf": "rlcatalog_tf",
    "examples": "rlcatalog_testing",
    "checks": "rlcatalog_testing",
    "commands": "rlcatalog_cli",
}


class Imports:
    """The modules of all packages and what each imports.

    Args:
        folder: The checkout.
        sources: Its source files.
        for_checkers: Whether imports for type checkers alone count as well.
    """

    def __init__(
        self, folder: Path, sources: Iterable[Source], *, for_checkers: bool = False
    ) -> None:
        self.folder = folder
        self._for_checkers = for_checkers
        self.sources = {_module(source): source for source in sources}
        self.doors = {
            name: self._read_door(source)
            for name, source in self.sources.items()
            if source.path.name == "__init__.py"
        }
        self.imports = {
            name: set(self._imported(source)) - {name} for name, source in self.sources.items()
        }

    def _read_door(self, source: Source) -> dict[str, str]:
        """Return name → module of what a door shows, read from its stub."""
        stub, package = self.folder / source.path.with_suffix(".pyi"), _module(source)
        names = {}
        if stub.is_file():
            for node in ast.parse(stub.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ImportFrom):
                    for alias in node.names:
                        names[alias.name] = f"{package}.{node.module or alias.name}"
        return names

    def _imported(self, source: Source) -> Iterator[str]:
        for module, name in _statements(source, for_checkers=self._for_checkers):
            yield from self._behind(module, name)

    def _behind(self, module: str, name: str) -> Iterator[str]:
        """Yield the module that an imported name stands in, past the doors on the way."""
        if f"{module}.{name}" in self.sources:
            module = f"{module}.{name}"
        while module in self.doors and name in self.doors[module]:
            module = self.doors[module][name]
        if module in self.sources and module != "rlcatalog":
            yield module

    def cycles(self) -> list[list[str]]:
        """Return the sets of modules that import one another, the largest first (Tarjan 1972)."""
        index: dict[str, int] = {}
        low: dict[str, int] = {}
        stack: list[str] = []
        components: list[list[str]] = []

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
                components.append(sorted(members))

        for name in self.sources:
            if name not in index and name != "rlcatalog":
                visit(name)
        return sorted(
            (members for members in components if len(members) > 1), key=len, reverse=True
        )

    def upward(self) -> list[str]:
        """Return the imports from a lower room of the kernel to a higher one, by the checkout's
        `pyproject.toml`.
        """
        settings = tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))
        contracts = settings["tool"]["importlinter"]["contracts"]
        layers = next(contract["layers"] for contract in contracts if contract["id"] == "rooms")
        height = {room: -i for i, layer in enumerate(layers) for room in layer.split(" | ")}
        return [
            f"{name} -> {other}"
            for name, others in self.imports.items()
            for other in sorted(others)
            if name.startswith("rlcatalog.")
            and other.startswith("rlcatalog.")
            and height.get(name.split(".")[1], 0) < height.get(other.split(".")[1], 0)
        ]

    def arrows(self) -> list[str]:
        """Return the imports from one package to another that the table of packages
        does not have.
        """
        return [
            f"{name} -> {other}"
            for name, others in self.imports.items()
            for other in sorted(others)
            if not _is_allowed(name, other.partition(".")[0])
        ]

    def names_at_doors(self, packages: Iterable[str] = ("rlcatalog",)) -> list[tuple[str, str]]:
        """Return (door, name) for each name at the doors of packages: of the package itself and of
        its rooms.
        """
        doors = {
            door: names for door, names in self.doors.items() if door.partition(".")[0] in packages
        }
        return [(door, name) for door, names in doors.items() for name in names]

    def used_names(self, includes: Callable[[str], bool]) -> set[tuple[str, str]]:
        """Return (module, name) for each name that some modules, told by their names, import or
        read as attributes.
        """
        used = set()
        for module, source in self.sources.items():
            if includes(module):
                used.update(
                    entry for entry in _statements(source) if entry[0].startswith("rlcatalog")
                )
                attributes = (
                    node for node in ast.walk(source.tree) if isinstance(node, ast.Attribute)
                )
                used.update(
                    (ast.unparse(n.value), n.attr)
                    for n in attributes
                    if ast.unparse(n.value) == "rlcatalog"
                )
        return used

    def importers(self, modules: Iterable[str]) -> list[str]:
        """Return the modules that import one of some modules, which may be those of packages
        that stand elsewhere.
        """
        wanted = set(modules)
        importers = []
        for importer, source in self.sources.items():
            imports = set()
            for module, name in _statements(source):
                imports |= {module, f"{module}.{name}"}
            if imports & wanted:
                importers.append(importer)
        return importers

    def packages(self) -> set[str]:
        """Return the import names of all packages."""
        return {name.partition(".")[0] for name in self.sources}


def _module(source: Source) -> str:
    parts = source.path.with_suffix("").parts
    parts = parts[parts.index("src") + 1 :]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_allowed(module: str, package: str) -> bool:
    own, *path = module.split(".")
    if package in (own, "rlcatalog") or module == "rlcatalog":
        return True
    by_file = {ALLOWED_BY_FILE[part] for part in path if part in ALLOWED_BY_FILE}
    return own != "rlcatalog" and package in ALLOWED.get(own, frozenset()) | by_file


def _statements(source: Source, *, for_checkers: bool = False) -> Iterator[tuple[str, str]]:
    """Yield (module, name) for each import of a file; the name is empty if the file imports the
    whole module.

    Args:
        source: The file.
        for_checkers: Whether imports that run for type checkers alone count as well.
    """
    left_out: set[int] = set()
    if not for_checkers:
        left_out = _nodes_for_checkers(source.tree)
    for node in ast.walk(source.tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from ((arg.value, "") for arg in node.args if isinstance(arg, ast.Constant))
        elif isinstance(node, ast.Constant) and source.path.name != "plugin.py":
            yield from _targets(node.value)


def _nodes_for_checkers(tree: ast.AST) -> set[int]:
    """Return the ids of the nodes below each `if TYPE_CHECKING`."""
    nodes: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes.update(id(inner) for inner in ast.walk(node))
    return nodes


def _targets(value: object) -> Iterator[tuple[str, str]]:
    """Yield (module, name) if a constant is a target, such as "rlcatalog.spaces:SpaceInfo"."""
    if not isinstance(value, str):
        return
    module, colon, name = value.partition(":")
    if colon and module.startswith("rlcatalog"):
        yield module, name


def is_library(module: str, names: Sequence[str] = LIBRARY) -> bool:
    """Return whether a module belongs to one of some packages, the library packages by default."""
    return module.partition(".")[0].removeprefix("rlcatalog_") in names
