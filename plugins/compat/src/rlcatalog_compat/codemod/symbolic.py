"""Find the names in a file that refer to symbolic Keras tensors, before anything is rewritten."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from rlcatalog_compat.codemod import TABLES
from rlcatalog_compat.codemod.context import TENSORFLOW, TENSORFLOW_1, Context, dotted, names_of

_TABLE = TABLES["symbolic"]


class Symbolic:
    """Names that refer to symbolic tensors, by function.

    Args:
        module: The file.
        context: The file's context, which records what its names refer to.
    """

    def __init__(self, module: cst.Module, context: Context) -> None:
        self.context = context
        self.names: dict[cst.CSTNode, set[str]] = {module: set()}
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self.functions: dict[str, list[cst.FunctionDef]] = {}
        #: Names bound by a single import, function or class, and names bound by assignments.
        self.static: set[str] = set()
        self.assigned: set[str] = set()
        module.visit(_Functions(self, module))
        size = -1
        while (grown := sum(map(len, self.names.values())) + len(context.makers)) > size:
            size = grown
            for function in self.names:
                function.visit(_Walker(self, function))

    def of(self, function: cst.CSTNode) -> set[str]:
        """Return the names that refer to symbolic tensors in a function or in the module."""
        found = set(self.names[function])
        parent = self.parents.get(function)
        return found if parent is None else found | (self.of(parent) - parameters_of(function))

    def enter_call(self, call: cst.Call, known: set[str]) -> None:
        """Add the parameters of the file's functions that receive symbolic tensors."""
        front, _, name = dotted(call.func).rpartition(".")
        if front not in ("", "self"):
            return
        for function in self.functions.get(name, ()):
            places = [parameter.name.value for parameter in function.params.params]
            places = places[1:] if places[:1] == ["self"] else places
            for place, arg in enumerate(call.args):
                if arg.star or not is_symbolic(arg.value, known, self.context):
                    continue
                if arg.keyword is not None:
                    self.names[function].add(arg.keyword.value)
                elif place < len(places):
                    self.names[function].add(places[place])


def is_symbolic(node: cst.BaseExpression, known: set[str], context: Context) -> bool:
    """Return whether an expression is a symbolic Keras tensor or a list of such tensors."""
    if dotted(node) in known:
        return True
    if isinstance(node, cst.Call):
        last = node.func.attr.value if isinstance(node.func, cst.Attribute) else dotted(node.func)
        if last == "Input":
            return True
        # Layers and nets called on symbolic tensors return symbolic tensors.
        return dotted(node.func).removeprefix("self.") in context.makers or (
            last not in _TABLE["no_tensors"]
            and any(is_symbolic(arg.value, known, context) for arg in node.args)
        )
    return any(is_symbolic(part, known, context) for part in parts_of(node))


