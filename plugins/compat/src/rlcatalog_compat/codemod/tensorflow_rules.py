"""Rules for TensorFlow 1 code that behaves differently in TensorFlow 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import libcst as cst
from libcst import matchers as m

from rlcatalog_compat.codemod import TABLES
from rlcatalog_compat.codemod.context import (
    TENSORFLOW,
    TENSORFLOW_1,
    Context,
    code,
    comma,
    dotted,
    keyword,
    name_node,
)

_TENSORFLOWS = (TENSORFLOW, TENSORFLOW_1)
_TABLE = TABLES["tensorflow"]
#: Name → TensorFlow's current name.
_RENAMED = _TABLE["renamed"]
_CASTS = _TABLE["casts"]
#: Renamed keyword arguments of TensorFlow, and prefixes of the operations that had them.
_KEYWORDS = _TABLE["keywords"]
_RENAMING = tuple(_TABLE["renaming"])
#: Layers that a model can keep → their parameters, in order.
_KEPT = _TABLE["kept"]
GRAPH = (
    "code for TensorFlow 1's graphs; create the layers in __init__ with tf.keras.layers and"
    " call them in forward()"
)
_DROPOUT = (
    "the second argument was keep_prob in TensorFlow 1 and is rate in TensorFlow 2; pass it by name"
)
#: Scopes around kept layers; in TensorFlow 2 they are in `compat.v1`.
_SCOPES = (
    "variable_scope",
    "get_variable_scope",
    "VariableScope",
    "AUTO_REUSE",
    "get_collection",
    "GraphKeys",
)
_BATCH_NORM = ("layers.batch_normalization", "contrib.layers.batch_norm")
_EQUAL = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
_ANEW = (
    "a scope without a name, for which TensorFlow creates a new name in each call; give it a name"
)


def attribute(context: Context, node: cst.Attribute) -> cst.BaseExpression:
    """Return the replacement for a dotted name."""
    module, name = context.stands_for(node)
    if module != TENSORFLOW or not context.is_root(node) or dotted(node) in context.reassigned:
        return node
    new_name = _RENAMED.get(name)
    if name in _SCOPES and context.keeps_layers():
        new_name = f"compat.v1.{name}"
    if new_name is None:
        return node
    return name_node(f"{_root(node)}.{new_name}").with_changes(lpar=node.lpar, rpar=node.rpar)


def _root(node: cst.CSTNode) -> str:
    """Return the first word of a dotted name: the file's name for TensorFlow."""
    return dotted(node).partition(".")[0]


#: Patterns of `x.get_shape()`, `x.shape`, `x.shape[0]`, and of lists and tuples that begin with
#: `x.shape[0]`.
_GET_SHAPE = m.Call(func=m.Attribute(attr=m.Name("get_shape")), args=[])
_SHAPE = m.Attribute(attr=m.Name("shape"))
_FIRST_SIZE = m.Subscript(value=_SHAPE, slice=[m.SubscriptElement(m.Index(m.Integer("0")))])
_BATCH_SIZE_FIRST = m.Tuple([m.Element(_FIRST_SIZE), m.ZeroOrMore()]) | m.List(
    [m.Element(_FIRST_SIZE), m.ZeroOrMore()]
)


