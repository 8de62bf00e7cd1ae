"""Uses of other libraries' private names in the packages; `tests/packaging/test_private_api.py`
expects none outside of `private_api.py`.

A name is private if it begins with a single underscore, or stands in a module that its library does
not document. Only a package's `private_api.py` may use such names.

`python tools/private_uses.py` prints them.

`private_uses` reads the source alone. It takes an attribute for the package's own if the package or
the kernel defines a function, class, variable or attribute of this name. `private_uses_of_bases`
finds the attributes that have such a name by accident, in classes that inherit from a library's.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from types import FunctionType

from house_code import KERNEL, PACKAGES, Source, read_sources

ROOT = Path(__file__).resolve().parents[1]
#: The module of a package that may use private names.
HOME = "private_api"
#: Modules without an underscore that their libraries do not document.
INTERNAL = ("tensorflow.python", "keras.src", "tf_keras.src")
#: Libraries whose modules may be named in strings, to be imported later.
LIBRARIES = {
    "rsl_rl",
    "skrl",
    "torch",
    "tensorflow",
    "keras",
    "ray",
    "gymnasium",
    "stable_baselines3",
    "onnx",
}
#: What Python documents in spite of the underscore: two functions, and methods of named tuples.
DOCUMENTED = {"_getframe", "_exit", "_asdict", "_field_defaults", "_fields", "_make", "_replace"}
#: Functions that take names of attributes → which of their arguments are names.
_TAKE_NAMES = {
    "getattr": slice(1, 2),
    "hasattr": slice(1, 2),
    "setattr": slice(1, 2),
    "delattr": slice(1, 2),
    "attrgetter": slice(None),
    "methodcaller": slice(0, 1),
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Named = tuple[ast.expr | ast.stmt, str]


def is_private(name: str) -> bool:
    """Return whether a name begins with a single underscore, but not with rlcatalog's own."""
    return name[:1] == "_" and name[1:2] not in ("", "_") and not name.startswith("_rlcatalog")


# --- in the source --------------------------------------------------------------------------------


def private_uses(sources: Iterable[Source]) -> list[str]:
    """Return the uses of other libraries' private names outside of `private_api.py`.

    Args:
        sources: The source files of all packages.

    Returns:
        One entry `file:line name` for each use.
    """
    sources = [source for source in sources if source.path.stem != HOME]
    own: dict[str, set[str]] = {KERNEL: set()}
    for source in sources:
        own.setdefault(_package(source), set()).update(_definitions(source.tree))
    packages = {PurePosixPath(package).name for package in own}
    uses = []
    for source in sources:
        known = own[_package(source)] | own[KERNEL] | DOCUMENTED
        found = {
            (node.lineno, name)
            for node, name in _private_names(source.tree, packages)
            if name.rpartition(".")[2] not in known
        }
        uses += [f"{source.path}:{line} {name}" for line, name in sorted(found)]
    return uses


def _package(source: Source) -> str:
    """Return the folder of a file's package, such as `catalog/src/rlcatalog`."""
    parts = source.path.parts
    return str(PurePosixPath(*parts[: parts.index("src") + 2]))


