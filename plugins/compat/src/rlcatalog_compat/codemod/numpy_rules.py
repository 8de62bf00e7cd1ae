"""Rules for names that NumPy removed."""

from __future__ import annotations

import warnings

import libcst as cst
import numpy as np

from rlcatalog_compat.codemod import TABLES
from rlcatalog_compat.codemod.context import (
    NUMPY,
    Context,
    as_name,
    code,
    dotted,
    name_node,
    with_names,
)

#: Name → NumPy's current name, built-in or number; and old calls → current calls.
_RENAMED, _BUILT_IN, _NUMBERS, _CALLS = (
    TABLES["numpy"][key] for key in ("renamed", "built_in", "numbers", "calls")
)
_FLOATS = ("float16", "float32", "float64", "float", "float_", "double", "single", "half")
GONE = "NumPy 2 has no {}; see its migration guide for a replacement"


def attribute(context: Context, node: cst.Attribute) -> cst.BaseExpression:
    """Return the replacement for a dotted name."""
    module, name = context.stands_for(node)
    if module != NUMPY or dotted(node) in context.patched:
        return node
    if name in _RENAMED:
        return node.with_changes(attr=cst.Name(_RENAMED[name]))
    parentheses = {"lpar": node.lpar, "rpar": node.rpar}
    if name in _NUMBERS:
        number = cst.parse_expression(_NUMBERS[name].format(code(node.value)))
        if name == "NINF" and not node.lpar:
            return number.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        return number.with_changes(**parentheses)
    return name_node(_BUILT_IN[name]).with_changes(**parentheses) if name in _BUILT_IN else node


def call(context: Context, node: cst.Call) -> cst.Call:
    """Return the replacement for a call."""
    module, name = context.stands_for(node.func)
    if module != NUMPY or name not in _CALLS or not isinstance(node.func, cst.Attribute):
        return node
    if not node.args or node.args[0].keyword is not None or node.args[0].star:
        return node
    root = code(node.func.value)
    if len(node.args) == 1:
        found = cst.parse_expression(_CALLS[name].format(root, code(node.args[0].value), root))
        assert isinstance(found, cst.Call)
        return found.with_changes(lpar=node.lpar, rpar=node.rpar)
    is_float = dotted(node.args[1].value).rpartition(".")[2] in _FLOATS
    if name == "asfarray" and len(node.args) == 2 and is_float:
        return node.with_changes(func=node.func.with_changes(attr=cst.Name("asarray")))
    return node


def why_gone(context: Context, node: cst.Attribute) -> str | None:
    """Return why a dotted name that NumPy 2 lacks is left unchanged, or None."""
    module, name = context.stands_for(node)
    first = name.partition(".")[0]
    if (
        module != NUMPY
        or dotted(node) in context.patched
        or first in (*_RENAMED, *_BUILT_IN, *_NUMBERS, *_CALLS)
    ):
        return None
    return None if _is_served(first) else GONE.format(first)


def imported(node: cst.ImportFrom) -> tuple[list[cst.BaseSmallStatement], list[str]]:
    """Return the statements that replace `from numpy import ...`, and the imported names that NumPy
    2 lacks.
    """
    if isinstance(node.names, cst.ImportStar):
        return [node], []
    aliases, statements, gone = [], list[cst.BaseSmallStatement](), []
    for alias in node.names:
        name = dotted(alias.name)
        bound = dotted(alias.asname.name) if alias.asname is not None else name
        if name in _RENAMED:
            aliases.append(
                alias.with_changes(
                    name=cst.Name(_RENAMED[name]), asname=alias.asname or as_name(bound)
                )
            )
        elif name in _BUILT_IN or (name in _NUMBERS and name != "NINF"):
            value = _BUILT_IN.get(name) or _NUMBERS[name]
            if bound != value:
                statements += cst.parse_statement(f"{bound} = {value}").body  # type: ignore[arg-type]
        else:
            aliases.append(alias)
            gone += [] if _is_served(name) else [name]
    if len(aliases) == len(node.names):
        return [node.with_changes(names=aliases)], gone
    if aliases:
        statements.insert(0, with_names(node, aliases))
    return statements or [cst.Pass()], gone


def _is_served(name: str) -> bool:
    """Return whether the installed NumPy has a name."""
    with warnings.catch_warnings(action="ignore"):
        return hasattr(np, name) or name in ("distutils", "testing", "f2py")
