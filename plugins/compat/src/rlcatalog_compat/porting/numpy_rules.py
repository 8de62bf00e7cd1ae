"""Rules for names that NumPy has given up."""

from __future__ import annotations

import libcst as cst

from rlcatalog_compat.porting.context import NUMPY, Context, name_node

#: Name → NumPy's name today.
_RENAMED = {
    "product": "prod", "cumproduct": "cumprod", "alltrue": "all", "sometrue": "any", "float_": "float64",
    "complex_": "complex128", "unicode_": "str_", "string_": "bytes_", "Inf": "inf", "Infinity": "inf", "infty": "inf",
    "PINF": "inf", "NaN": "nan", "NAN": "nan", "in1d": "isin", "row_stack": "vstack", "trapz": "trapezoid",
    "round_": "round", "mat": "asmatrix",
}  # fmt: skip
#: Name → the built-in it was.
_BUILT_IN = {"float": "float", "int": "int", "bool": "bool", "object": "object", "str": "str", "long": "int"}


def attribute(context: Context, node: cst.Attribute) -> cst.BaseExpression:
    """Return a dotted name as it should be."""
    module, name = context.stands_for(node)
    if module != NUMPY:
        return node
    if name in _RENAMED:
        return node.with_changes(attr=cst.Name(_RENAMED[name]))
    return name_node(_BUILT_IN[name]).with_changes(lpar=node.lpar, rpar=node.rpar) if name in _BUILT_IN else node
