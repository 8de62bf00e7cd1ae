"""What a file's names stand for, found before anything is rewritten."""

from __future__ import annotations

import libcst as cst

from rlcatalog_compat.mirror import KNOWN
from rlcatalog_compat.porting.context import (
    NUMPY,
    RAY,
    TENSORFLOW,
    TENSORFLOW_1,
    Context,
    Layers,
    dotted,
    names_of,
)
from rlcatalog_compat.porting.torch_rules import is_recurrent

_MODULES = {
    "numpy": NUMPY,
    "tensorflow": TENSORFLOW,
    "tensorflow.compat.v1": TENSORFLOW_1,
    "tensorflow.compat.v2": TENSORFLOW,
}

#: Layers of TensorFlow 1 that stand in methods, and the functions that keep them.
_KEPT = (".layers.dense", ".layers.conv2d", ".layers.flatten", ".get_variable")
#: Calls that make something else of symbolic tensors.
_NO_TENSORS = ("Model", "Sequential", "int_shape", "len", "int", "print", "isinstance", "append", "zip", "list")


class Reader(cst.CSTVisitor):
    """Enters into the context which names are NumPy, TensorFlow, and modules of RLlib's.

    Args:
        context: Where they are entered.
    """

    def __init__(self, context: Context) -> None:
        self.context = context

    def visit_Import(self, node: cst.Import) -> None:
        for alias in node.names:
            path = dotted(alias.name)
            bound = dotted(alias.asname.name) if alias.asname is not None else path.partition(".")[0]
            meant = path if alias.asname is not None else path.partition(".")[0]
            if meant in _MODULES:
                self.context.modules[bound] = _MODULES[meant]
            self._mirrored(bound, meant)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        if isinstance(node.names, cst.ImportStar) or node.relative:
            return
        for alias in node.names:
            path = f"{dotted(node.module)}.{dotted(alias.name)}"
            bound = dotted(alias.asname.name if alias.asname is not None else alias.name)
            if path in _MODULES:
                self.context.modules[bound] = _MODULES[path]
            self._mirrored(bound, path)

    def visit_Call(self, node: cst.Call) -> None:
        self.context.recurrent |= is_recurrent(node)
        self.context.frames |= dotted(node.func).endswith(("Pool3D", "Pooling3D", "layers.Conv3D"))

    def visit_Assign(self, node: cst.Assign) -> None:
        if not isinstance(node.value, cst.Call):
            return
        function = dotted(node.value.func).rpartition(".")[2]
        targets = [dotted(name) for name in names_of(node.targets[0].target)]
        # Today's returns no padding, only the size behind it: height and width.
        self.context.pads_as_before |= function == "valid_padding" and "pad" in targets[0]
        if function != "try_import_tf":
            return
        found = [TENSORFLOW_1, TENSORFLOW] if len(targets) > 1 else [TENSORFLOW]
        self.context.modules |= {name: module for name, module in zip(targets, found, strict=False) if name != "_"}

    def _mirrored(self, bound: str, path: str) -> None:
        root, _, inside = path.partition(".")
        if root in RAY and (not inside or inside in KNOWN):
            self.context.mirrored[bound] = inside


def attributes_of(node: cst.ClassDef) -> Layers:
    """Return the attributes that a class's methods give its instances."""
    found = Layers(set())

    class Attributes(cst.CSTVisitor):
        def visit_Attribute(self, attribute: cst.Attribute) -> None:
            if dotted(attribute.value) == "self":
                found.taken.add(attribute.attr.value)

        def visit_Call(self, call: cst.Call) -> None:
            found.kept |= f".{dotted(call.func).partition('.')[2]}" in _KEPT

        def visit_Assign(self, assign: cst.Assign) -> None:
            made = isinstance(assign.value, cst.Call) and dotted(assign.value.func).rpartition(".")[2] == "Model"
            for target in assign.targets if made else ():
                found.models.add(dotted(target.target))

    node.visit(Attributes())
    return found


def symbolic_names(function: cst.FunctionDef, context: Context) -> set[str]:
    """Return the texts of a function's names that hold Keras' symbolic tensors."""
    found: set[str] = set()

    class Walker(cst.CSTVisitor):
        def visit_Assign(self, node: cst.Assign) -> None:
            if is_symbolic(node.value, found, context):
                for target in node.targets:
                    found.update(filter(None, (dotted(name) for name in names_of(target.target))))

        def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
            return node is function

        def visit_Lambda(self, node: cst.Lambda) -> bool:
            return False

    function.visit(Walker())
    return found


def is_symbolic(node: cst.BaseExpression, known: set[str], context: Context) -> bool:
    """Return whether an expression is a symbolic tensor of Keras', or a list of such."""
    if dotted(node) in known:
        return True
    if isinstance(node, cst.Call):
        last = dotted(node.func).rpartition(".")[2]
        if last == "Input":
            return True
        # Layers and nets called on symbolic tensors return such, whatever they are called.
        return last not in _NO_TENSORS and any(is_symbolic(arg.value, known, context) for arg in node.args)
    if isinstance(node, cst.List | cst.Tuple):
        return any(is_symbolic(element.value, known, context) for element in node.elements)
    if isinstance(node, cst.Dict):
        return any(is_symbolic(element.value, known, context) for element in node.elements)
    if isinstance(node, cst.BinaryOperation):
        return is_symbolic(node.left, known, context) or is_symbolic(node.right, known, context)
    return isinstance(node, cst.Subscript) and is_symbolic(node.value, known, context)
