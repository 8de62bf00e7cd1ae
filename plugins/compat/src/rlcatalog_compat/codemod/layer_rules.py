"""Rules for code that behaves differently in Keras 3 or current PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
        inputs = keyword(node, "inputs")
        if (
            ".layers." not in f".{dotted(node.func.func)}."
            or inputs is None
            or node.args[0] is not inputs
        ):
            return node
        # The first argument's name differs between layers (LSTM's is `sequences`), so pass it by
        # position.
        first = inputs.with_changes(keyword=None, equal=cst.MaybeSentinel.DEFAULT)
        return node.with_changes(args=[first, *node.args[1:]])
    if context.frames and context.stands_for(node.func) == (TENSORFLOW, "keras.layers.Conv2D"):
        context.helpers.add("rlcatalog_compat.frames")
        return node.with_changes(func=name_node("rlcatalog_compat.frames.conv2d"))
    name = dotted(node.func).rpartition(".")[2]
    if name == "Dense":
        return _with_argument(node, "units", _whole)
    return _with_argument(node, "shape", _tuple_shape) if name == "Input" else node


def model_call(context: Context, node: cst.Call) -> cst.Call:
    """Replace `model([input_dict])` with `model(input_dict)`; drop state and lengths from a Keras
    model's call.
    """
    places = [dotted(arg.value) for arg in node.args]
    if (
        places[1:] == ["state", "seq_lens"]
        and context.classes
        and dotted(node.func) in context.classes[-1].models
    ):
        return node.with_changes(args=[cst.Arg(node.args[0].value)])
    if m.matches(node, _LISTED_INPUT) and not isinstance(node.func, cst.Call):
        return node.with_changes(args=[cst.Arg(cst.Name("input_dict"))])
    return node


def _with_argument(
    node: cst.Call, name: str, change: Callable[[Any], cst.BaseExpression]
) -> cst.Call:
    """Return a call with the named argument changed; it may also be the first
    positional argument.
    """
    args = list(node.args)
    for index, arg in enumerate(args):
        if (arg.keyword.value if arg.keyword is not None else name if index == 0 else "") == name:
            args[index] = arg.with_changes(value=change(arg.value))
    return node.with_changes(args=args)


def _whole(units: cst.BaseExpression) -> cst.BaseExpression:
    """Convert a number of units, which may be a NumPy integer, to a Python integer."""
    is_number = dotted(units) == "num_outputs" or dotted(units).rpartition(".")[2] == "n"
    return cst.Call(cst.Name("int"), [cst.Arg(units)]) if is_number else units


def _tuple_shape(shape: Any) -> cst.BaseExpression:
    """Convert a shape written as a single number in parentheses, such as `(4)`, to a tuple."""
    # A variable may already be a tuple, but parentheses around one number mean a tuple.
    is_name = (
        bool(getattr(shape, "lpar", ())) and bool(dotted(shape)) and "shape" not in dotted(shape)
    )
    if not (is_name or isinstance(shape, cst.Integer)):
        return shape  # type: ignore[no-any-return]
    return cst.Tuple([cst.Element(shape.with_changes(lpar=[], rpar=[]), cst.Comma())])


def is_recurrent(node: cst.Call) -> bool:
    """Return whether a call creates a PyTorch recurrent layer."""
    front, _, name = dotted(node.func).rpartition(".")
    return name in _RECURRENT and front in ("nn", "torch.nn")


def number(context: Context, node: cst.Attribute) -> cst.BaseExpression:
    """Convert `action_space.n`, a NumPy integer in Gymnasium, to the Python integer that recurrent
    layers require.
    """
    if (
        not context.recurrent
        or context.whole
        or node.attr.value != "n"
        or not code(node.value).endswith("space")
    ):
        return node
    return cst.Call(cst.Name("int"), [cst.Arg(node)])
