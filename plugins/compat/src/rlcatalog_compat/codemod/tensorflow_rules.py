"""Rules for TensorFlow 1 code that behaves differently in TensorFlow 2."""

from __future__ import annotations

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
_KEYWORDS, _RENAMING = _TABLE["keywords"], tuple(_TABLE["renaming"])
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
    if module != TENSORFLOW or not context.is_root(node) or dotted(node) in context.patched:
        return node
    today = f"compat.v1.{name}" if name in _SCOPES and _is_kept(context) else _RENAMED.get(name)
    if today is None:
        return node
    root = dotted(node).partition(".")[0]
    return name_node(f"{root}.{today}").with_changes(lpar=node.lpar, rpar=node.rpar)


#: Patterns of `x.get_shape()`, `x.shape`, `x.shape[0]`, and of lists and tuples that begin with
#: `x.shape[0]`.
_GET_SHAPE = m.Call(func=m.Attribute(attr=m.Name("get_shape")), args=[])
_SHAPE = m.Attribute(attr=m.Name("shape"))
_FIRST_SIZE = m.Subscript(value=_SHAPE, slice=[m.SubscriptElement(m.Index(m.Integer("0")))])
_BATCH_SIZE_FIRST = m.Tuple([m.Element(_FIRST_SIZE), m.ZeroOrMore()]) | m.List(
    [m.Element(_FIRST_SIZE), m.ZeroOrMore()]
)


def shape(context: Context, node: cst.BaseExpression) -> cst.BaseExpression:
    """Return a tensor's size or shape in a form that works for both TensorFlow 2 and symbolic Keras
    tensors.

    Sizes have no `value`, and symbolic tensors have neither `get_shape` nor `as_list`.

    Args:
        context: Context of the file.
        node: An attribute, a subscript or a call, whose parts have already been rewritten.
    """
    if context.own_shapes or not any(
        module.startswith(TENSORFLOW) for module in context.modules.values()
    ):
        return node
    changed: Any = node
    if m.matches(node, m.Attribute(m.Subscript(_SHAPE), m.Name("value"))):
        changed = changed.value.with_changes(lpar=node.lpar, rpar=node.rpar)
    elif m.matches(node, m.Subscript(_GET_SHAPE)):
        changed = changed.with_changes(
            value=changed.value.func.with_changes(attr=cst.Name("shape"))
        )
    elif m.matches(node, m.Call(m.Attribute(_GET_SHAPE | _SHAPE, m.Name("as_list")), [])):
        front: Any = changed.func.value
        tensor = front.func.value if m.matches(front, m.Call()) else front.value
        changed = cst.Call(cst.Name("list"), [cst.Arg(cst.Attribute(tensor, cst.Name("shape")))])
    return changed  # type: ignore[no-any-return]


def rows(context: Context, node: cst.Call) -> cst.Call:
    """Return `tf.reshape(x, (y.shape[0], n))` with `tf.shape(y)[0]`: traced functions have no
    static batch size.
    """
    is_reshape = context.stands_for(node.func) == (TENSORFLOW, "reshape") and context.is_root(
        node.func
    )
    if not is_reshape or not m.matches(node, m.Call(args=[m.Arg(), m.Arg(_BATCH_SIZE_FIRST)])):
        return node
    to: Any = node.args[1].value
    size = to.elements[0].value
    root = dotted(node.func).partition(".")[0]
    first = size.with_changes(
        value=cst.Call(name_node(f"{root}.shape"), [cst.Arg(size.value.value)])
    )
    elements = [to.elements[0].with_changes(value=first), *to.elements[1:]]
    return node.with_changes(
        args=[node.args[0], node.args[1].with_changes(value=to.with_changes(elements=elements))]
    )


def is_kept(context: Context, node: cst.Call) -> bool:
    """Return whether a call creates a TensorFlow 1 layer that a model can keep."""
    module, name = context.stands_for(node.func)
    return module in _TENSORFLOWS and name in _KEPT and _is_kept(context)


def kept(context: Context, node: cst.Call, once: bool) -> cst.BaseExpression | None:
    """Replace a call to a TensorFlow 1 layer with a call to a kept layer.

    Args:
        context: Context of the file.
        node: The call, which is in a class's method.
        once: Whether the call runs once per forward pass; otherwise the layer needs a name.

    Returns:
        None if there is no replacement.
    """
    name = context.stands_for(node.func)[1]
    function = "batch_normalization" if name in _BATCH_NORM else name.rpartition(".")[2]
    front = _TABLE["by_place"][function]
    given = _arguments(node, name, front)
    if given is None or any(word in _TABLE["not_served"] for word in given):
        return None
    if (label := given.get("name")) is None and not once:
        return None
    text = (
        cst.SimpleString(f'"{context.classes[-1].label(function)}"')
        if label is None
        else label.value
    )
    args = list[cst.Arg]()
    for place, (word, arg) in enumerate(given.items()):
        if word in _TABLE["without_meaning"]:
            continue
        if place < front and len(args) == place:
            arg = arg.with_changes(keyword=None, equal=cst.MaybeSentinel.DEFAULT)
        elif arg.keyword is None or arg.keyword.value != word:
            arg = arg.with_changes(keyword=cst.Name(word), equal=_EQUAL)
        args.append(arg)
    context.helpers.add("rlcatalog_compat.layers")
    if args:
        end = node.args[-1]  # formatting after the last argument now follows this argument
        comma = (
            cst.MaybeSentinel.DEFAULT
            if args[-1].keyword is None and end is not args[-1]
            else end.comma
        )
        args[-1] = args[-1].with_changes(comma=comma, whitespace_after_arg=end.whitespace_after_arg)
    whole = [cst.Arg(cst.Name("self")), cst.Arg(text), *args]
    return node.with_changes(func=name_node(f"rlcatalog_compat.layers.{function}"), args=whole)


