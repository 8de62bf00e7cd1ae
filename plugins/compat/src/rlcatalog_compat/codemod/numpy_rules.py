"""Rules for names that NumPy removed."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import libcst as cst
import numpy as np

from rlcatalog_compat.codemod import TABLES
from rlcatalog_compat.codemod.context import (
    NUMPY,
    Context,
    as_name,
    bound_name,
    code,
    dotted,
    name_node,
    with_names,
)

#: Name → NumPy's current name, built-in or number; and old calls → current calls.
_RENAMED = TABLES["numpy"]["renamed"]
_BUILT_IN = TABLES["numpy"]["built_in"]
_NUMBERS = TABLES["numpy"]["numbers"]
_CALLS = TABLES["numpy"]["calls"]
#: NumPy's names for floats, which `asfarray` accepts as its second argument.
_FLOATS = ("float16", "float32", "float64", "float", "float_", "double", "single", "half")
GONE = "NumPy 2 has no {}; see its migration guide for a replacement"


def attribute(context: Context, node: cst.Attribute) -> cst.BaseExpression:
    """Return the replacement for a dotted name."""
    module, name = context.stands_for(node)
    if module != NUMPY or dotted(node) in context.reassigned:
        return node
    if name in _RENAMED:
        return node.with_changes(attr=cst.Name(_RENAMED[name]))
    parentheses = {"lpar": node.lpar, "rpar": node.rpar}
    if name in _NUMBERS:
        number = cst.parse_expression(_NUMBERS[name].format(code(node.value)))
        if name == "NINF" and not node.lpar:
            return number.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        return number.with_changes(**parentheses)
    if name in _BUILT_IN:
        return name_node(_BUILT_IN[name]).with_changes(**parentheses)
    return node


def call(context: Context, node: cst.Call) -> cst.Call:
    """Return the replacement for a call."""
    module, name = context.stands_for(node.func)
    if module != NUMPY or name not in _CALLS or not isinstance(node.func, cst.Attribute):
        return node
    if not node.args or node.args[0].keyword is not None or node.args[0].star:
        return node
    root = code(node.func.value)
    if len(node.args) == 1:
        argument = code(node.args[0].value)
        new_call = cst.parse_expression(_CALLS[name].format(root, argument, root))
        assert isinstance(new_call, cst.Call)
        return new_call.with_changes(lpar=node.lpar, rpar=node.rpar)
    is_float = dotted(node.args[1].value).rpartition(".")[2] in _FLOATS
    if name == "asfarray" and len(node.args) == 2 and is_float:
        return node.with_changes(func=node.func.with_changes(attr=cst.Name("asarray")))
    return node


def why_missing(context: Context, node: cst.Attribute) -> str | None:
    """Return why a dotted name that NumPy 2 lacks is left unchanged, or None."""
    module, path = context.stands_for(node)
    if module != NUMPY or dotted(node) in context.reassigned:
        return None
    name = path.partition(".")[0]
    has_rule = name in (*_RENAMED, *_BUILT_IN, *_NUMBERS, *_CALLS)
    if has_rule or _is_in_numpy(name):
        return None
    return GONE.format(name)


class ImportChange(NamedTuple):
    """What becomes of `from numpy import ...`.

    Attributes:
        statements: The statements that replace it.
        missing_names: The names that NumPy 2 lacks, which stay unchanged.
    """

    statements: list[cst.BaseSmallStatement]
    missing_names: list[str]


def port_from(node: cst.ImportFrom) -> ImportChange:
    """Return the change of `from numpy import ...`."""
    if isinstance(node.names, cst.ImportStar):
        return ImportChange([node], missing_names=[])
    aliases: list[cst.ImportAlias] = []
    assignments: list[cst.BaseSmallStatement] = []
    missing_names = []
    for alias in node.names:
        name = dotted(alias.name)
        if name in _RENAMED:
            new_name = cst.Name(_RENAMED[name])
            asname = alias.asname or as_name(name)
            aliases.append(alias.with_changes(name=new_name, asname=asname))
        elif name in _BUILT_IN or _is_plain_number(name):
            value = _BUILT_IN.get(name) or _NUMBERS[name]
            if bound_name(alias) != value:
                assignment = cst.parse_statement(f"{bound_name(alias)} = {value}")
                assignments += assignment.body  # type: ignore[arg-type]
        else:
            aliases.append(alias)
            if not _is_in_numpy(name):
                missing_names.append(name)
    if len(aliases) == len(node.names):
        return ImportChange([node.with_changes(names=aliases)], missing_names)
    statements = assignments
    if aliases:
        statements = [with_names(node, aliases), *assignments]
    if not statements:
        statements = [cst.Pass()]
    return ImportChange(statements, missing_names)


def _is_plain_number(name: str) -> bool:
    """Return whether a name stands for a number that can be written without NumPy."""
    return name in _NUMBERS and name != "NINF"


def _is_in_numpy(name: str) -> bool:
    """Return whether the installed NumPy has a name."""
    if name in ("distutils", "testing", "f2py"):
        return True
    with warnings.catch_warnings(action="ignore"):
        return hasattr(np, name)  # a name in the NumPy module
