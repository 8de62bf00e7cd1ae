"""Turn TensorFlow operations on symbolic Keras tensors, which Keras 3 rejects, into layers.

A layer computes its output on each call of the model, but the original operation ran only once.
Therefore, all values except symbolic tensors are read when the layer is created:
`tf.gather(x, [i])` becomes `rlcatalog_compat.operations.apply(lambda x, i=i: tf.gather(x, [i]),
x)`.
"""

from __future__ import annotations

import builtins
from typing import Any

import libcst as cst
from libcst import matchers

from rlcatalog_compat.codemod.context import (
    TENSORFLOW,
    Context,
    Rewriter,
    code,
    comma,
    dotted,
    keyword,
)
from rlcatalog_compat.codemod.symbolic import (
    Symbolic,
    is_operation,
    is_symbolic,
    parameters_of,
    parts_of,
)

_TRAINING = "Keras 3 requires training to be True or False; call the layer in forward() instead"
_UNWRAPPED = "an operation on Keras inputs that cannot become a layer; call it in forward() instead"
_APPLY, _MODULE = "rlcatalog_compat.operations.apply", "rlcatalog_compat.operations"
_LIFT = "rlcatalog_compat.operations.lift"
_TIME_DISTRIBUTED = "rlcatalog_compat.operations.time_distributed"
#: Where TensorFlow has functions of one tensor that models list among their layers.
_FUNCTIONS = ("nn.", "math.")
_EQUALITY = (
    "TensorFlow 1 compared the tensors as objects here, TensorFlow 2 compares their"
    " values; write tf.equal"
)
#: Operations on symbolic tensors that cannot become a layer: they need the graph, or do not return
#: a tensor.
_REFUSED = ("gradients", "print", "assert_equal", "control_dependencies", "stop_recording")
#: Expressions that bind names or suspend their function; lambdas cannot contain them.
_BINDING = matchers.NamedExpr() | matchers.Await() | matchers.Yield()
_OPERATORS = (cst.BinaryOperation, cst.UnaryOperation, cst.Comparison, cst.Subscript)
_WALKED = (*_OPERATORS, cst.List, cst.Tuple, cst.Dict, cst.Set, cst.Lambda)


