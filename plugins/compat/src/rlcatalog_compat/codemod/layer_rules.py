"""Rules for code that behaves differently in Keras 3 or current PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst
from libcst import matchers as m

from rlcatalog_compat.codemod.context import TENSORFLOW, Context, code, dotted, keyword, name_node

#: `model([input_dict])`.
_LISTED_INPUT = m.Call(args=[m.Arg(m.List([m.Element(m.Name("input_dict"))]))])
#: PyTorch layers that only accept Python numbers.
_RECURRENT = ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell")


def call(context: Context, node: cst.Call) -> cst.Call:
    """Return the replacement for a call."""
    if isinstance(node.func, cst.Call):
        is_layer_call = ".layers." in f".{dotted(node.func.func)}."
        return _with_positional_inputs(node) if is_layer_call else node
    if context.has_3d_layers and context.stands_for(node.func) == (
        TENSORFLOW,
        "keras.layers.Conv2D",
    ):
        context.helpers.add("rlcatalog_compat.frames")
        return node.with_changes(func=name_node("rlcatalog_compat.frames.conv2d"))
    name = dotted(node.func).rpartition(".")[2]
    if name == "Dense":
        return _with_argument(node, "units", _python_integer)
    if name == "Input":
        return _with_argument(node, "shape", _tuple_shape)
    return node


def _with_positional_inputs(node: cst.Call) -> cst.Call:
    """Return a layer's call whose first argument, if it is `inputs=...`, is passed by position,
    because the parameter's name differs between layers: LSTM's is `sequences`.
    """
    inputs = keyword(node, "inputs")
    if inputs is None or node.args[0] is not inputs:
        return node
    first = inputs.with_changes(keyword=None, equal=cst.MaybeSentinel.DEFAULT)
    return node.with_changes(args=[first, *node.args[1:]])


def model_call(context: Context, node: cst.Call) -> cst.Call:
    """Replace `model([input_dict])` with `model(input_dict)`; drop state and lengths from a Keras
    model's call.
    """
    scope = context.enclosing_class()
    is_keras_model = scope is not None and dotted(node.func) in scope.models
    later_arguments = [dotted(arg.value) for arg in node.args[1:]]
    if is_keras_model and later_arguments == ["state", "seq_lens"]:
        return node.with_changes(args=[cst.Arg(node.args[0].value)])
    if m.matches(node, _LISTED_INPUT) and not isinstance(node.func, cst.Call):
        return node.with_changes(args=[cst.Arg(cst.Name("input_dict"))])
    return node


def _with_argument(
    node: cst.Call, name: str, change: Callable[[cst.BaseExpression], cst.BaseExpression]
) -> cst.Call:
    """Return a call with the named argument changed; it may also be the first
    positional argument.
    """
    args = []
    for index, arg in enumerate(node.args):
        if arg.keyword is None:
            is_argument = index == 0
        else:
            is_argument = arg.keyword.value == name
        if is_argument:
            arg = arg.with_changes(value=change(arg.value))
        args.append(arg)
    return node.with_changes(args=args)


def _python_integer(units: cst.BaseExpression) -> cst.BaseExpression:
    """Convert a number of units, which may be a NumPy integer, to a Python integer."""
    may_be_numpy = dotted(units) == "num_outputs" or dotted(units).rpartition(".")[2] == "n"
    if may_be_numpy:
        return cst.Call(cst.Name("int"), [cst.Arg(units)])
    return units


def _tuple_shape(shape: cst.BaseExpression) -> cst.BaseExpression:
    """Convert a shape written as a single number in parentheses, such as `(4)`, to a tuple."""
    name = dotted(shape)
    # A variable may already be a tuple, but parentheses around one name mean a tuple, unless the
    # name says that it is a shape.
    is_name_in_parentheses = bool(name) and bool(shape.lpar) and "shape" not in name
    if not is_name_in_parentheses and not isinstance(shape, cst.Integer):
        return shape
    number = shape.with_changes(lpar=[], rpar=[])
    return cst.Tuple([cst.Element(number, cst.Comma())])


def is_recurrent(node: cst.Call) -> bool:
    """Return whether a call creates a PyTorch recurrent layer."""
    front, _, name = dotted(node.func).rpartition(".")
    return name in _RECURRENT and front in ("nn", "torch.nn")


def python_number(context: Context, node: cst.Attribute) -> cst.BaseExpression:
    """Convert `action_space.n`, a NumPy integer in Gymnasium, to the Python integer that recurrent
    layers require.
    """
    if not context.has_recurrent_layers or context.int_calls:
        return node
    if node.attr.value == "n" and code(node.value).endswith("space"):
        return cst.Call(cst.Name("int"), [cst.Arg(node)])
    return node