def _definitions(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a file defines: functions, classes, variables, and attributes of `self`
    and `cls`.
    """
    for node in ast.walk(tree):
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if _is_self(node.value):
                yield node.attr


def _private_names(tree: ast.AST, packages: set[str]) -> Iterator[_Named]:
    """Yield each place that mentions a private name, and the name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if is_private(node.attr):
                yield node, ast.unparse(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                path = alias.name
                if isinstance(node, ast.ImportFrom):
                    path = f"{node.module}.{alias.name}"
                if path.partition(".")[0] not in packages and _has_private_part(path):
                    yield node, path
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            path = node.value.replace(":", ".")
            if path.partition(".")[0] in LIBRARIES and _has_private_part(path):
                yield node, path
        else:
            yield from _names_in_strings(node)


def _has_private_part(path: str) -> bool:
    parts = path.split(".")
    is_path = all(part.isidentifier() for part in parts)
    return is_path and (path.startswith(INTERNAL) or any(map(is_private, parts)))


def _names_in_strings(node: ast.AST) -> Iterator[_Named]:
    """Yield private names that are given as strings: to `getattr` and the like, or as keys of an
    object's `__dict__`.
    """
    strings: list[ast.expr] = []
    if isinstance(node, ast.Call):
        strings = node.args[_TAKE_NAMES.get(_called(node), slice(0, 0))]
    elif isinstance(node, ast.Subscript) and _is_namespace(node.value):
        strings = [node.slice]
    elif isinstance(node, ast.Compare) and any(map(_is_namespace, node.comparators)):
        strings = [node.left]
    for string in strings:
        if isinstance(string, ast.Constant) and isinstance(string.value, str):
            yield from ((string, name) for name in string.value.split(".") if is_private(name))


def _called(call: ast.Call) -> str:
    """Return the name of the function that is called, without its module."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _is_namespace(node: ast.expr) -> bool:
    """Return whether an expression is an object's attributes: `x.__dict__` or `vars(x)`."""
    if isinstance(node, ast.Call):
        return _called(node) == "vars"
    return isinstance(node, ast.Attribute) and node.attr == "__dict__"


def _is_self(node: ast.expr) -> bool:
    """Return whether an expression is `self`, `cls` or `super()`."""
    if isinstance(node, ast.Call):
        return _called(node) == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


# --- in classes that inherit from a library's -----------------------------------------------------


def private_uses_of_bases(classes: Iterable[type]) -> list[str]:
    """Return the private names of a library's class that a class of ours overrides, reads or sets.

    Args:
        classes: Classes of the packages; those in `private_api.py` are not checked.

    Returns:
        One entry `class: name of base` for each use.
    """
    uses = set()
    for cls in classes:
        if cls.__module__.rpartition(".")[2] == HOME:
            continue
        names = _names_in_class(cls)
        for base in filter(_is_of_a_library, cls.__mro__[1:]):
            place = f"{base.__module__}.{base.__qualname__}"
            here = f"{cls.__module__}.{cls.__qualname__}"
            uses |= {f"{here}: {name} of {place}" for name in names & _names_of_base(base)}
    return sorted(uses)


def _is_of_a_library(cls: type) -> bool:
    library = cls.__module__.partition(".")[0]
    return library not in sys.stdlib_module_names and not library.startswith("rlcatalog")


def _names_in_class(cls: type) -> set[str]:
    """Return the private names that a class defines, or that its methods use of themselves."""
    names = {name for name in vars(cls) if is_private(name)}
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and _is_self(node.value):
            names.add(node.attr)
    return names - {"_abc_impl"}  # which Python itself sets


def _names_of_base(base: type) -> set[str]:
    """Return the private names that a class has, or that its methods use."""
    names = set(vars(base))
    for value in vars(base).values():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if isinstance(inspect.unwrap(function), FunctionType):
            names.update(inspect.unwrap(function).__code__.co_names)
    return {name for name in names if is_private(name)}


def our_classes() -> Iterator[type]:
    """Yield the classes at the top of the packages' modules, after importing all of them."""
    folders = [str(path) for pattern in PACKAGES for path in ROOT.glob(f"{pattern}/src")]
    # The engines that only their tests' process sees.
    sys.path.extend(str(ROOT / ".venv" / name) for name in ("rsl_rl", "skrl"))
    for package in pkgutil.iter_modules(folders):
        if not package.name.startswith("rlcatalog"):  # the example of a plugin
            continue
        path = importlib.import_module(package.name).__path__
        for found in pkgutil.walk_packages(path, f"{package.name}."):
            if "__main__" in found.name:
                continue
            module = importlib.import_module(found.name)
            for value in vars(module).values():
                if inspect.isclass(value) and value.__module__ == module.__name__:
                    yield value


if __name__ == "__main__":
    print(*private_uses(read_sources(ROOT)), sep="\n")
    print(*private_uses_of_bases(our_classes()), sep="\n")