def _arguments(node: cst.Call, name: str, front: int) -> dict[str, cst.Arg] | None:
    """Return a call's arguments by their names in a kept layer, or None if one is unknown."""
    if any(arg.star for arg in node.args):
        return None
    words = _KEPT[name].split()
    places = [arg for arg in node.args if arg.keyword is None]
    if len(places) > len(words):
        return None
    given = dict(zip(words, places, strict=False))
    given |= {arg.keyword.value: arg for arg in node.args if arg.keyword is not None}
    if not set(given) <= set(words):
        return None
    if name == "contrib.layers.batch_norm":
        given = {_TABLE["batch_norm"].get(word, word): arg for word, arg in given.items()}
        defaults = _TABLE["batch_norm_defaults"].items()
        given |= {
            word: cst.Arg(cst.parse_expression(value))
            for word, value in defaults
            if word not in given
        }
    first = [word for word in words[:front] if word in given]
    return {word: given[word] for word in dict.fromkeys([*first, *given])}


def names_anew(context: Context, node: cst.Call) -> str | None:
    """Return why a scope around kept layers cannot be ported, or None."""
    module, name = context.stands_for(node.func)
    if module not in _TENSORFLOWS or name != "variable_scope" or not _is_kept(context):
        return None
    unnamed = bool(node.args) and dotted(node.args[0].value) == "None"
    return (
        _ANEW
        if unnamed or keyword(node, "default_name") is not None or len(node.args) == 0
        else None
    )


def _is_kept(context: Context) -> bool:
    return bool(context.classes) and context.classes[-1].kept


def graph_code(context: Context, node: cst.Attribute) -> str | None:
    """Return why a dotted name cannot be ported, or None."""
    module, name = context.stands_for(node)
    if module not in _TENSORFLOWS or (module == TENSORFLOW and name in _RENAMED):
        return None
    if _is_kept(context) and (name.startswith(_SCOPES) or name in _KEPT):
        return None  # scopes of kept layers; the layers are handled as calls
    if module == TENSORFLOW and name.startswith("losses.") and name.split(".")[1][:1].isupper():
        return None
    return GRAPH if is_graph_code(name) else None


def is_graph_code(name: str) -> bool:
    """Return whether a name, or a prefix of it, exists only in TensorFlow 1 graphs."""
    return any(name == start or name.startswith(f"{start}.") for start in _TABLE["graphs"])


def why_not_imported(path: str) -> str | None:
    """Return why a name cannot be imported from TensorFlow; None if it can."""
    if path.startswith("compat.v1."):
        path = path.removeprefix("compat.v1.")
        return GRAPH if path.startswith(("layers", "contrib")) else None
    if path in _RENAMED:
        return f"its TensorFlow 2 name is tf.{_RENAMED[path]}; import tensorflow as tf and use that"
    if path in _CASTS:
        return (
            "removed from TensorFlow 2; import tensorflow as tf and use tf.cast(x,"
            f" tf.{_CASTS[path]})"
        )
    return GRAPH if is_graph_code(path) else None


def call(context: Context, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
    """Return the replacement for a call."""
    module, name = context.stands_for(original.func)
    if module not in _TENSORFLOWS:
        return updated
    root = dotted(original.func).partition(".")[0]
    if name in _CASTS and module == TENSORFLOW and updated.args and context.is_root(original.func):
        dtype = cst.Arg(name_node(f"{root}.{_CASTS[name]}"))
        value = updated.args[0].with_changes(comma=comma(), keyword=None)
        return updated.with_changes(func=name_node(f"{root}.cast"), args=[value, dtype])
    if name == "where" and module == TENSORFLOW and context.selects_rows and len(updated.args) == 3:
        return updated.with_changes(func=name_node(f"{root}.compat.v1.where"))
    if (
        name == "nn.dropout"
        and module == TENSORFLOW
        and (share := keyword(updated, "keep_prob")) is not None
    ):
        rate = cst.parse_expression(f"1 - ({code(share.value)})")
        dropped = share.with_changes(keyword=cst.Name("rate"), value=rate)
        return updated.with_changes(args=[dropped if arg is share else arg for arg in updated.args])
    if (
        module == TENSORFLOW
        and name.startswith(_RENAMING)
        and any(keyword(updated, old) for old in _KEYWORDS)
    ):
        words = {old: cst.Name(new) for old, new in _KEYWORDS.items()}
        args = [
            arg.with_changes(keyword=words.get(dotted(arg.keyword), arg.keyword))
            for arg in updated.args
        ]
        return updated.with_changes(args=args)
    return updated


def drops_by_place(context: Context, node: cst.Call) -> str | None:
    """Return why a dropout call may have a different meaning in TensorFlow 2, or None."""
    is_dropout = context.stands_for(node.func) == (TENSORFLOW, "nn.dropout")
    return _DROPOUT if is_dropout and len(node.args) > 1 and node.args[1].keyword is None else None


def unpacked(node: cst.Assign) -> cst.Assign:
    """Return `tf = try_import_tf()` as `_, tf, _ = try_import_tf()`: since RLlib 0.8.6, it returns
    three values.
    """
    target = node.targets[0].target
    is_import = (
        isinstance(node.value, cst.Call)
        and dotted(node.value.func).rpartition(".")[2] == "try_import_tf"
    )
    if not is_import or len(node.targets) != 1 or not isinstance(target, cst.Name):
        return node
    three: Any = cst.parse_statement(f"_, {target.value}, _ = x")
    return node.with_changes(targets=three.body[0].targets)
