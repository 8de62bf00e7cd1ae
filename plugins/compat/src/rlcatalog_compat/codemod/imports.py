"""Rules for imports: replace RLlib's modules with the mirror's, and gym with Gymnasium."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import libcst as cst

from rlcatalog_compat.codemod import numpy_rules, tensorflow_rules
from rlcatalog_compat.codemod.context import RAY, as_name, dotted, name_node, with_names
from rlcatalog_compat.names import modules, reason_for, supported_paths

#: Names in `rlcatalog_compat` in addition to the mirror's modules.
OWN = ("init", "shutdown", "is_initialized", "layers", "operations", "frames")
_UNKNOWN = "rlcatalog-compat has no such name; implement or remove it"
_NO_GYM = "Gymnasium has no such name; see its migration guide for a replacement"
#: Gymnasium's replacements for removed names.
_GYM = {
    "wrappers.Monitor": "Gymnasium has no Monitor; use gymnasium.wrappers.RecordVideo or"
    " RecordEpisodeStatistics",
    "envs.classic_control.rendering": "Gymnasium has no rendering module; draw with pygame in"
    " render()",
}
_CLUSTER = "Ray's cluster; everything runs in one process here"


class Unported(NamedTuple):
    """Part of an import that stays unchanged.

    Attributes:
        what: The part, such as `from ray import tune`.
        why: Why it stays.
    """

    what: str
    why: str


class Change(NamedTuple):
    """What becomes of an import.

    Attributes:
        statements: The statements that replace it.
        unported: Its parts that stay unchanged.
    """

    statements: list[cst.BaseSmallStatement]
    unported: list[Unported]


def why_not(path: str, name: str = "") -> str | None:
    """Return why an RLlib module, or a name in it, is not supported; None if it is supported.

    Args:
        path: The module, without `ray.`; `""` is `ray` itself.
        name: The name. If None, the module itself.
    """
    full_path = f"{path}.{name}".strip(".")
    if full_path in supported_paths() or full_path in ("", *OWN):
        return None
    if name and path in modules() and name in modules()[path].names:
        return None
    reason = reason_for(full_path)
    if reason:
        return reason
    return _UNKNOWN if path else _CLUSTER


def why_not_in_gymnasium(path: str, name: str = "") -> str | None:
    """Return why a gym module or a name in it is missing from Gymnasium, or None if it exists.

    Args:
        path: The module, without `gym.`; `""` is `gym` itself.
        name: The name. If None, the module itself.
    """
    current_path = "gymnasium"
    current: Any = importlib.import_module("gymnasium")
    for part in f"{path}.{name}".split("."):
        if not part:
            continue
        current_path = f"{current_path}.{part}"
        # A module of Gymnasium, or an object in one.
        if not hasattr(current, part):
            try:
                importlib.import_module(current_path)
            except ModuleNotFoundError as error:
                is_missing = error.name == current_path or not isinstance(current, ModuleType)
                if is_missing:
                    return _GYM.get(current_path.removeprefix("gymnasium."), _NO_GYM)
                return None  # the module exists, but needs packages that are not installed
            except Exception:  # the module exists, but cannot be imported here
                return None
        # After the import, the module is an attribute of the one that contains it.
        current = getattr(current, part)
    return None


def without_root(path: str) -> str | None:
    """Return a path within Ray or the mirror without its root, or None for other paths."""
    root, _, inside = path.partition(".")
    if root in RAY:
        return inside
    return None


def port_import(node: cst.Import) -> Change:
    """Return the replacement for an `import` statement, and the names left unchanged,
    with reasons.
    """
    unported = []
    aliases = []
    for alias in node.names:
        path = dotted(alias.name)
        why = _why_module_stays(path)
        if why is not None:
            unported.append(Unported(f"import {path}", why))
        elif path.partition(".")[0] in ("ray", "gym"):
            alias = _rename(alias, path)
        aliases.append(alias)
    return Change([node.with_changes(names=aliases)], unported)


def _why_module_stays(path: str) -> str | None:
    """Return why `import path` cannot be ported, or None if it can or need not be."""
    inside_rllib = without_root(path)
    if inside_rllib is not None:
        return why_not(inside_rllib)
    if path.startswith("gym."):
        return why_not_in_gymnasium(path.removeprefix("gym."))
    if path.startswith("tensorflow."):
        if tensorflow_rules.is_graph_code(path.removeprefix("tensorflow.")):
            return tensorflow_rules.GRAPH
    return None


def port_from(node: cst.ImportFrom) -> Change:
    """Return the statements that replace a `from ... import`, and the names left unchanged, with
    reasons.
    """
    path = dotted(node.module)
    if node.relative or not path:
        return Change([node], [])
    root, _, below = path.partition(".")
    if path == "numpy":
        return _port_from_numpy(node)
    if root == "tensorflow":
        return Change([node], _unported_from_tensorflow(node, below))
    inside_rllib = without_root(path)
    if inside_rllib is not None:
        target = f"rlcatalog_compat.{inside_rllib}".strip(".")
        return _move_names(node, target, inside_rllib, why_not)
    if root == "gym":
        target = f"gymnasium.{below}".strip(".")
        return _move_names(node, target, below, why_not_in_gymnasium)
    return Change([node], [])


def _port_from_numpy(node: cst.ImportFrom) -> Change:
    """Return the change of `from numpy import ...`."""
    statements, missing_names = numpy_rules.port_from(node)
    unported = []
    for name in missing_names:
        unported.append(Unported(f"from numpy import {name}", numpy_rules.GONE.format(name)))
    return Change(statements, unported)


def _unported_from_tensorflow(node: cst.ImportFrom, module: str) -> list[Unported]:
    """Return the names that cannot be imported from a module of TensorFlow, which is given without
    `tensorflow.`.
    """
    if isinstance(node.names, cst.ImportStar):
        return []
    unported = {}
    for alias in node.names:
        name = dotted(alias.name)
        why = tensorflow_rules.why_not_imported(f"{module}.{name}".strip("."))
        if why is not None:
            unported[name] = Unported(f"from {dotted(node.module)} import {name}", why)
    return list(unported.values())


def _move_names(
    node: cst.ImportFrom,
    target: str,
    module: str,
    why_missing: Callable[[str, str], str | None],
) -> Change:
    """Return an import from another module; names that this module lacks stay in an import of the
    old one.

    Args:
        node: The import.
        target: The module to import from.
        module: The old module, without `ray.` or `gym.`.
        why_missing: Function of the old module and a name in it: returns why the target lacks the
            name, or None; for the empty name, why there is no such target.
    """
    path = dotted(node.module)
    if isinstance(node.names, cst.ImportStar):
        why = why_missing(module, "")
        if why:
            return Change([node], [Unported(f"from {path} import *", why)])
        return Change([_move(node, target)], [])
    aliases_to_move = []
    aliases_to_keep = []
    unported = []
    for alias in node.names:
        name = dotted(alias.name)
        why = why_missing(module, name)
        if why is None:
            aliases_to_move.append(alias)
        else:
            aliases_to_keep.append(alias)
            unported.append(Unported(f"from {path} import {name}", why))
    if not aliases_to_move:
        return Change([node], unported)
    if not aliases_to_keep:
        return Change([_move(node, target)], [])
    moved_import = _move(with_names(node, aliases_to_move), target)
    return Change([moved_import, with_names(node, aliases_to_keep)], unported)


def padding_as_before(node: cst.ImportFrom) -> cst.ImportFrom:
    """Return an import with RLlib 0.8's `valid_padding` changed to its current name."""
    if isinstance(node.names, cst.ImportStar):
        return node
    aliases = []
    for alias in node.names:
        if dotted(alias.name) == "valid_padding" and alias.asname is None:
            alias = alias.with_changes(
                name=cst.Name("same_padding"), asname=as_name("valid_padding")
            )
        aliases.append(alias)
    return node.with_changes(names=aliases)


def _move(node: cst.ImportFrom, path: str) -> cst.ImportFrom:
    """Return an import from this module instead."""
    if dotted(node.module) == path:
        return node
    return node.with_changes(module=name_node(path))


def _rename(alias: cst.ImportAlias, path: str) -> cst.ImportAlias:
    """Return a module of Ray or gym in an `import` statement under its new name."""
    root, _, inside = path.partition(".")
    new_root = {"ray": "rlcatalog_compat", "gym": "gymnasium"}[root]
    if alias.asname is not None:
        return alias.with_changes(name=name_node(f"{new_root}.{inside}".strip(".")))
    # Without `as`, the root is bound, and its modules are attributes.
    return alias.with_changes(name=cst.Name(new_root), asname=as_name(root))
