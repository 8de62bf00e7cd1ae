"""Find the names in a file that refer to symbolic Keras tensors, before anything is rewritten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from rlcatalog_compat.codemod import TABLES
from rlcatalog_compat.codemod.context import (
    TENSORFLOW,
    TENSORFLOW_1,
    Context,
    bound_name,
    dotted,
    names_of,
)

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
        #: Names bound by an import, a function or a class.
        self.static: set[str] = set()
        #: Names bound by assignments, loops and parameters.
        self.assigned: set[str] = set()
        module.visit(_Functions(self, module))
        self._find_names()

    def _find_names(self) -> None:
        """Walk through all functions until no more names are found: a call in one function may make
        a parameter of another one symbolic.
        """
        last_count = -1
        while self._count_names() > last_count:
            last_count = self._count_names()
            for function in self.names:
                function.visit(_Walker(self, function))

    def _count_names(self) -> int:
        """Return the number of symbolic names and of functions that return symbolic tensors."""
        return sum(map(len, self.names.values())) + len(self.context.tensor_functions)

    def of(self, function: cst.CSTNode) -> set[str]:
        """Return the names that refer to symbolic tensors in a function or in the module."""
        names = set(self.names[function])
        parent = self.parents.get(function)
        if parent is not None:
            names |= self.of(parent) - parameters_of(function)
        return names

    def enter_call(self, call: cst.Call, symbolic_names: set[str]) -> None:
        """Add the parameters of the file's functions that receive symbolic tensors.

        Args:
            call: A call.
            symbolic_names: Names of symbolic tensors where the call is.
        """
        front, _, name = dotted(call.func).rpartition(".")
        if front not in ("", "self"):
            return
        for function in self.functions.get(name, ()):
            parameters = [parameter.name.value for parameter in function.params.params]
            if parameters[:1] == ["self"]:
                del parameters[0]
            for index, arg in enumerate(call.args):
                if arg.star or not is_symbolic(arg.value, symbolic_names, self.context):
                    continue
                if arg.keyword is not None:
                    self.names[function].add(arg.keyword.value)
                elif index < len(parameters):
                    self.names[function].add(parameters[index])


def is_symbolic(node: cst.BaseExpression, symbolic_names: set[str], context: Context) -> bool:
    """Return whether an expression is a symbolic Keras tensor or a list of such tensors.

    Args:
        node: The expression.
        symbolic_names: Names of symbolic tensors where the expression is.
        context: Context of the file.
    """
    if dotted(node) in symbolic_names:
        return True
    if not isinstance(node, cst.Call):
        return any(is_symbolic(part, symbolic_names, context) for part in parts_of(node))
    function = dotted(node.func)
    if isinstance(node.func, cst.Attribute):
        function = node.func.attr.value
    if function == "Input":
        return True
    if dotted(node.func).removeprefix("self.") in context.tensor_functions:
        return True
    if function in _TABLE["no_tensors"]:
        return False
    # Layers and nets called on symbolic tensors return symbolic tensors.
    return any(is_symbolic(arg.value, symbolic_names, context) for arg in node.args)


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
    module, path = context.stands_for(node.func)
    if module not in (TENSORFLOW, TENSORFLOW_1):
        return False
    name = path.rpartition(".")[2]
    if name in _TABLE["no_tensors"] or name in _TABLE["no_operations"]:
        return False
    if path == "Print" or path.startswith("keras.backend."):
        return True
    is_function = name[:1].islower()  # classes, such as layers, begin with a capital letter
    return is_function and not path.startswith(tuple(_TABLE["not_below"]))


def parameters_of(function: cst.CSTNode) -> set[str]:
    """Return the names of a function's parameters."""
    if not isinstance(function, cst.FunctionDef | cst.Lambda):
        return set()
    declared = function.params
    parameters = [*declared.posonly_params, *declared.params, *declared.kwonly_params]
    for star in (declared.star_arg, declared.star_kwarg):
        if isinstance(star, cst.Param):
            parameters.append(star)
    return {parameter.name.value for parameter in parameters}


