"""Rules for lines of TensorFlow 1 that TensorFlow 2 wants otherwise."""

from __future__ import annotations

import libcst as cst

from rlcatalog_compat.porting.context import TENSORFLOW, TENSORFLOW_1, Context, code, dotted, keyword, name_node

_TENSORFLOWS = (TENSORFLOW, TENSORFLOW_1)
#: Name → TensorFlow's name today.
_RENAMED = {
    **{name: f"math.{name}" for name in (
        "log", "log1p", "log_sigmoid", "lgamma", "digamma", "erf", "erfc", "expm1", "rsqrt", "is_nan", "is_inf",
        "is_finite", "ceil", "floordiv", "floormod", "invert_permutation", "unsorted_segment_sum", "bincount",
        "polygamma", "zeta", "betainc", "cumprod", "count_nonzero", "conj", "angle", "imag", "real",
    )},
    "mod": "math.floormod", "div": "math.divide", "random_normal": "random.normal", "random_uniform": "random.uniform",
    "truncated_normal": "random.truncated_normal", "random_shuffle": "random.shuffle", "set_random_seed":
    "random.set_seed", "matrix_band_part": "linalg.band_part", "matrix_diag": "linalg.diag", "matrix_diag_part":
    "linalg.diag_part", "matrix_inverse": "linalg.inv", "matrix_transpose": "linalg.matrix_transpose", "trace":
    "linalg.trace", "diag": "linalg.tensor_diag", "cholesky": "linalg.cholesky", "check_numerics":
    "debugging.check_numerics", "assert_equal": "debugging.assert_equal", "Print": "print", "space_to_depth":
    "nn.space_to_depth", "depth_to_space": "nn.depth_to_space", "sparse_to_dense": "sparse.to_dense", "reverse_v2":
    "reverse", "nn.softmax_cross_entropy_with_logits_v2": "nn.softmax_cross_entropy_with_logits", "log_softmax":
    "nn.log_softmax", "layers.Dense": "keras.layers.Dense", "layers.Flatten": "keras.layers.Flatten", "layers.Conv2D":
    "keras.layers.Conv2D", "orthogonal_initializer": "keras.initializers.Orthogonal", "glorot_uniform_initializer":
    "keras.initializers.GlorotUniform", "contrib.layers.xavier_initializer": "keras.initializers.GlorotUniform",
    "train.AdamOptimizer": "keras.optimizers.Adam",
}  # fmt: skip
_CASTS = {f"to_{name}": dtype for name, dtype in
          {"float": "float32", "double": "float64", "int32": "int32", "int64": "int64"}.items()}  # fmt: skip
_GRAPH = "code for TensorFlow 1's graphs; make the layers in __init__ with tf.keras.layers and call them in forward()"

#: Beginnings of names that only graphs have.
_GRAPHS = (
    "contrib", "layers", "placeholder", "get_variable", "variable_scope", "Session", "get_default_session",
    "get_collection", "add_to_collection", "global_variables", "trainable_variables", "get_default_graph",
    "global_variables_initializer", "train", "losses", "name_scope_v1", "GraphKeys", "AUTO_REUSE", "nn.dynamic_rnn",
    "nn.rnn_cell", "nn.static_rnn", "disable_v2_behavior", "disable_eager_execution", "py_func",
)  # fmt: skip
#: Keyword arguments TensorFlow has renamed.
_KEYWORDS = {"keep_dims": "keepdims", "reduction_indices": "axis"}
#: Layers that a model may keep, arguments that mean nothing then, and what stands around them.
_KEPT = ("layers.dense", "layers.conv2d", "layers.flatten", "layers.batch_normalization", "get_variable")
_WITHOUT_MEANING = ("name", "reuse", "collections", "use_resource")
_SCOPES = ("variable_scope", "VariableScope", "AUTO_REUSE", "get_collection", "GraphKeys", *_KEPT)
_BATCH_NORM = ("layers.batch_normalization", "contrib.layers.batch_norm")


def attribute(context: Context, node: cst.Attribute) -> cst.BaseExpression:
    """Return a dotted name as it should be."""
    module, name = context.stands_for(node)
    if module != TENSORFLOW or name not in _RENAMED:
        return node
    root = dotted(node).partition(".")[0]
    return name_node(f"{root}.{_RENAMED[name]}").with_changes(lpar=node.lpar, rpar=node.rpar)


