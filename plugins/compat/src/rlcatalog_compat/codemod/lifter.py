"""Turn TensorFlow operations on symbolic Keras tensors, which Keras 3 rejects, into layers.

A layer computes its output on each call of the model, but the original operation ran only once.
Therefore, all values except symbolic tensors are read when the layer is created:
`tf.gather(x, [i])` becomes `rlcatalog_compat.operations.apply(lambda x, i=i: tf.gather(x, [i]),
x)`.
"""

from __future__ import annotations

import builtins
from collections.abc import Container, Iterable
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
_MODULE = "rlcatalog_compat.operations"
_APPLY = "rlcatalog_compat.operations.apply"
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
#: Expressions that are computed in a layer from their subexpressions.
_COMPOSED = (*_OPERATORS, cst.List, cst.Tuple, cst.Dict, cst.Set, cst.Lambda)


class Lifter(Rewriter):
    """Transformer that moves operations on symbolic tensors into layers.

    Args:
        module: The file.
        context: The file's context, which records what its names refer to.
    """

    def __init__(self, module: cst.Module, context: Context) -> None:
        super().__init__(context)
        self.symbolic = Symbolic(module, context)
        #: Symbolic names in the module and in each enclosing function, innermost last.
        self._symbolic_names = [self.symbolic.of(module)]
        #: Expressions that become layers.
        self._lifted: set[cst.CSTNode] = set()
        #: Call of `sequence_mask` without maxlen → the sequences that the mask is for.
        self._masked_sequences: dict[cst.CSTNode, cst.BaseExpression] = {}

    def is_symbolic(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is symbolic in its enclosing function."""
        return is_symbolic(node, self._symbolic_names[-1], self.context)

    def has_symbolic_argument(self, call: cst.Call) -> bool:
        """Return whether an argument of a call is symbolic."""
        return any(self.is_symbolic(arg.value) for arg in call.args)

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef):
            self._symbolic_names.append(self.symbolic.of(node))
        if isinstance(node, cst.Lambda | cst.Annotation | cst.Decorator):
            return False
        if isinstance(node, cst.Call):
            self._check(node)
        if isinstance(node, cst.BaseExpression) and self._needs_layer(node):
            self._lifted.add(node)
            return False
        return True

    def on_leave(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        if isinstance(original_node, cst.FunctionDef):
            self._symbolic_names.pop()
        if isinstance(original_node, cst.BaseExpression) and original_node in self._lifted:
            return self._as_layer(original_node)
        if isinstance(original_node, cst.Element | cst.DictElement):
            return self._lift_function(original_node, updated_node)
        if isinstance(original_node, cst.Call) and self._is_time_distributed(original_node):
            self.context.helpers.add(_MODULE)
            return updated_node.with_changes(func=cst.parse_expression(_TIME_DISTRIBUTED))
        return updated_node

    def _lift_function(
        self, element: cst.Element | cst.DictElement, updated: cst.Element | cst.DictElement
    ) -> cst.Element | cst.DictElement:
        """Return an element of a list, tuple or dict; if it is a TensorFlow function, one that
        takes symbolic tensors, because loops over lists of layers call it on them.
        """
        module, name = self.context.stands_for(element.value)
        has_symbolic_names = any(self._symbolic_names)
        if module != TENSORFLOW or not name.startswith(_FUNCTIONS) or not has_symbolic_names:
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
        if self._is_refused(node) and self.has_symbolic_argument(node):
            self.note(node, node.func, _UNWRAPPED)
        is_layer_call = isinstance(node.func, cst.Call)  # such as `Dense(3)(x)`
        if not is_layer_call:
            return
        training = keyword(node, "training")
        if training is not None and self.is_symbolic(training.value):
            self.note(node, node.func, _TRAINING)
        mask = keyword(node, "mask")
        if mask is None or not isinstance(mask.value, cst.Call):
            return
        function = self.context.stands_for(mask.value.func)
        has_no_maxlen = len(mask.value.args) == 1
        sequences = node.args[0].value
        if function == (TENSORFLOW, "sequence_mask") and has_no_maxlen and dotted(sequences):
            self._masked_sequences[mask.value] = sequences

    def _is_refused(self, call: cst.Call) -> bool:
        """Return whether a call is a TensorFlow or NumPy function that cannot become a layer."""
        module, name = self.context.stands_for(call.func)
        return bool(module) and name.rpartition(".")[2] in _REFUSED

    def _needs_layer(self, node: cst.BaseExpression) -> bool:
        """Return whether Keras 3 rejects an expression or computes a different result."""
        if isinstance(node, cst.Call) and is_operation(self.context, node):
            return not self._is_refused(node) and self.has_symbolic_argument(node)
        if not isinstance(node, _OPERATORS) or not self.is_symbolic(node):
            return False
        if _has_equality(node):
            return True
        if isinstance(node, cst.BinaryOperation) and self._may_be_array(node.left):
            # An array as the left operand requests the symbolic tensor's values.
            return True
        subexpressions = [*parts_of(node), *_indices(node)]
        return any(
            is_operation(self.context, part) or self._needs_layer(part) for part in subexpressions
        )

    def _may_be_array(self, operand: cst.BaseExpression) -> bool:
        """Return whether an operand is neither symbolic nor a number."""
        is_number = isinstance(operand, cst.BaseNumber | cst.UnaryOperation)
        return not is_number and not self.is_symbolic(operand)

    def _as_layer(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """Return an expression as a layer's output; if this is impossible, add a note and return it
        unchanged.
        """
        if matchers.findall(node, _BINDING):
            what = node.func if isinstance(node, cst.Call) else node
            self.note(node, what, _UNWRAPPED)
            return node
        computation = node
        if isinstance(node, cst.Call) and node in self._masked_sequences:
            computation = _with_maxlen(node, self._masked_sequences[node])
        parts = Parts(self, computation)
        # A symbolic input may contain an operation that becomes a layer itself.
        inputs = [code(tensor.visit(self)) for tensor in parts.inputs.values()]  # type: ignore[arg-type]
        argument = f"[{', '.join(inputs)}]"
        if len(inputs) == 1:
            argument = inputs[0]
        self.context.helpers.add(_MODULE)
        return cst.parse_expression(f"{_APPLY}(lambda {parts.text}, {argument})")


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
        self._lifter = lifter
        self._root = node
        self.inputs: dict[str, cst.BaseExpression] = {}
        self.values: dict[str, cst.BaseExpression] = {}
        #: Subexpressions that are symbolic tensors → their texts, the keys of `inputs`.
        self._input_texts: dict[cst.CSTNode, str] = {}
        #: Subexpressions that are read immediately → their texts.
        self._value_texts: dict[cst.CSTNode, str] = {}
        #: Text of a value → its name, the key of `values`.
        self._names_by_text: dict[str, str] = {}
        #: Parameters of lambdas inside the expression.
        self._bound: set[str] = set()
        #: Nodes that are only part of an expression, such as the name of an attribute.
        self._kept: set[cst.CSTNode | None] = set()
        #: Names that a new parameter must not have.
        self._taken = names_in(node)
        node.visit(self)
        self.text = self._write_function()

    def _write_function(self) -> str:
        """Return the parameters and the body of the layer's function."""
        # The inputs' own names are free, because the parameter replaces them.
        taken = self.values.keys() | (names_in(self._root) - self.inputs.keys())
        parameter = _first_free(("x", "values", *(f"x_{i}" for i in range(99))), taken)
        replacements = {}
        input_texts = list(self.inputs)
        for part, text in self._input_texts.items():
            # With one input, the parameter is the tensor; with several, it is their list.
            replacement = parameter
            if len(input_texts) > 1:
                replacement = f"{parameter}[{input_texts.index(text)}]"
            replacements[part] = cst.parse_expression(replacement)
        for part, text in self._value_texts.items():
            replacements[part] = cst.parse_expression(self._names_by_text[text])
        body = self._root.visit(_Put(replacements))
        defaults = [f", {name}={code(value)}" for name, value in self.values.items()]
        return f"{parameter}{''.join(defaults)}: {code(body)}"  # type: ignore[arg-type]

    def on_visit(self, node: cst.CSTNode) -> bool:
        if node in self._kept:
            return False
        self._keep_names(node)
        if isinstance(node, cst.Lambda):
            self._bound |= parameters_of(node)
        if isinstance(node, cst.Comparison) and _has_equality(node):
            if self._lifter.is_symbolic(node):
                self._lifter.note(node, node, _EQUALITY)
        if node is self._root or not isinstance(node, cst.BaseExpression):
            return True
        return self._add_part(node)

    def _keep_names(self, node: cst.CSTNode) -> None:
        """Record the names in a node that are not read as variables."""
        match node:
            case cst.Attribute():
                self._kept.add(node.attr)
            case cst.Arg():
                self._kept.add(node.keyword)
            case cst.Lambda():
                self._kept.add(node.params)
            case cst.Call() if is_operation(self._lifter.context, node):
                self._kept.add(node.func)

    def _add_part(self, node: cst.BaseExpression) -> bool:
        """Add an expression as a part; return whether to visit its subexpressions instead."""
        if self._bound & names_in(node) or is_operation(self._lifter.context, node):
            return True
        if self._lifter.is_symbolic(node) and self._is_computed_outside(node):
            text = code(node)
            self.inputs.setdefault(text, node)
            self._input_texts[node] = text
            return False
        is_subscript_of_value = isinstance(node, cst.Subscript) and self._is_value(node)
        if isinstance(node, _COMPOSED) and not is_subscript_of_value:
            return True
        if self._reads_shape(node):
            return True
        if self._is_value(node):
            self._add_value(node)
        return False

    def _add_value(self, node: cst.BaseExpression) -> None:
        """Add an expression that is read immediately; equal ones have one name."""
        text = code(node)
        self._value_texts[node] = text
        if text not in self._names_by_text:
            name = self._name(node)
            self._names_by_text[text] = name
            self.values[name] = node

    def _is_computed_outside(self, node: cst.BaseExpression) -> bool:
        """Return whether a symbolic expression is computed outside the layer."""
        if not isinstance(node, cst.Subscript):
            return not isinstance(node, _COMPOSED)
        subexpressions = [node.value, *_indices(node)]
        has_operation = any(is_operation(self._lifter.context, part) for part in subexpressions)
        return not has_operation and self._is_computed_outside(node.value)

    def _is_value(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression's value may change after the layer is created, so that it
        must be read immediately.
        """
        if isinstance(node, cst.Name | cst.Attribute) and dotted(node):
            return self._is_variable(dotted(node).partition(".")[0])
        if isinstance(node, cst.BaseNumber | cst.BaseString) or self._reads_shape(node):
            return False
        return bool(names_in(node))

    def _is_variable(self, name: str) -> bool:
        """Return whether a name is not a module, function, class or built-in."""
        symbolic = self._lifter.symbolic
        if name in self._lifter.context.modules:
            return False
        if name in symbolic.assigned:
            return True
        # A built-in function or class.
        return name not in symbolic.static and not hasattr(builtins, name)

    def _reads_shape(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is a symbolic tensor's shape (`x.shape` or `x.get_shape()`),
        or a part of it.
        """
        while isinstance(node, cst.Attribute | cst.Subscript | cst.Call):
            if isinstance(node, cst.Call) and node.args:
                return False
            if isinstance(node, cst.Call):
                node = node.func
            else:
                node = node.value
            if self._lifter.is_symbolic(node):
                return True
        return False

    def _name(self, node: cst.BaseExpression) -> str:
        """Return a name for a value, which becomes a parameter of the layer's function."""
        if isinstance(node, cst.Name) and node.value != "x":
            return node.value
        base = dotted(node).rpartition(".")[2].strip("_") or "value"
        name = _first_free((base, *(f"{base}_{i}" for i in range(2, 99))), self._taken)
        self._taken.add(name)
        return name


def _first_free(names: Iterable[str], taken: Container[str]) -> str:
    """Return the first name that is not taken."""
    return next(name for name in names if name not in taken)


def _with_maxlen(mask: cst.Call, sequences: cst.BaseExpression) -> cst.Call:
    """Return a call of `sequence_mask` with the length of the sequences as `maxlen`.

    Without maxlen, the mask is as long as the longest sequence, but a batch may have more padding.
    """
    tf = dotted(mask.func).partition(".")[0]
    length = cst.parse_expression(f"{tf}.shape({code(sequences)})[1]")
    lengths_arg = mask.args[0].with_changes(comma=comma())
    return mask.with_changes(args=[lengths_arg, cst.Arg(length)])


class _Put(cst.CSTTransformer):
    """Transformer that replaces expressions."""

    def __init__(self, replacements: dict[cst.CSTNode, cst.BaseExpression]) -> None:
        super().__init__()
        self._replacements = replacements

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node not in self._replacements

    def on_leave(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        return self._replacements.get(original_node, updated_node)


def names_in(node: cst.CSTNode) -> set[str]:
    """Return the names that an expression reads, and the names of its keyword arguments."""
    return {name.value for name in matchers.findall(node, matchers.Name())}  # type: ignore[attr-defined]


def _has_equality(node: cst.BaseExpression) -> bool:
    """Return whether an expression compares values with `==` or `!=`, but not with None."""
    if not isinstance(node, cst.Comparison):
        return False
    for target in node.comparisons:
        is_equality = isinstance(target.operator, cst.Equal | cst.NotEqual)
        if is_equality and dotted(target.comparator) != "None":
            return True
    return False


def _indices(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return the indices of a subscript, and the bounds of its slices; none for other
    expressions.
    """
    if not isinstance(node, cst.Subscript):
        return []
    indices: list[cst.BaseExpression | None] = []
    for element in node.slice:
        if isinstance(element.slice, cst.Index):
            indices.append(element.slice.value)
        elif isinstance(element.slice, cst.Slice):
            indices += [element.slice.lower, element.slice.upper]
    return [index for index in indices if index is not None]