def port_shape(context: Context, node: cst.BaseExpression) -> cst.BaseExpression:
    """Return a tensor's size or shape in a form that works for both TensorFlow 2 and symbolic Keras
    tensors.

    Sizes have no `value`, and symbolic tensors have neither `get_shape` nor `as_list`.

    Args:
        context: Context of the file.
        node: An attribute, a subscript or a call, whose parts have already been rewritten.
    """
    uses_tensorflow = any(module.startswith(TENSORFLOW) for module in context.modules.values())
    if context.defines_shape or not uses_tensorflow:
        return node
    # The patterns below guarantee the attributes that are read.
    matched: Any = node
    replacement: cst.BaseExpression = node
    if m.matches(node, m.Attribute(m.Subscript(_SHAPE), m.Name("value"))):  # x.shape[0].value
        replacement = matched.value.with_changes(lpar=node.lpar, rpar=node.rpar)
    elif m.matches(node, m.Subscript(_GET_SHAPE)):  # x.get_shape()[0]
        shape_attribute = matched.value.func.with_changes(attr=cst.Name("shape"))
        replacement = matched.with_changes(value=shape_attribute)
    elif m.matches(node, m.Call(m.Attribute(_GET_SHAPE | _SHAPE, m.Name("as_list")), [])):
        shape_or_call = matched.func.value  # `x.shape` or `x.get_shape()`
        shape_attribute = shape_or_call
        if m.matches(shape_or_call, m.Call()):
            shape_attribute = shape_or_call.func
        tensor = shape_attribute.value
        argument = cst.Arg(cst.Attribute(tensor, cst.Name("shape")))
        replacement = cst.Call(cst.Name("list"), [argument])
    return replacement


def with_dynamic_batch_size(context: Context, node: cst.Call) -> cst.Call:
    """Return `tf.reshape(x, (y.shape[0], n))` with `tf.shape(y)[0]`: traced functions have no
    static batch size.
    """
    is_reshape = context.stands_for(node.func) == (TENSORFLOW, "reshape")
    if not is_reshape or not context.is_root(node.func):
        return node
    if not m.matches(node, m.Call(args=[m.Arg(), m.Arg(_BATCH_SIZE_FIRST)])):
        return node
    tensor_arg, shape_arg = node.args
    # The pattern guarantees a list or tuple that begins with `y.shape[0]`.
    new_shape: Any = shape_arg.value
    first_element, *other_elements = new_shape.elements
    batch_size = first_element.value
    y = batch_size.value.value
    dynamic_shape = cst.Call(name_node(f"{_root(node.func)}.shape"), [cst.Arg(y)])
    dynamic_batch_size = batch_size.with_changes(value=dynamic_shape)
    elements = [first_element.with_changes(value=dynamic_batch_size), *other_elements]
    new_shape_arg = shape_arg.with_changes(value=new_shape.with_changes(elements=elements))
    return node.with_changes(args=[tensor_arg, new_shape_arg])


def is_layer_to_keep(context: Context, node: cst.Call) -> bool:
    """Return whether a call creates a TensorFlow 1 layer that a model can keep."""
    module, name = context.stands_for(node.func)
    return module in _TENSORFLOWS and name in _KEPT and context.keeps_layers()


def keep_layer(context: Context, node: cst.Call, runs_once: bool) -> cst.BaseExpression | None:
    """Replace a call to a TensorFlow 1 layer with a call to a kept layer.

    Args:
        context: Context of the file.
        node: The call, which is in a class's method.
        runs_once: Whether the call runs once per forward pass; otherwise the layer needs a name.

    Returns:
        None if there is no replacement.
    """
    name = context.stands_for(node.func).name
    function = name.rpartition(".")[2]
    if name in _BATCH_NORM:
        function = "batch_normalization"
    num_positional = _TABLE["by_place"][function]
    args_by_name = _arguments(node, name, num_positional)
    if args_by_name is None or any(word in _TABLE["not_served"] for word in args_by_name):
        return None
    name_arg = args_by_name.get("name")
    if name_arg is not None:
        layer_name = name_arg.value
    elif runs_once:
        label = context.classes[-1].label(function)
        layer_name = cst.SimpleString(f'"{label}"')
    else:
        return None
    last_arg = node.args[-1] if node.args else None
    layer_args = _layer_arguments(args_by_name, num_positional, last_arg)
    context.helpers.add("rlcatalog_compat.layers")
    args = [cst.Arg(cst.Name("self")), cst.Arg(layer_name), *layer_args]
    return node.with_changes(func=name_node(f"rlcatalog_compat.layers.{function}"), args=args)