class _Functions(cst.CSTVisitor):
    """Visitor that records the functions in a file, their enclosing functions, and the names that
    they bind.

    Args:
        symbolic: Where to record them.
        module: The file.
    """

    def __init__(self, symbolic: Symbolic, module: cst.Module) -> None:
        self._symbolic = symbolic
        #: The module and the functions around the current code, outermost first.
        self._enclosing: list[cst.CSTNode] = [module]

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        name = node.name.value
        self._symbolic.parents[node] = self._enclosing[-1]
        is_in_function = len(self._enclosing) > 1
        if not is_in_function:
            self._symbolic.static.add(name)
        self._symbolic.names[node] = set()
        self._symbolic.functions.setdefault(name, []).append(node)
        self._enclosing.append(node)

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
        self._enclosing.pop()

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._symbolic.static.add(node.name.value)

    def visit_ImportAlias(self, node: cst.ImportAlias) -> None:
        # `import a.b` binds `a`.
        self._symbolic.static.add(bound_name(node).partition(".")[0])

    def visit_Param(self, node: cst.Param) -> None:
        self._symbolic.assigned.add(node.name.value)

    def visit_AssignTarget(self, node: cst.AssignTarget | cst.For) -> None:
        self._symbolic.assigned.update(dotted(name) for name in names_of(node.target))

    visit_For = visit_AssignTarget


class _Walker(cst.CSTVisitor):
    """Visitor that records names for symbolic tensors: a function's own, and parameters of the
    functions it calls.

    Args:
        symbolic: Where to record them.
        function: The function, or the module.
    """

    def __init__(self, symbolic: Symbolic, function: cst.CSTNode) -> None:
        self._symbolic = symbolic
        self._function = function
        self._context = symbolic.context
        #: The function's own symbolic names.
        self._own_names = symbolic.names[function]
        #: These, and the ones of the functions around it.
        self._symbolic_names = symbolic.of(function)

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
        if is_symbolic(node.value, self._symbolic_names, self._context):
            self._context.tensor_functions.add(self._function.name.value)

    def visit_For(self, node: cst.For | cst.CompFor) -> None:
        self._iterate(node.target, node.iter)

    visit_CompFor = visit_For

    def visit_Call(self, node: cst.Call) -> None:
        self._symbolic.enter_call(node, self._symbolic_names)
        # Calls such as `tensors.append(x)` make a list symbolic.
        if isinstance(node.func, cst.Attribute) and node.args:
            if node.func.attr.value in _TABLE["fills"]:
                self._assign(node.func.value, node.args[-1].value)

    def _assign(self, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        """Record the targets of an assignment whose values are symbolic."""
        for one_target, one_value in pairs(target, value):
            if not is_symbolic(one_value, self._symbolic_names, self._context):
                continue
            for name in names_of(one_target):
                if isinstance(name, cst.Subscript):
                    name = name.value
                self._enter(dotted(name))

    def _iterate(self, target: cst.BaseExpression, iterable: cst.BaseExpression) -> None:
        """Record the targets of a loop over symbolic tensors."""
        if not isinstance(iterable, cst.Call):
            self._assign(target, iterable)
            return
        function = dotted(iterable.func)
        elements = []
        if isinstance(target, cst.Tuple):
            elements = [element.value for element in target.elements]
        if function == "enumerate" and len(elements) == 2:
            self._iterate(elements[1], iterable.args[0].value)
        elif function == "zip" and len(elements) == len(iterable.args):
            for element, arg in zip(elements, iterable.args, strict=True):
                self._iterate(element, arg.value)
        elif isinstance(iterable.func, cst.Attribute) and function.endswith((".items", ".values")):
            value_target = elements[-1] if elements else target
            self._assign(value_target, iterable.func.value)
        else:
            self._assign(target, iterable)

    def _enter(self, name: str) -> None:
        """Record the name of a symbolic tensor; do nothing for `""`, an expression without one."""
        if name:
            self._own_names.add(name)
            self._symbolic_names.add(name)


def pairs(
    target: cst.BaseExpression, value: cst.BaseExpression
) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """Yield an assignment's targets with their values, if the values are listed one by one."""
    targets = _elements_of(target)
    values = _elements_of(value)
    has_star = any(isinstance(element, cst.StarredElement) for element in [*targets, *values])
    if not targets or len(targets) != len(values) or has_star:
        yield target, value
        return
    for target_element, value_element in zip(targets, values, strict=True):
        yield from pairs(target_element.value, value_element.value)


def _elements_of(node: cst.BaseExpression) -> Sequence[cst.BaseElement]:
    """Return the elements of a tuple or list; none for other expressions."""
    if isinstance(node, cst.Tuple | cst.List):
        return node.elements
    return []
