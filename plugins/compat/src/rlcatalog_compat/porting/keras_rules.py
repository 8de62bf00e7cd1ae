"""Rules for lines that Keras 3 wants otherwise."""

from __future__ import annotations

import libcst as cst

from rlcatalog_compat.porting.context import TENSORFLOW, TENSORFLOW_1, Context, code, dotted, keyword, name_node
from rlcatalog_compat.porting.reading import is_symbolic


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


def on_symbolic(context: Context, node: cst.Call) -> bool:
    """Return whether a call is one of TensorFlow's operations on Keras' symbolic tensors."""
    module, name = context.stands_for(node.func)
    if module not in (TENSORFLOW, TENSORFLOW_1) or not is_operation(name) or not context.symbolic:
        return False
    return any(is_symbolic(arg.value, context.symbolic[-1], context) for arg in node.args)


def is_operation(name: str) -> bool:
    """Return whether a name of TensorFlow's is an operation's; what is below `keras` takes symbolic tensors itself."""
    return not name.startswith("keras.") or name.startswith("keras.backend.")


def in_lambda(context: Context, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
    """Return an operation on symbolic tensors as a Lambda layer.

    Args:
        context: What is known.
        original: The call as it was.
        updated: The call, its parts rewritten.
    """
    tf = next((name for name, module in context.modules.items() if module == TENSORFLOW), None)
    if tf is None:
        return updated
    atoms = _atoms(updated, context)
    partner = context.partners.get(original)
    if partner is not None:
        # Without a length the mask is as long as the longest sequence, and a batch may be padded beyond that.
        length = f"{tf}.shape({code(partner)})[1]"
        args = [*updated.args[:1], cst.Arg(cst.parse_expression(length))]
        args[0] = args[0].with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
        updated = updated.with_changes(args=args)
        atoms = [*atoms, code(partner)]
    atoms = list(dict.fromkeys(atoms))
    value = "x" if "x" in atoms or "x" not in _names_in(updated) else "values"
    body = _Replaced({atom: value if len(atoms) == 1 else f"{value}[{i}]" for i, atom in enumerate(atoms)})
    inner = code(updated.visit(body))  # type: ignore[arg-type]
    given = atoms[0] if len(atoms) == 1 else f"[{', '.join(atoms)}]"
    return cst.parse_expression(f"{tf}.keras.layers.Lambda(lambda {value}: {inner})({given})")


def masked_layer(context: Context, node: cst.Call) -> None:
    """Note which sequences a `mask=tf.sequence_mask(lengths)` of a layer's call belongs to."""
    mask = keyword(node, "mask")
    if mask is None or not is_layer_call(node) or not isinstance(mask.value, cst.Call):
        return
    module, name = context.stands_for(mask.value.func)
    first = node.args[0]
    if module == TENSORFLOW and name == "sequence_mask" and len(mask.value.args) == 1 and dotted(first.value):
        context.partners[mask.value] = first.value


def trains_symbolically(context: Context, node: cst.Call) -> bool:
    """Return whether a layer is told by a symbolic tensor whether it is in training."""
    training = keyword(node, "training")
    known = context.symbolic[-1] if context.symbolic else set()
    return isinstance(node.func, cst.Call) and training is not None and is_symbolic(training.value, known, context)


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


def _atoms(node: cst.BaseExpression, context: Context) -> list[str]:
    """Return the texts of the symbolic tensors that go into an operation."""
    known = context.symbolic[-1]
    if dotted(node) in known:
        return [dotted(node)]
    if isinstance(node, cst.Call):
        if context.stands_for(node.func)[0] and is_operation(context.stands_for(node.func)[1]):
            return [atom for arg in node.args for atom in _atoms(arg.value, context)]
        return [code(node)] if is_symbolic(node, known, context) else []
    if isinstance(node, cst.List | cst.Tuple):
        return [atom for element in node.elements for atom in _atoms(element.value, context)]
    if isinstance(node, cst.BinaryOperation):
        return [*_atoms(node.left, context), *_atoms(node.right, context)]
    return _atoms(node.value, context) if isinstance(node, cst.Subscript) else []


def _names_in(node: cst.CSTNode) -> set[str]:
    found: set[str] = set()

    class Names(cst.CSTVisitor):
        def visit_Name(self, name: cst.Name) -> None:
            found.add(name.value)

    node.visit(Names())
    return found


class _Replaced(cst.CSTTransformer):
    """Puts expressions in place of others, found by their text."""

    def __init__(self, texts: dict[str, str]) -> None:
        super().__init__()
        self._texts = texts

    def on_leave(self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT) -> cst.CSTNodeT:
        if isinstance(original_node, cst.BaseExpression) and (text := self._texts.get(code(original_node))):
            return cst.parse_expression(text)  # type: ignore[return-value]
        return super().on_leave(original_node, updated_node)  # type: ignore[return-value]