def parts_of(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return the subexpressions that make an expression symbolic if they are symbolic
    themselves.
    """
    match node:
        case cst.List() | cst.Tuple() | cst.Dict():
            return [element.value for element in node.elements]
        case cst.BinaryOperation():
            return [node.left, node.right]
        case cst.UnaryOperation():
            return [node.expression]
        case cst.Comparison():
            return [node.left, *(part.comparator for part in node.comparisons)]
        case cst.IfExp():
            return [node.body, node.orelse]
        case cst.ListComp() | cst.GeneratorExp():
            return [node.elt]
        case cst.DictComp() | cst.Subscript() | cst.NamedExpr():
            return [node.value]
        case _:
            return []


def is_operation(context: Context, node: cst.CSTNode) -> bool:
    """Return whether a node calls a TensorFlow operation; layers accept symbolic
    tensors directly.
    """
    if not isinstance(node, cst.Call):
        return False
    module, name = context.stands_for(node.func)
    last = name.rpartition(".")[2]
    if module not in (TENSORFLOW, TENSORFLOW_1) or last in (
        *_TABLE["no_tensors"],
        *_TABLE["no_operations"],
    ):
        return False
    is_function = last[:1].islower() and not name.startswith(tuple(_TABLE["not_below"]))
    return is_function or name == "Print" or name.startswith("keras.backend.")


def parameters_of(function: cst.CSTNode) -> set[str]:
    """Return the names of a function's parameters."""
    if not isinstance(function, cst.FunctionDef | cst.Lambda):
        return set()
    given = function.params
    stars = [star for star in (given.star_arg, given.star_kwarg) if isinstance(star, cst.Param)]
    return {
        one.name.value
        for one in (*given.posonly_params, *given.params, *given.kwonly_params, *stars)
    }


class _Functions(cst.CSTVisitor):
    """Visitor that records the functions in a file, their enclosing functions, and the names that
    they bind.
    """

    def __init__(self, found: Symbolic, module: cst.Module) -> None:
        self._found, self._around = found, list[cst.CSTNode]([module])

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._found.parents[node] = self._around[-1]
        if len(self._around) == 1:
            self._found.static.add(node.name.value)
        self._found.names[node] = set()
        self._found.functions.setdefault(node.name.value, []).append(node)
        self._around.append(node)

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
        self._around.pop()

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._found.static.add(node.name.value)

    def visit_ImportAlias(self, node: cst.ImportAlias) -> None:
        bound = dotted(node.asname.name if node.asname is not None else node.name)
        self._found.static.add(bound.partition(".")[0])

    def visit_Param(self, node: cst.Param) -> None:
        self._found.assigned.add(node.name.value)

    def visit_AssignTarget(self, node: cst.AssignTarget | cst.For) -> None:
        self._found.assigned.update(dotted(name) for name in names_of(node.target))

    visit_For = visit_AssignTarget


class _Walker(cst.CSTVisitor):
    """Visitor that records names for symbolic tensors: a function's own, and parameters of the
    functions it calls.
    """

    def __init__(self, symbolic: Symbolic, function: cst.CSTNode) -> None:
        self._symbolic, self._function, self._context = symbolic, function, symbolic.context
        self._names, self._known = symbolic.names[function], symbolic.of(function)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return node is self._function

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            self._assign(target.target, node.value)

    def visit_AnnAssign(self, node: cst.AnnAssign | cst.AugAssign | cst.NamedExpr) -> None:
        if node.value is not None:
            self._assign(node.target, node.value)

    visit_AugAssign = visit_NamedExpr = visit_AnnAssign

    def visit_Return(self, node: cst.Return) -> None:
        if not isinstance(self._function, cst.FunctionDef) or node.value is None:
            return
        if is_symbolic(node.value, self._known, self._context):
            self._context.makers.add(self._function.name.value)

    def visit_For(self, node: cst.For | cst.CompFor) -> None:
        self._iterate(node.target, node.iter)

    visit_CompFor = visit_For

    def visit_Call(self, node: cst.Call) -> None:
        self._symbolic.enter_call(node, self._known)
        if (
            isinstance(node.func, cst.Attribute)
            and node.func.attr.value in _TABLE["fills"]
            and node.args
        ):
            self._assign(node.func.value, node.args[-1].value)

    def _assign(self, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        for one, part in pairs(target, value):
            if not is_symbolic(part, self._known, self._context):
                continue
            for name in names_of(one):
                self._enter(dotted(name.value if isinstance(name, cst.Subscript) else name))

    def _iterate(self, target: cst.BaseExpression, over: cst.BaseExpression) -> None:
        function = dotted(over.func) if isinstance(over, cst.Call) else ""
        elements = [one.value for one in target.elements] if isinstance(target, cst.Tuple) else []
        if function == "enumerate" and len(elements) == 2:
            self._iterate(elements[1], over.args[0].value)  # type: ignore[attr-defined]
        elif function == "zip" and len(elements) == len(over.args):  # type: ignore[attr-defined]
            for element, arg in zip(elements, over.args, strict=True):  # type: ignore[attr-defined]
                self._iterate(element, arg.value)
        elif function.endswith((".items", ".values")):
            self._assign(elements[-1] if elements else target, over.func.value)  # type: ignore[attr-defined]
        else:
            self._assign(target, over)

    def _enter(self, name: str) -> None:
        if name:
            self._names.add(name)
            self._known.add(name)


def pairs(
    target: cst.BaseExpression, value: cst.BaseExpression
) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """Yield an assignment's targets with their values, if the values are listed one by one."""
    left, right = (
        list(side.elements) if isinstance(side, cst.Tuple | cst.List) else []
        for side in (target, value)
    )
    if (
        left
        and len(left) == len(right)
        and not any(isinstance(one, cst.StarredElement) for one in (*left, *right))
    ):
        for one, part in zip(left, right, strict=True):
            yield from pairs(one.value, part.value)
    else:
        yield target, value