def shape(context: Context, node: cst.BaseExpression) -> cst.BaseExpression:
    """Return a tensor's size or shape as both TensorFlow 2 and Keras' symbolic tensors give it.

    Sizes have no `value`, and symbolic tensors neither `get_shape` nor `as_list`.

    Args:
        context: What is known of the file.
        node: An attribute, a subscript or a call, its parts rewritten.
    """
    if not any(module in _TENSORFLOWS for module in context.modules.values()):
        return node
    if isinstance(node, cst.Attribute) and node.attr.value == "value" and isinstance(node.value, cst.Subscript):
        is_size = isinstance(node.value.value, cst.Attribute) and node.value.value.attr.value == "shape"
        return node.value.with_changes(lpar=node.lpar, rpar=node.rpar) if is_size else node
    if isinstance(node, cst.Subscript) and (tensor := _shaped(node.value)) is not None:
        return node.with_changes(value=cst.Attribute(tensor, cst.Name("shape")))
    if isinstance(node, cst.Call) and not node.args and isinstance(node.func, cst.Attribute):
        of = node.func.value
        tensor = _shaped(of) or (of.value if isinstance(of, cst.Attribute) and of.attr.value == "shape" else None)
        if node.func.attr.value == "as_list" and tensor is not None:
            return cst.Call(cst.Name("list"), [cst.Arg(cst.Attribute(tensor, cst.Name("shape")))])
    return node


def rows(context: Context, node: cst.Call) -> cst.Call:
    """Return `tf.reshape(x, (y.shape[0], n))` with `tf.shape(y)[0]`: a traced function knows no size of batches."""
    if context.stands_for(node.func) != (TENSORFLOW, "reshape") or len(node.args) != 2:
        return node
    to = node.args[1].value
    if not isinstance(to, cst.Tuple | cst.List) or not isinstance(to.elements[0].value, cst.Subscript):
        return node
    size = to.elements[0].value
    whole = size.value
    is_first = len(size.slice) == 1 and code(size.slice[0]) == "0"
    if not is_first or not isinstance(whole, cst.Attribute) or whole.attr.value != "shape":
        return node
    if context.symbolic and dotted(whole.value) in context.symbolic[-1]:
        return node
    root = dotted(node.func).partition(".")[0]
    first = size.with_changes(value=cst.Call(name_node(f"{root}.shape"), [cst.Arg(whole.value)]))
    elements = [to.elements[0].with_changes(value=first), *to.elements[1:]]
    return node.with_changes(args=[node.args[0], node.args[1].with_changes(value=to.with_changes(elements=elements))])


