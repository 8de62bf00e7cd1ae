"""Rules for lines that Keras 3 wants otherwise."""

from __future__ import annotations

import libcst as cst

from rlcatalog_compat.porting.context import TENSORFLOW, Context, dotted, keyword, name_node


def layer_name(node: cst.Call) -> str:
    """Return the name of the class that a call makes a layer of, or that it calls a layer of; else `""`."""
    func = node.func.func if isinstance(node.func, cst.Call) else node.func
    return dotted(func).rpartition(".")[2]


def is_layer_call(node: cst.Call) -> bool:
    """Return whether a call is one of a layer made on the spot: `Layer(...)(x)`."""
    return isinstance(node.func, cst.Call) and ".layers." in f".{dotted(node.func.func)}."


def call(context: Context, node: cst.Call) -> cst.Call:
    """Return a call as it should be."""
    if is_layer_call(node) and (inputs := keyword(node, "inputs")) is not None and node.args[0] is inputs:
        # Of one argument the name differs between layers (LSTM's is `sequences`); by place it fits all.
        first = inputs.with_changes(keyword=None, equal=cst.MaybeSentinel.DEFAULT)
        return node.with_changes(args=[first, *node.args[1:]])
    if isinstance(node.func, cst.Call):
        return node
    if context.frames and context.stands_for(node.func) == (TENSORFLOW, "keras.layers.Conv2D"):
        context.helpers.add("rlcatalog_compat.frames")
        return node.with_changes(func=name_node("rlcatalog_compat.frames.conv2d"))
    name = layer_name(node)
    if name == "Dense":
        return _whole(node)
    return _tuple_shape(node) if name == "Input" else node


def model_call(context: Context, node: cst.Call) -> cst.Call:
    """Return `model([input_dict])` as `model(input_dict)`, and a Keras model's call without state and lengths."""
    places = [dotted(arg.value) for arg in node.args]
    if places[1:] == ["state", "seq_lens"] and context.classes and dotted(node.func) in context.classes[-1].models:
        return node.with_changes(args=[cst.Arg(node.args[0].value)])
    if len(node.args) != 1 or not isinstance(node.args[0].value, cst.List) or isinstance(node.func, cst.Call):
        return node
    elements = node.args[0].value.elements
    if len(elements) != 1 or dotted(elements[0].value) != "input_dict":
        return node
    return node.with_changes(args=[cst.Arg(elements[0].value)])


def _whole(node: cst.Call) -> cst.Call:
    """Wrap a number of units that may be one of NumPy's integers."""
    args = list(node.args)
    for index, arg in enumerate(args):
        named = arg.keyword.value if arg.keyword is not None else "units" if index == 0 else ""
        last = dotted(arg.value).rpartition(".")[2]
        if named == "units" and (last == "n" or dotted(arg.value) == "num_outputs"):
            args[index] = arg.with_changes(value=cst.Call(cst.Name("int"), [cst.Arg(arg.value)]))
    return node.with_changes(args=args)


def _tuple_shape(node: cst.Call) -> cst.Call:
    """Make a tuple of a shape that is one number in parentheses."""
    args = list(node.args)
    for index, arg in enumerate(args):
        named = arg.keyword.value if arg.keyword is not None else "shape" if index == 0 else ""
        value = arg.value
        # A name may be a tuple already; one in parentheses of its own was meant to be made one.
        one = bool(getattr(value, "lpar", ())) and bool(dotted(value)) and "shape" not in dotted(value)
        number = isinstance(value, cst.Integer) or one
        if named == "shape" and number:
            bare = value.with_changes(lpar=[], rpar=[])
            args[index] = arg.with_changes(value=cst.Tuple([cst.Element(bare, cst.Comma())]))
    return node.with_changes(args=args)
