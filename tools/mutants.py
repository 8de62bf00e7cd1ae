"""Mutants of a Python file: small changes, each of which a test ought to notice.

A mutant replaces one expression, or one statement that is a call, by another. What people read
(docstrings, messages, names), annotations, declared defaults and what raises errors is left alone:
a test of those would only repeat them.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
from collections import Counter
from collections.abc import Iterator

#: Operators and what stands in for them.
_OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
#: Functions and their opposites, both ways.
_PAIRS = (
    ("min", "max"),
    ("minimum", "maximum"),
    ("amin", "amax"),
    ("argmin", "argmax"),
    ("clamp_min", "clamp_max"),
    ("floor", "ceil"),
    ("any", "all"),
    ("zeros", "ones"),
    ("zeros_like", "ones_like"),
    ("new_zeros", "new_ones"),
    ("logical_and", "logical_or"),
    ("reduce_sum", "reduce_mean"),
    ("reduce_min", "reduce_max"),
    ("reduce_any", "reduce_all"),
)
_OPPOSITES = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
#: The same for methods and functions of a module only: the builtin `sum` has no mean.
_OPPOSITE_METHODS = {
    "sum": "mean",
    "mean": "sum",
    "log": "log1p",
    "log1p": "log",
    "exp": "expm1",
    "expm1": "exp",
}
#: Calls that are left out: their first argument (or what the method belongs to) stands in.
_REMOVED = {
    "clip",
    "clamp",
    "clamp_min",
    "clamp_max",
    "clip_by_value",
    "minimum",
    "maximum",
    "nan_to_num",
    "abs",
} | {
    *(
        "detach",
        "stop_gradient",
        "masked_fill",
        "floor",
        "ceil",
        "round",
        "nextafter",
        "cumsum",
        "flip",
        "softmax",
    ),
    *(
        "log_softmax",
        "sqrt",
        "square",
        "exp",
        "log",
        "log1p",
        "expm1",
        "tanh",
        "sigmoid",
        "softplus",
    ),
}
_MODULES = frozenset(
    ("np", "numpy", "torch", "tf", "keras", "math", "nn", "F", "ops", "functional")
)
_TRUTHS = ast.Name | ast.Attribute | ast.Call | ast.NamedExpr


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes:
        path: The file, relative to the root of the tree.
        line: Where the change begins.
        inside: Name of the function or class around it, empty in a module's body.
        source: First line of the statement, without white space around it.
        change: What becomes what. Of equal changes of equal lines the second says `#2`, and so on.
        lines: First and last line that, when a test runs one of them, make the test worth running;
            None for any.
        begin: First byte that is replaced.
        end: The byte behind the last.
        text: What stands there instead.
    """

    path: str
    line: int
    inside: str
    source: str
    change: str
    lines: tuple[int, int] | None
    begin: int
    end: int
    text: str

    def apply(self, source: str) -> str:
        """Return the file's text with the change made."""
        raw = source.encode()
        return (raw[: self.begin] + self.text.encode() + raw[self.end :]).decode()


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Return all mutants of a file, in the order of their places.

    Args:
        path: The name it goes by.
        source: Its text.
    """
    found = _Finder(path, source).found
    seen: Counter[tuple[str, str, str]] = Counter()
    numbered = []
    for mutant in sorted(found, key=lambda m: (m.begin, m.end, m.text)):
        key = (mutant.inside, mutant.source, mutant.change)
        seen[key] += 1
        again = f" #{seen[key]}" if seen[key] > 1 else ""
        numbered.append(dataclasses.replace(mutant, change=mutant.change + again))
    return numbered


class _Finder:
    """Walks one file.

    Args:
        path: The name it goes by.
        source: Its text.
    """

    def __init__(self, path: str, source: str) -> None:
        self.path, self.found = path, list[Mutant]()
        self._lines = source.splitlines()
        self._starts = [0]
        for line in source.encode().splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._body(ast.parse(source).body, (), None)

    def _body(
        self, body: list[ast.stmt], inside: tuple[str, ...], function: ast.AST | None
    ) -> None:
        for statement in body:
            self._statement(statement, inside, function)

    def _statement(self, node: ast.stmt, inside: tuple[str, ...], function: ast.AST | None) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name in ("__repr__", "__str__"):
                return
            below = (*inside, node.name)
            whole = (node.lineno, node.end_lineno or node.lineno)
            for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
                self._expressions(default, node, below, whole)
            self._body(node.body, below, node)
        elif isinstance(node, ast.ClassDef):
            self._body(node.body, (*inside, node.name), None)
        elif isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom):
            return
        elif function is None and isinstance(node, ast.AnnAssign):
            return  # a declared default
        else:
            self._plain(node, inside, function)

    def _plain(self, node: ast.stmt, inside: tuple[str, ...], function: ast.AST | None) -> None:
        """Change what a statement holds, then what the statements below it hold."""
        blocks = [
            f
            for f in ("body", "orelse", "finalbody", "handlers", "cases")
            if getattr(node, f, None)
        ]
        below = [child for field in blocks for child in getattr(node, field)]
        own = {id(child) for child in below}
        last = min(
            (child.lineno for child in below if hasattr(child, "lineno")),
            default=(node.end_lineno or 0) + 1,
        )
        lines = (node.lineno, max(node.lineno, last - 1)) if function is not None else None
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if not _is_super(node.value) and not _is_message(node.value):
                self._add(node, "pass", f"{_short(node)} → pass", node, inside, lines)
                for child in ast.iter_child_nodes(node.value):
                    self._expressions(child, node, inside, lines)
            return
        if isinstance(node, ast.AugAssign):
            for other in _OPERATORS.get(type(node.op), ()):
                self._replace(
                    node, ast.AugAssign(node.target, other(), node.value), node, inside, lines
                )
            self._replace(
                node, ast.Assign([node.target], node.value, lineno=0), node, inside, lines
            )
        if isinstance(node, ast.If | ast.While) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.If | ast.While) and isinstance(node.test, _TRUTHS):
            self._replace(node.test, ast.UnaryOp(ast.Not(), node.test), node, inside, lines)
        for child in ast.iter_child_nodes(node):
            if id(child) not in own and not (
                isinstance(node, ast.AnnAssign) and child is node.annotation
            ):
                self._expressions(child, node, inside, lines)
        for child in below:
            if isinstance(child, ast.stmt):
                self._statement(child, inside, function)
            else:
                self._body(child.body, inside, function)  # of an except or a case

    def _expressions(
        self,
        node: ast.AST,
        statement: ast.stmt,
        inside: tuple[str, ...],
        lines: tuple[int, int] | None,
    ) -> None:
        if isinstance(node, ast.JoinedStr) or _is_message(node):
            return
        if isinstance(node, ast.expr):
            for other in _others(node):
                self._replace(node, other, statement, inside, lines)
        if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
            return  # the number has been changed with its sign
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Call) and _name(node.func) in ("isinstance", "issubclass", "cast"):
            children = [node.args[0]] if _name(node.func) != "cast" else node.args[1:]
        for child in children:
            self._expressions(child, statement, inside, lines)

    def _replace(
        self,
        node: ast.AST,
        other: ast.AST,
        statement: ast.stmt,
        inside: tuple[str, ...],
        lines: tuple[int, int] | None,
    ) -> None:
        text = ast.unparse(ast.fix_missing_locations(other))
        change = f"{_short(node)} → {_short(other)}"
        self._add(
            node,
            text if isinstance(other, ast.stmt) else f"({text})",
            change,
            statement,
            inside,
            lines,
        )

    def _add(
        self,
        node: ast.AST,
        text: str,
        change: str,
        statement: ast.stmt,
        inside: tuple[str, ...],
        lines: tuple[int, int] | None,
    ) -> None:
        begin = self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        source = self._lines[statement.lineno - 1].strip()
        place = node.lineno  # type: ignore[attr-defined]
        self.found.append(
            Mutant(self.path, place, ".".join(inside), source, change, lines, begin, end, text)
        )


def _others(node: ast.expr) -> Iterator[ast.expr]:
    """Yield what may stand in for an expression."""
    match node:
        case ast.Constant(value=bool() as flag):
            yield ast.Constant(not flag)
        case ast.Constant(value=int() as number):
            yield ast.Constant(1 - number if number in (0, 1) else number + 1)
        case ast.Constant(value=float() as number):
            yield ast.Constant(number * 2 if number else 1.0)
        case ast.UnaryOp(operand=operand, op=ast.USub()):
            yield operand
            if isinstance(operand, ast.Constant) and isinstance(operand.value, int):
                yield ast.UnaryOp(ast.USub(), ast.Constant(operand.value + 1))
        case ast.UnaryOp(operand=operand, op=ast.Not() | ast.Invert()):
            yield operand
        case ast.BinOp(left=left, op=op, right=right):
            for other in _OPERATORS.get(type(op), ()):
                yield ast.BinOp(left, other(), right)  # type: ignore[arg-type]
            if not _is_text(left) and not _is_text(right):
                yield left
                yield right
        case ast.BoolOp(op=ast.Or(), values=[_, right]) if _is_empty(right):
            return  # `given or {}`: None and nothing are one
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(_OPERATORS[type(op)][0](), values)  # type: ignore[arg-type]
            if len(values) == 2:
                yield from values
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                for other in _OPERATORS[type(op)]:
                    yield ast.Compare(
                        node.left, [*ops[:i], other(), *ops[i + 1 :]], node.comparators
                    )  # type: ignore[list-item]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield body
            yield orelse
            if isinstance(test, _TRUTHS):
                yield ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.Subscript(
            value=value, slice=ast.Slice(lower=lower, upper=upper) as part, ctx=ast.Load()
        ):
            if lower is not None:
                yield ast.Subscript(value, ast.Slice(None, upper, part.step), ast.Load())
            if upper is not None:
                yield ast.Subscript(value, ast.Slice(lower, None, part.step), ast.Load())
        case ast.Call():
            yield from _calls(node)


def _calls(node: ast.Call) -> Iterator[ast.expr]:
    """Yield what may stand in for a call."""
    name = _name(node.func)
    opposite = _OPPOSITES.get(name) or (
        isinstance(node.func, ast.Attribute) and _OPPOSITE_METHODS.get(name)
    )
    if opposite:
        func = copy.copy(node.func)
        if isinstance(func, ast.Attribute):
            func.attr = opposite
        else:
            func = ast.Name(opposite, ast.Load())
        yield ast.Call(func, node.args, node.keywords)
    if name == "where" and len(node.args) == 3:
        yield from node.args[1:]
    elif name == "where" and len(node.args) == 2 and isinstance(node.func, ast.Attribute):
        yield node.func.value  # rows.where(condition, other)
        yield node.args[1]
    elif name in _REMOVED:
        method = isinstance(node.func, ast.Attribute) and _name(_root(node.func)) not in _MODULES
        if method:
            yield node.func.value  # type: ignore[attr-defined]
        elif node.args:
            yield node.args[0]


def _name(node: ast.AST) -> str:
    return (
        node.attr
        if isinstance(node, ast.Attribute)
        else node.id
        if isinstance(node, ast.Name)
        else ""
    )


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def _is_super(node: ast.Call) -> bool:
    return _name(node.func) == "__init__"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _is_empty(node: ast.AST) -> bool:
    return ast.unparse(node) in ("{}", "[]", "()", "''", "None")


def _is_message(node: ast.AST) -> bool:
    """Say whether it makes an error or warns."""
    name = _name(node.func) if isinstance(node, ast.Call) else ""
    return name.endswith(("Error", "Warning")) or name in (
        "warn",
        "getLogger",
        "info",
        "debug",
        "warning",
    )


def _short(node: ast.AST) -> str:
    return " ".join(ast.unparse(ast.fix_missing_locations(node)).split())
