"""What the rules know of the file they rewrite."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

#: Modules by the names that stand for them in the files of RLlib's users.
NUMPY, TENSORFLOW, TENSORFLOW_1 = "numpy", "tensorflow", "tensorflow.compat.v1"
#: Packages whose modules are the mirror's, before and after porting.
RAY = ("ray", "rlcatalog_compat")


@dataclass(frozen=True, order=True)
class Note:
    """One place that could not be ported.

    Attributes:
        line: Its line in the file as it was.
        what: What stands there.
        why: Why it stays, and what to do.
    """

    line: int
    what: str
    why: str


@dataclass
class Layers:
    """Layers that a class is to hold: those that one method made anew at each call.

    Attributes:
        taken: Attributes the class has already.
        models: Those of them that are Keras models.
        kept: Whether its methods call layers of TensorFlow 1 by name, which the model is to keep.
        made: Attribute → the expression that makes the layer.
    """

    taken: set[str]
    models: set[str] = field(default_factory=set)
    kept: bool = False
    made: dict[str, cst.BaseExpression | None] = field(default_factory=dict)

    def add(self, name: str, layer: cst.BaseExpression | None) -> str:
        """Enter a layer, None for one that is made elsewhere, and return the attribute or name it gets."""
        chosen, count = name, 1
        while chosen in self.taken or chosen in self.made:
            count += 1
            chosen = f"{name}_{count}"
        self.made[chosen] = layer
        return chosen


@dataclass
class Context:
    """What is known at one place of a file.

    Attributes:
        modules: Name → the module it stands for: one of the constants above.
        mirrored: Name → the module of RLlib's it stands for, `ray.` left out; `""` for `ray` itself.
        notes: What could not be ported.
        classes: The classes around the place, from the outside in.
        symbolic: Texts of the expressions that are Keras' symbolic tensors, one set per function around the place.
        partners: Call of `tf.sequence_mask` → the sequences whose length it lacks.
        lambdas: Number of lambdas around the place.
        loops: Number of loops around the place, inside the function.
        inside: Calls of TensorFlow's on symbolic tensors around the place.
        helpers: Modules of ours that the file calls from now on.
        frames: Whether the file has layers of three dimensions: its convolutions of two may go over stacks of frames.
        recurrent: Whether the file makes recurrent layers of PyTorch's.
        whole: Number of calls of `int` around the place.
        pads_as_before: Whether the file calls RLlib 0.8's `valid_padding`, which returns the padding.
    """

    modules: dict[str, str] = field(default_factory=dict)
    mirrored: dict[str, str] = field(default_factory=dict)
    notes: set[Note] = field(default_factory=set)
    classes: list[Layers] = field(default_factory=list)
    symbolic: list[set[str]] = field(default_factory=list)
    partners: dict[cst.CSTNode, cst.BaseExpression] = field(default_factory=dict)
    lambdas: int = 0
    loops: int = 0
    inside: list[cst.Call] = field(default_factory=list)
    helpers: set[str] = field(default_factory=set)
    frames: bool = False
    recurrent: bool = False
    whole: int = 0
    pads_as_before: bool = False

    def stands_for(self, node: cst.CSTNode) -> tuple[str, str]:
        """Return the module that a dotted name begins with, and the rest of it; twice `""` of others."""
        name, _, rest = dotted(node).partition(".")
        return (self.modules[name], rest) if name in self.modules and rest else ("", "")


def dotted(node: cst.CSTNode | None) -> str:
    """Return a dotted name as text; `""` of anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        front = dotted(node.value)
        return f"{front}.{node.attr.value}" if front else ""
    return ""


def name_node(path: str) -> cst.Name | cst.Attribute:
    """Return a dotted name as a node."""
    front, _, last = path.rpartition(".")
    return cst.Attribute(name_node(front), cst.Name(last)) if front else cst.Name(last)


def code(node: cst.CSTNode) -> str:
    """Return a node as text."""
    return cst.Module([]).code_for_node(node)


def keyword(call: cst.Call, name: str) -> cst.Arg | None:
    """Return a call's keyword argument."""
    return next((arg for arg in call.args if arg.keyword is not None and arg.keyword.value == name), None)


def names_of(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the targets of an assignment one by one."""
    if isinstance(node, cst.Tuple | cst.List):
        for element in node.elements:
            yield from names_of(element.value)
    else:
        yield node
