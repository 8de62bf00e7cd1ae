"""Context of the rules about a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import libcst as cst
from libcst.metadata import PositionProvider

#: Modules by the names that stand for them in the files of RLlib's users.
NUMPY, TENSORFLOW, TENSORFLOW_1 = "numpy", "tensorflow", "tensorflow.compat.v1"
#: Packages whose modules are the mirror's, before and after porting.
RAY = ("ray", "rlcatalog_compat")


@dataclass(frozen=True, order=True)
class Note:
    """One place that could not be ported.

    Attributes:
        line: Its line in the file as it was.
        what: The code there.
        why: Why the code is unchanged, and what to do.
    """

    line: int
    what: str
    why: str


@dataclass
class ClassScope:
    """A class and the information about its layers.

    Attributes:
        bases: The last parts of its bases' names.
        functions: Its methods around the place, from the outside in.
        keeps: Whether a call in it became one of a layer that the model keeps.
        models: Its attributes that are Keras models.
        kept: Whether its methods call layers of TensorFlow 1 by name, which the model is to keep.
        calls: Method → how often methods call it.
        texts: The strings in it, which may be names of layers.
        labels: Names that layers without one were given.
    """

    bases: list[str] = field(default_factory=list)
    functions: list[cst.FunctionDef] = field(default_factory=list)
    keeps: bool = False
    models: set[str] = field(default_factory=set)
    kept: bool = False
    calls: Counter[str] = field(default_factory=Counter)
    texts: set[str] = field(default_factory=set)
    labels: list[str] = field(default_factory=list)

    def label(self, function: str) -> str:
        """Return a name for a layer without one, which no other layer of the class has."""
        base = f"unnamed_{function}" if any(function in text for text in self.texts) else function
        count = sum(label == base or label.startswith(f"{base}_") for label in self.labels)
        self.labels.append(f"{base}_{count + 1}" if count else base)
        return self.labels[-1]


@dataclass
class Context:
    """Context of one place in a file.

    Attributes:
        modules: Name → the module it stands for: one of the constants above.
        mirrored: Name → the module of RLlib's it stands for, `ray.` left out; `""` for `ray` itself.
        notes: Places that could not be ported.
        classes: The classes around the place, from the outside in.
        gym: Name → the path below gym that it stands for; `""` for gym itself.
        patched: Dotted names that the file assigns to, which then belong to the file.
        makers: Functions of the file that return symbolic tensors whatever they are given.
        own_shapes: Whether a class of the file defines `shape` or `get_shape`, which no rule may change.
        hidden: Parameters of the functions around the place; they hide modules of the same name.
        loops: Number of loops around the place, inside the function.
        helpers: Modules of rlcatalog-compat that the file calls from now on.
        frames: Whether the file has layers of three dimensions: its convolutions of two may go over stacks of frames.
        recurrent: Whether the file creates PyTorch's recurrent layers.
        whole: Number of calls of `int` around the place.
        selects_rows: Whether the file has RLlib 0.8's TensorFlow, whose `where` takes one condition per row.
        pads_as_before: Whether the file calls RLlib 0.8's `valid_padding`, which returns the padding.
    """

    modules: dict[str, str] = field(default_factory=dict)
    mirrored: dict[str, str] = field(default_factory=dict)
    notes: set[Note] = field(default_factory=set)
    classes: list[ClassScope] = field(default_factory=list)
    gym: dict[str, str] = field(default_factory=dict)
    patched: set[str] = field(default_factory=set)
    makers: set[str] = field(default_factory=set)
    own_shapes: bool = False
    hidden: list[set[str]] = field(default_factory=list)
    loops: int = 0
    helpers: set[str] = field(default_factory=set)
    frames: bool = False
    recurrent: bool = False
    whole: int = 0
    selects_rows: bool = False
    pads_as_before: bool = False

    def stands_for(self, node: cst.CSTNode) -> tuple[str, str]:
        """Return the module of a name or dotted name, and the rest of the name; twice `""` for others."""
        name, _, rest = dotted(node).partition(".")
        if name not in self.modules or self.hides(name):
            return "", ""
        path = f"{self.modules[name]}.{rest}".rstrip(".")
        for module in (TENSORFLOW_1, TENSORFLOW, NUMPY):
            if path.startswith(f"{module}."):
                return module, path.removeprefix(f"{module}.")
        return "", ""

    def hides(self, name: str) -> bool:
        """Return whether a parameter of a function around the place hides a module's name."""
        return any(name in names for names in self.hidden)

    def is_root(self, node: cst.CSTNode) -> bool:
        """Return whether a dotted name begins with a module as a whole: `tf.log`, not `math.log` or `log`."""
        return self.modules.get(dotted(node).partition(".")[0]) in (TENSORFLOW, TENSORFLOW_1, NUMPY)


class Rewriter(cst.CSTTransformer):
    """Rewriter of a file, which records the places that could not be ported.

    Args:
        context: Context of the file.
    """

    METADATA_DEPENDENCIES: ClassVar[Collection[Any]] = (PositionProvider,)

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context

    def note(self, node: cst.CSTNode, what: cst.CSTNode | str, why: str | None) -> None:
        """Record a place that could not be ported, with its code. Without a reason, do nothing."""
        if why is not None:
            line = self.get_metadata(PositionProvider, node).start.line
            self.context.notes.add(Note(line, what if isinstance(what, str) else code(what), why))


def dotted(node: cst.CSTNode | None) -> str:
    """Return a dotted name as text; `""` for other nodes."""
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


def comma() -> cst.Comma:
    """Return a comma followed by a space."""
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def as_name(name: str) -> cst.AsName:
    """Return the `as` part of an import with this name."""
    return cst.AsName(cst.Name(name), cst.SimpleWhitespace(" "), cst.SimpleWhitespace(" "))


def with_names(node: cst.ImportFrom, aliases: list[cst.ImportAlias]) -> cst.ImportFrom:
    """Return an import of only these names."""
    last = aliases[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return node.with_changes(names=[*aliases[:-1], last])


def names_of(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the targets of an assignment one by one."""
    if isinstance(node, cst.Tuple | cst.List):
        for element in node.elements:
            yield from names_of(element.value)
    else:
        yield node