def _layer_arguments(
    args_by_name: Mapping[str, cst.Arg], num_positional: int, last_arg: cst.Arg | None
) -> list[cst.Arg]:
    """Return the arguments for a kept layer, after the model and the layer's name.

    Args:
        args_by_name: Arguments by their names in the kept layer, in order.
        num_positional: How many of them are passed by position, if none before them is left out.
        last_arg: The last argument of the original call, or None if it has no arguments.
    """
    args: list[cst.Arg] = []
    for index, (word, arg) in enumerate(args_by_name.items()):
        if word in _TABLE["without_meaning"]:
            continue
        is_keyword = arg.keyword is not None and arg.keyword.value == word
        follows_all_before = len(args) == index  # no argument before this one was left out
        if index < num_positional and follows_all_before:
            arg = arg.with_changes(keyword=None, equal=cst.MaybeSentinel.DEFAULT)
        elif not is_keyword:
            arg = arg.with_changes(keyword=cst.Name(word), equal=_EQUAL)
        args.append(arg)
    if args and last_arg is not None:
        # The layout after the call's last argument, such as a line break, follows this one now.
        new_last_arg = args[-1]
        comma_after = last_arg.comma
        if new_last_arg.keyword is None and last_arg is not new_last_arg:
            comma_after = cst.MaybeSentinel.DEFAULT
        args[-1] = new_last_arg.with_changes(
            comma=comma_after, whitespace_after_arg=last_arg.whitespace_after_arg
        )
    return args


def _arguments(node: cst.Call, name: str, num_positional: int) -> dict[str, cst.Arg] | None:
    """Return a call's arguments by their names in a kept layer, or None if one is unknown.

    Args:
        node: The call.
        name: Name of the function in TensorFlow 1.
        num_positional: Number of parameters that come first in the result.
    """
    if any(arg.star for arg in node.args):
        return None
    parameters = _KEPT[name].split()
    positional_args = [arg for arg in node.args if arg.keyword is None]
    if len(positional_args) > len(parameters):
        return None
    args_by_name = dict(zip(parameters, positional_args, strict=False))
    for arg in node.args:
        if arg.keyword is not None:
            args_by_name[arg.keyword.value] = arg
    if not set(args_by_name) <= set(parameters):
        return None
    if name == "contrib.layers.batch_norm":
        args_by_name = _batch_norm_arguments(args_by_name)
    first_names = [word for word in parameters[:num_positional] if word in args_by_name]
    ordered_names = dict.fromkeys([*first_names, *args_by_name])
    return {word: args_by_name[word] for word in ordered_names}


def _batch_norm_arguments(args_by_name: Mapping[str, cst.Arg]) -> dict[str, cst.Arg]:
    """Return arguments of `contrib.layers.batch_norm` under Keras' names, with TensorFlow 1's
    defaults where Keras has others.
    """
    keras_args = {_TABLE["batch_norm"].get(word, word): arg for word, arg in args_by_name.items()}
    for word, default in _TABLE["batch_norm_defaults"].items():
        if word not in keras_args:
            keras_args[word] = cst.Arg(cst.parse_expression(default))
    return keras_args


def why_scope_stays(context: Context, node: cst.Call) -> str | None:
    """Return why a scope around kept layers cannot be ported, or None."""
    module, name = context.stands_for(node.func)
    if module not in _TENSORFLOWS or name != "variable_scope" or not context.keeps_layers():
        return None
    is_unnamed = not node.args or dotted(node.args[0].value) == "None"
    if is_unnamed or keyword(node, "default_name") is not None:
        return _ANEW
    return None


def why_graph_code_stays(context: Context, node: cst.Attribute) -> str | None:
    """Return why a dotted name cannot be ported, or None."""
    module, name = context.stands_for(node)
    if module not in _TENSORFLOWS or (module == TENSORFLOW and name in _RENAMED):
        return None
    if context.keeps_layers() and (name.startswith(_SCOPES) or name in _KEPT):
        return None  # scopes of kept layers; the layers are handled as calls
    if module == TENSORFLOW and name.startswith("losses."):
        # Classes such as `losses.Huber` are TensorFlow 2's; the functions are TensorFlow 1's.
        is_class = name.split(".")[1][:1].isupper()
        if is_class:
            return None
    if is_graph_code(name):
        return GRAPH
    return None