class Lifter(Rewriter):
    """Transformer that moves operations on symbolic tensors into layers.

    Args:
        module: The file.
        context: The file's context, which records what its names refer to.
    """

    def __init__(self, module: cst.Module, context: Context) -> None:
        super().__init__(context)
        self.symbolic = Symbolic(module, context)
        self._known = [self.symbolic.of(module)]
        self._lifted: set[cst.CSTNode] = set()
        self._lengths: dict[cst.CSTNode, cst.BaseExpression] = {}

    def is_symbolic(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is symbolic in its enclosing function."""
        return is_symbolic(node, self._known[-1], self.context)

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef):
            self._known.append(self.symbolic.of(node))
        if isinstance(node, cst.Lambda | cst.Annotation | cst.Decorator):
            return False
        if isinstance(node, cst.Call):
            self._check(node)
        if isinstance(node, cst.BaseExpression) and self._needs_layer(node):
            self._lifted.add(node)
            return False
        return True

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        if isinstance(original_node, cst.FunctionDef):
            self._known.pop()
        if original_node in self._lifted:
            return self._layer(original_node)
        if isinstance(original_node, cst.Element | cst.DictElement):
            return self._lift_function(original_node, updated_node)
        if isinstance(original_node, cst.Call) and self._is_time_distributed(original_node):
            self.context.helpers.add(_MODULE)
            return updated_node.with_changes(func=cst.parse_expression(_TIME_DISTRIBUTED))
        return updated_node

    def _lift_function(self, element: Any, updated: Any) -> Any:
        """Return an element of a list, tuple or dict; if it is a TensorFlow function, one that
        takes symbolic tensors, because loops over lists of layers call it on them.
        """
        module, name = self.context.stands_for(element.value)
        if module != TENSORFLOW or not name.startswith(_FUNCTIONS) or not any(self._known):
            return updated
        self.context.helpers.add(_MODULE)
        lifted = cst.parse_expression(f"{_LIFT}({code(element.value)})")
        return updated.with_changes(value=lifted)

    def _is_time_distributed(self, call: cst.Call) -> bool:
        return self.context.stands_for(call.func) == (TENSORFLOW, "keras.layers.TimeDistributed")

    def _check(self, node: cst.Call) -> None:
        """Record calls that cannot become layers, and the sequences that each layer call's mask
        belongs to.
        """
        name = self.context.stands_for(node.func)
        if (
            name[0]
            and name[1].rpartition(".")[2] in _REFUSED
            and any(self.is_symbolic(arg.value) for arg in node.args)
        ):
            self.note(node, node.func, _UNWRAPPED)
        training, mask = keyword(node, "training"), keyword(node, "mask")
        if not isinstance(node.func, cst.Call):
            return
        if training is not None and self.is_symbolic(training.value):
            self.note(node, node.func, _TRAINING)
        if mask is not None and isinstance(mask.value, cst.Call) and dotted(node.args[0].value):
            is_mask = self.context.stands_for(mask.value.func) == (TENSORFLOW, "sequence_mask")
            if is_mask and len(mask.value.args) == 1:
                self._lengths[mask.value] = node.args[0].value

    def _needs_layer(self, node: cst.BaseExpression) -> bool:
        """Return whether Keras 3 rejects an expression or computes a different result."""
        if is_operation(self.context, node):
            refused = self.context.stands_for(node.func)[1].rpartition(".")[2] in _REFUSED  # type: ignore[attr-defined]
            return not refused and any(self.is_symbolic(arg.value) for arg in node.args)  # type: ignore[attr-defined]
        if not isinstance(node, _OPERATORS) or not self.is_symbolic(node):
            return False
        if isinstance(node, cst.Comparison) and any(
            _is_equality(part) for part in node.comparisons
        ):
            return True
        # An array as the left operand requests the symbolic tensor's values.
        left = node.left if isinstance(node, cst.BinaryOperation) else None
        if left is not None and not (
            self.is_symbolic(left) or isinstance(left, cst.BaseNumber | cst.UnaryOperation)
        ):
            return True
        inside = [*parts_of(node), *_indices(node)]
        return any(is_operation(self.context, part) or self._needs_layer(part) for part in inside)

    def _layer(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """Turn an expression into a layer's output."""
        if matchers.findall(node, _BINDING):
            self.note(node, node.func if isinstance(node, cst.Call) else node, _UNWRAPPED)
            return node
        whole: cst.BaseExpression = node
        if (sequences := self._lengths.get(node)) is not None:
            # Without maxlen, the mask is as long as the longest sequence, but a batch may have more
            # padding.
            tf = dotted(node.func).partition(".")[0]  # type: ignore[attr-defined]
            length = cst.parse_expression(f"{tf}.shape({code(sequences)})[1]")
            first = node.args[0].with_changes(comma=comma())  # type: ignore[attr-defined]
            whole = node.with_changes(args=[first, cst.Arg(length)])
        parts = Parts(self, whole)
        given = [code(atom.visit(self)) for atom in parts.inputs.values()]  # type: ignore[arg-type]
        inputs = given[0] if len(given) == 1 else f"[{', '.join(given)}]"
        self.context.helpers.add(_MODULE)
        return cst.parse_expression(f"{_APPLY}(lambda {parts.text}, {inputs})")


class Parts(cst.CSTTransformer):
    """Parts of an expression: symbolic tensors, values that are read immediately, and the
    computation.

    Args:
        lifter: Identifies symbolic expressions.
        node: The expression.

    Attributes:
        inputs: Text → symbolic tensor.
        values: Name → value that is read immediately.
        text: Parameters and body of the layer's function.
    """

    def __init__(self, lifter: Lifter, node: cst.BaseExpression) -> None:
        super().__init__()
        self._lifter, self._kinds, self._bound = (
            lifter,
            dict[cst.CSTNode, tuple[str, str]](),
            set[str](),
        )
        self._kept: set[cst.CSTNode | None] = set()
        self.inputs: dict[str, cst.BaseExpression] = {}
        self.values: dict[str, cst.BaseExpression] = {}
        self._named: dict[str, str] = {}
        names = names_in(node)
        self._first = True
        self._taken = set(names)
        node.visit(self)
        taken = self.values.keys() | (names - self.inputs.keys())
        whole = next(
            name for name in ("x", "values", *(f"x_{i}" for i in range(99))) if name not in taken
        )
        several = len(self.inputs) > 1
        places = {text: f"{whole}[{i}]" if several else whole for i, text in enumerate(self.inputs)}
        texts = {
            node: (places if kind == "input" else self._named)[text]
            for node, (kind, text) in self._kinds.items()
        }
        body = node.visit(_Put({node: cst.parse_expression(text) for node, text in texts.items()}))
        defaults = "".join(f", {name}={code(value)}" for name, value in self.values.items())
        self.text = f"{whole}{defaults}: {code(body)}"  # type: ignore[arg-type]

    def on_visit(self, node: cst.CSTNode) -> bool:
        if node in self._kept:
            return False
        match node:
            case cst.Attribute():
                self._kept.add(node.attr)
            case cst.Arg():
                self._kept.add(node.keyword)
            case cst.Lambda():
                self._bound |= parameters_of(node)
                self._kept.add(node.params)
            case cst.Call() if is_operation(self._lifter.context, node):
                self._kept.add(node.func)
            case cst.Comparison() if self._lifter.is_symbolic(node) and any(
                map(_is_equality, node.comparisons)
            ):
                self._lifter.note(node, node, _EQUALITY)
        first, self._first = self._first, False
        return True if first or not isinstance(node, cst.BaseExpression) else self._walks(node)

    def _walks(self, node: cst.BaseExpression) -> bool:
        """Add an expression as a part; return whether to visit its subexpressions instead."""
        if self._bound & names_in(node) or is_operation(self._lifter.context, node):
            return True
        if self._lifter.is_symbolic(node) and self._is_given(node):
            self.inputs.setdefault(code(node), node)
            self._kinds[node] = ("input", code(node))
            return False
        if isinstance(node, _WALKED) and not (
            isinstance(node, cst.Subscript) and self._is_value(node)
        ):
            return True
        if self._reads_shape(node):
            return True
        if self._is_value(node):
            self._kinds[node] = ("value", code(node))
            if code(node) not in self._named:
                name = self._name(node)
                self._named[code(node)] = name
                self.values[name] = node
        return False

    def _is_given(self, node: cst.BaseExpression) -> bool:
        """Return whether a symbolic expression is computed outside the layer."""
        if isinstance(node, cst.Subscript):
            inside = [node.value, *_indices(node)]
            return self._is_given(node.value) and not any(
                is_operation(self._lifter.context, part) for part in inside
            )
        return not isinstance(node, _WALKED)

    def _is_value(self, node: cst.BaseExpression) -> bool:
        names = names_in(node)
        if isinstance(node, cst.Name | cst.Attribute) and dotted(node):
            root = dotted(node).partition(".")[0]
            symbolic = self._lifter.symbolic
            if root in self._lifter.context.modules:
                return False
            return root in symbolic.assigned or not (
                root in symbolic.static or hasattr(builtins, root)
            )
        return (
            bool(names)
            and not self._reads_shape(node)
            and not isinstance(node, cst.BaseNumber | cst.BaseString)
        )

    def _reads_shape(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is a symbolic tensor's shape (`x.shape` or `x.get_shape()`),
        or a part of it.
        """
        while isinstance(node, cst.Attribute | cst.Subscript | cst.Call):
            if isinstance(node, cst.Call) and node.args:
                return False
            node = node.func if isinstance(node, cst.Call) else node.value
            if self._lifter.is_symbolic(node):
                return True
        return False

    def _name(self, node: cst.BaseExpression) -> str:
        if isinstance(node, cst.Name) and node.value != "x":
            return node.value
        base = dotted(node).rpartition(".")[2].strip("_") or "value"
        name = next(
            name
            for name in (base, *(f"{base}_{i}" for i in range(2, 99)))
            if name not in self._taken
        )
        self._taken.add(name)
        return name


class _Put(cst.CSTTransformer):
    """Transformer that replaces expressions."""

    def __init__(self, places: dict[cst.CSTNode, cst.BaseExpression]) -> None:
        super().__init__()
        self._places = places

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node not in self._places

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        return self._places.get(original_node, updated_node)


def names_in(node: cst.CSTNode) -> set[str]:
    """Return the names that an expression reads, and the names of its keyword arguments."""
    return {name.value for name in matchers.findall(node, matchers.Name())}  # type: ignore[attr-defined]


def _is_equality(part: cst.ComparisonTarget) -> bool:
    return isinstance(part.operator, cst.Equal | cst.NotEqual) and dotted(part.comparator) != "None"


def _indices(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    if not isinstance(node, cst.Subscript):
        return []
    parts: list[cst.BaseExpression | None] = []
    for element in node.slice:
        if isinstance(element.slice, cst.Index):
            parts.append(element.slice.value)
        elif isinstance(element.slice, cst.Slice):
            parts += [element.slice.lower, element.slice.upper]
    return [part for part in parts if part is not None]
