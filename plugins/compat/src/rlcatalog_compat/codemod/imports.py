"""Rules for imports: replace RLlib's modules with the mirror's, and gym with Gymnasium."""

from __future__ import annotations

import importlib
from types import ModuleType

import libcst as cst

from rlcatalog_compat.codemod import numpy_rules, tensorflow_rules
from rlcatalog_compat.codemod.context import RAY, as_name, dotted, name_node, with_names
from rlcatalog_compat.names import known, modules, reason_for

#: Statements, and the parts of imports that stay unchanged, with reasons.
Change = tuple[list[cst.BaseSmallStatement], list[tuple[str, str]]]
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


def why_not(path: str, name: str = "") -> str | None:
    """Return why an RLlib module, or a name in it, is not supported; None if it is supported.

    Args:
        path: The module, without `ray.`; `""` is `ray` itself.
        name: The name. If None, the module itself.
    """
    whole = f"{path}.{name}".strip(".")
    if whole in known() or whole in ("", *OWN):
        return None
    if name and path in modules() and name in modules()[path].names:
        return None
    return reason_for(whole) or (_CLUSTER if not path else _UNKNOWN)


def why_not_in_gymnasium(path: str, name: str = "") -> str | None:
    """Return why a gym module or a name in it is missing from Gymnasium, or None if it exists.

    Args:
        path: The module, without `gym.`; `""` is `gym` itself.
        name: The name. If None, the module itself.
    """
    module, found = "gymnasium", importlib.import_module("gymnasium")
    for part in filter(None, (*path.split("."), *name.split("."))):
        module = f"{module}.{part}"
        if not hasattr(found, part):
            try:
                importlib.import_module(module)
            except ModuleNotFoundError as error:
                if error.name == module or not isinstance(found, ModuleType):
                    return _GYM.get(module.removeprefix("gymnasium."), _NO_GYM)
                return None  # the name exists, but needs packages that are not installed
            except Exception:  # likewise for a module
                return None
        found = getattr(found, part)
    return None


def without_root(path: str) -> str | None:
    """Return a path within Ray or the mirror without its root, or None for other paths."""
    root, _, inside = path.partition(".")
    return inside if root in RAY else None


def port_import(node: cst.Import) -> Change:
    """Return the replacement for an `import` statement, and the names left unchanged,
    with reasons.
    """
    stays, names = [], []
    for alias in node.names:
        path = dotted(alias.name)
        inside = without_root(path)
        if (inside is not None and (why := why_not(inside))) or (
            path.startswith("gym.") and (why := why_not_in_gymnasium(path.removeprefix("gym.")))
        ):
            stays.append((f"import {path}", why))
        elif path.startswith("tensorflow.") and tensorflow_rules.is_graph_code(
            path.removeprefix("tensorflow.")
        ):
            stays.append((f"import {path}", tensorflow_rules.GRAPH))
        elif path.partition(".")[0] in ("ray", "gym"):
            alias = _rename(alias, path)
        names.append(alias)
    return [node.with_changes(names=names)], stays


def port_from(node: cst.ImportFrom) -> Change:
    """Return the statements that replace a `from ... import`, and the names left unchanged, with
    reasons.
    """
    path = dotted(node.module)
    if node.relative or not path:
        return [node], []
    if path == "numpy":
        statements, gone = numpy_rules.imported(node)
        return statements, [
            (f"from numpy import {name}", numpy_rules.GONE.format(name)) for name in gone
        ]
    root, _, below = path.partition(".")
    if root == "tensorflow":
        paths = (
            []
            if isinstance(node.names, cst.ImportStar)
            else [dotted(alias.name) for alias in node.names]
        )
        reasons_of = {
            name: tensorflow_rules.why_not_imported(f"{below}.{name}".strip(".")) for name in paths
        }
        return [node], [
            (f"from {path} import {name}", why)
            for name, why in reasons_of.items()
            if why is not None
        ]
    inside, target, reason_of = (
        without_root(path),
        f"gymnasium.{below}".strip("."),
        why_not_in_gymnasium,
    )
    if inside is not None:
        target, reason_of = f"rlcatalog_compat.{inside}".strip("."), why_not
    elif root == "gym":
        inside = below
    else:
        return [node], []
    if isinstance(node.names, cst.ImportStar):
        why = reason_of(inside)
        return ([node], [(f"from {path} import *", why)]) if why else ([_move(node, target)], [])
    reasons = {alias: reason_of(inside, dotted(alias.name)) for alias in node.names}
    stays = [
        (f"from {path} import {dotted(alias.name)}", why)
        for alias, why in reasons.items()
        if why is not None
    ]
    goes = [alias for alias, why in reasons.items() if why is None]
    if not goes:
        return [node], stays
    if not stays:
        return [_move(node, target)], stays
    rest = [alias for alias, why in reasons.items() if why is not None]
    return [_move(with_names(node, goes), target), with_names(node, rest)], stays


def padding_as_before(node: cst.ImportFrom) -> cst.ImportFrom:
    """Return an import with RLlib 0.8's `valid_padding` changed to its current name."""
    if isinstance(node.names, cst.ImportStar):
        return node
    names = [
        alias.with_changes(name=cst.Name("same_padding"), asname=as_name("valid_padding"))
        if dotted(alias.name) == "valid_padding" and alias.asname is None
        else alias
        for alias in node.names
    ]
    return node.with_changes(names=names)


def _move(node: cst.ImportFrom, path: str) -> cst.ImportFrom:
    return node if dotted(node.module) == path else node.with_changes(module=name_node(path))


def _rename(alias: cst.ImportAlias, path: str) -> cst.ImportAlias:
    root, _, inside = path.partition(".")
    new = {"ray": "rlcatalog_compat", "gym": "gymnasium"}[root]
    if alias.asname is not None:
        return alias.with_changes(name=name_node(f"{new}.{inside}".strip(".")))
    # Without `as`, the root is bound, and its modules are attributes.
    return alias.with_changes(name=cst.Name(new), asname=as_name(root))