def _shaped(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the tensor whose shape `tensor.get_shape()` gives; None of anything else."""
    is_call = isinstance(node, cst.Call) and not node.args and isinstance(node.func, cst.Attribute)
    if not is_call or node.func.attr.value != "get_shape":  # type: ignore[attr-defined]
        return None
    return node.func.value  # type: ignore[attr-defined,no-any-return]


def kept(context: Context, node: cst.Call) -> cst.BaseExpression | None:
    """Return a call of a layer of TensorFlow 1 as one of a layer that the model keeps.

    Args:
        context: What is known of the file.
        node: The call, in a method of a class.

    Returns:
        None where it is no such call, or one in a loop whose layers have no names.
    """
    module, name = context.stands_for(node.func)
    if module not in _TENSORFLOWS or name not in _KEPT or not (context.classes and context.classes[-1].kept):
        return None
    function = name.rpartition(".")[2]
    args = [arg for arg in node.args if arg.keyword is None or arg.keyword.value not in _WITHOUT_MEANING]
    given = keyword(node, "name")
    if given is None and name == "get_variable" and args and args[0].keyword is None:
        given, args = args[0], args[1:]
    if given is None and context.loops:
        return None
    key = context.classes[-1].add(function, None) if given is None else ""
    label = cst.SimpleString(f'"{key}"') if given is None else given.value
    context.helpers.add("rlcatalog_compat.kept")
    context.classes[-1].made.setdefault("kept_layers", cst.parse_expression("rlcatalog_compat.kept.start()"))
    if args and args[-1] is not node.args[-1]:  # what stood behind the last argument now stands behind this one
        end = node.args[-1]
        args[-1] = args[-1].with_changes(comma=end.comma, whitespace_after_arg=end.whitespace_after_arg)
    front = [cst.Arg(cst.Name("self")), cst.Arg(label)]
    return node.with_changes(func=name_node(f"rlcatalog_compat.kept.{function}"), args=[*front, *args])


def graph_code(context: Context, node: cst.Attribute) -> str | None:
    """Return why a dotted name cannot be ported, or None."""
    module, name = context.stands_for(node)
    if context.classes and context.classes[-1].kept and name.startswith(_SCOPES):
        return None  # scopes and collections of layers that the model keeps: they hold nothing, and do no harm
    if module not in _TENSORFLOWS or name in _RENAMED or name in _BATCH_NORM:
        return None
    if module == TENSORFLOW and name.startswith("losses.") and name.split(".")[1][:1].isupper():
        return None
    return _GRAPH if any(name == start or name.startswith(f"{start}.") for start in _GRAPHS) else None


def call(context: Context, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
    """Return a call as it should be."""
    module, name = context.stands_for(original.func)
    if module not in _TENSORFLOWS:
        return updated
    root = dotted(original.func).partition(".")[0]
    if name in _CASTS and module == TENSORFLOW and updated.args:
        dtype = cst.Arg(name_node(f"{root}.{_CASTS[name]}"))
        value = updated.args[0].with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")), keyword=None)
        return updated.with_changes(func=name_node(f"{root}.cast"), args=[value, dtype])
    if name.startswith("reduce_") and any(keyword(updated, old) for old in _KEYWORDS):
        return updated.with_changes(args=[_renamed(arg) for arg in updated.args])
    return updated


def is_batch_norm(context: Context, node: cst.Call) -> bool:
    """Return whether a call is one of TensorFlow 1's batch normalisation."""
    module, name = context.stands_for(node.func)
    return module in _TENSORFLOWS and name in _BATCH_NORM


def batch_norm(context: Context, node: cst.Call) -> cst.BaseExpression:
    """Return batch normalisation as a layer of the class's own, made in its constructor.

    Args:
        context: What is known; the class is the innermost one.
        node: The call, in a method.
    """
    tf = next(name for name, module in context.modules.items() if module == TENSORFLOW)
    values, options = [], []
    for arg in node.args:
        name = arg.keyword.value if arg.keyword is not None else None
        if name in (None, "inputs"):
            values.append(cst.Arg(arg.value))
        elif name in ("training", "is_training"):
            values.append(_keyword("training", arg.value))
        elif name in ("axis", "momentum", "epsilon", "center", "scale"):
            options.append(_keyword(name, arg.value))
    layer = cst.Call(name_node(f"{tf}.keras.layers.BatchNormalization"), options)
    attribute = context.classes[-1].add("batch_norm", layer)
    space = cst.SimpleWhitespace("")
    return node.with_changes(func=name_node(f"self.{attribute}"), args=values, whitespace_before_args=space)


def unpacked(node: cst.Assign) -> cst.Assign:
    """Return `tf = try_import_tf()` as `_, tf, _ = try_import_tf()`: it returns three things since RLlib 0.8.6."""
    target = node.targets[0].target
    if not isinstance(node.value, cst.Call) or dotted(node.value.func).rpartition(".")[2] != "try_import_tf":
        return node
    if len(node.targets) != 1 or not isinstance(target, cst.Name):
        return node
    space = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    names = [cst.Element(cst.Name("_"), space), cst.Element(target, space), cst.Element(cst.Name("_"))]
    return node.with_changes(targets=[node.targets[0].with_changes(target=cst.Tuple(names, lpar=[], rpar=[]))])


def _renamed(arg: cst.Arg) -> cst.Arg:
    if arg.keyword is None or arg.keyword.value not in _KEYWORDS:
        return arg
    return arg.with_changes(keyword=cst.Name(_KEYWORDS[arg.keyword.value]))


def _keyword(name: str, value: cst.BaseExpression) -> cst.Arg:
    bare = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return cst.Arg(value, keyword=cst.Name(name), equal=bare)