def is_graph_code(name: str) -> bool:
    """Return whether a name, or a prefix of it, exists only in TensorFlow 1 graphs."""
    return any(name == start or name.startswith(f"{start}.") for start in _TABLE["graphs"])


def why_not_imported(path: str) -> str | None:
    """Return why a name cannot be imported from TensorFlow; None if it can."""
    if path.startswith("compat.v1."):
        name = path.removeprefix("compat.v1.")
        if name.startswith(("layers", "contrib")):
            return GRAPH
        return None
    if path in _RENAMED:
        return f"its TensorFlow 2 name is tf.{_RENAMED[path]}; import tensorflow as tf and use that"
    if path in _CASTS:
        return (
            "removed from TensorFlow 2; import tensorflow as tf and use tf.cast(x,"
            f" tf.{_CASTS[path]})"
        )
    if is_graph_code(path):
        return GRAPH
    return None


def call(context: Context, original: cst.Call, updated: cst.Call) -> cst.Call:
    """Return the replacement for a call."""
    module, name = context.stands_for(original.func)
    if module != TENSORFLOW:
        return updated
    root = _root(original.func)
    if name in _CASTS and updated.args and context.is_root(original.func):
        dtype = cst.Arg(name_node(f"{root}.{_CASTS[name]}"))
        value = updated.args[0].with_changes(comma=comma(), keyword=None)
        return updated.with_changes(func=name_node(f"{root}.cast"), args=[value, dtype])
    if name == "where" and context.selects_rows and len(updated.args) == 3:
        return updated.with_changes(func=name_node(f"{root}.compat.v1.where"))
    if name == "nn.dropout" and keyword(updated, "keep_prob") is not None:
        return _with_dropout_rate(updated)
    if name.startswith(_RENAMING):
        return _with_new_keywords(updated)
    return updated


def _with_dropout_rate(node: cst.Call) -> cst.Call:
    """Return a dropout call with `rate`, the share to drop, instead of `keep_prob`."""
    args = []
    for arg in node.args:
        if dotted(arg.keyword) == "keep_prob":
            rate = cst.parse_expression(f"1 - ({code(arg.value)})")
            arg = arg.with_changes(keyword=cst.Name("rate"), value=rate)
        args.append(arg)
    return node.with_changes(args=args)


def _with_new_keywords(node: cst.Call) -> cst.Call:
    """Return a call whose keywords have TensorFlow 2's names."""
    args = []
    for arg in node.args:
        keyword_name = dotted(arg.keyword)
        if keyword_name in _KEYWORDS:
            arg = arg.with_changes(keyword=cst.Name(_KEYWORDS[keyword_name]))
        args.append(arg)
    return node.with_changes(args=args)


def why_dropout_stays(context: Context, node: cst.Call) -> str | None:
    """Return why a dropout call may have a different meaning in TensorFlow 2, or None."""
    is_dropout = context.stands_for(node.func) == (TENSORFLOW, "nn.dropout")
    if is_dropout and len(node.args) > 1 and node.args[1].keyword is None:
        return _DROPOUT
    return None


def unpack_three(node: cst.Assign) -> cst.Assign:
    """Return `tf = try_import_tf()` as `_, tf, _ = try_import_tf()`: since RLlib 0.8.6, it returns
    three values.
    """
    if len(node.targets) != 1 or not isinstance(node.value, cst.Call):
        return node
    target = node.targets[0].target
    function = dotted(node.value.func).rpartition(".")[2]
    if function != "try_import_tf" or not isinstance(target, cst.Name):
        return node
    # Only the targets of this statement are used.
    statement: Any = cst.parse_statement(f"_, {target.value}, _ = x")
    return node.with_changes(targets=statement.body[0].targets)
