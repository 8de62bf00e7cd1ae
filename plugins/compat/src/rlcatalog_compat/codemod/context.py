"""Context that the rules share while they process a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import libcst as cst
from libcst.metadata import PositionProvider

#: Constants for modules that files may import under different names.
NUMPY = "numpy"
TENSORFLOW = "tensorflow"
TENSORFLOW_1 = "tensorflow.compat.v1"
#: Packages that the mirror replaces, and the mirror itself.
RAY = ("ray", "rlcatalog_compat")


@dataclass(frozen=True, order=True)
class Note:
    """Piece of code that a person must look at.

    Attributes:
        line: Line in the original file.
        what: The piece of code itself.
        why: Why the code was left unchanged, or may not mean the same as before, and what to do
            about it.
    """

    line: int
    what: str
    why: str


@dataclass
class ClassScope:
    """Information about a class and its layers.

    Attributes:
        bases: The last parts of the base classes' dotted names.
        functions: Methods that enclose the current code, outermost first.
        has_kept_layers: Whether any call was replaced by a layer that the model keeps.
        models: Names of attributes that are Keras models.
        must_keep_layers: Whether any method calls named TensorFlow 1 layers, which the model must
            keep.
        calls: Number of calls to each method from other methods.
        texts: The string literals in the class, which may be layer names.
        labels: Names given to unnamed layers.
    """

    bases: list[str] = field(default_factory=list)
    functions: list[cst.FunctionDef] = field(default_factory=list)
    has_kept_layers: bool = False
    models: set[str] = field(default_factory=set)
    must_keep_layers: bool = False
    calls: Counter[str] = field(default_factory=Counter)
    texts: set[str] = field(default_factory=set)
    labels: list[str] = field(default_factory=list)

    def label(self, function: str) -> str:
        """Return a name for an unnamed layer that no other layer in the class uses."""
        base = function
        if any(function in text for text in self.texts):
            base = f"unnamed_{function}"
        count = sum(label == base or label.startswith(f"{base}_") for label in self.labels)
        label = base
        if count > 0:
            label = f"{base}_{count + 1}"
        self.labels.append(label)
        return label


class Reference(NamedTuple):
    """What a dotted name refers to.

    Attributes:
        module: One of the modules above; empty if the name is not in any of them.
        name: Name in the module.
    """

    module: str
    name: str


@dataclass
class Context:
    """Context of the code that is being processed in a file.

    Attributes:
        modules: Name → the module that it refers to, one of the constants above.
        mirrored: Name → the RLlib module that it refers to, without `ray.`; `""` for `ray` itself.
        notes: Pieces of code that could not be ported.
        checks: Pieces of code that were ported, but that a person should look at.
        environments: Name of an environment class → its methods that were rewritten.
        classes: Classes that enclose the current code, outermost first.
        gym: Name → the path below gym that it refers to; `""` for gym itself.
        reassigned: Dotted names that the file assigns to; the rules ignore them.
        tensor_functions: Functions in the file that always return symbolic tensors.
        defines_shape: Whether a class in the file defines `shape` or `get_shape`, which the rules
            must then leave unchanged.
        parameters: Parameters of the enclosing functions; they shadow modules of the same name.
        loops: Number of loops that enclose the current code within its function.
        helpers: Modules from rlcatalog-compat that the ported file calls.
        has_3d_layers: Whether the file uses three-dimensional layers; its two-dimensional
            convolutions may then receive stacks of frames.
        has_recurrent_layers: Whether the file creates PyTorch's recurrent layers.
        int_calls: Number of `int` calls that enclose the current code.
        selects_rows: Whether the file uses RLlib 0.8's TensorFlow, whose `where` takes one
            condition per row.
        pads_as_before: Whether the file calls RLlib 0.8's `valid_padding`, which returns the
            padding.
    """

    modules: dict[str, str] = field(default_factory=dict)
    mirrored: dict[str, str] = field(default_factory=dict)
    notes: set[Note] = field(default_factory=set)
    checks: set[Note] = field(default_factory=set)
    environments: dict[str, list[str]] = field(default_factory=dict)
    classes: list[ClassScope] = field(default_factory=list)
    gym: dict[str, str] = field(default_factory=dict)
    reassigned: set[str] = field(default_factory=set)
    tensor_functions: set[str] = field(default_factory=set)
    defines_shape: bool = False
    parameters: list[set[str]] = field(default_factory=list)
    loops: int = 0
    helpers: set[str] = field(default_factory=set)
    has_3d_layers: bool = False
    has_recurrent_layers: bool = False
    int_calls: int = 0
    selects_rows: bool = False
    pads_as_before: bool = False

    def stands_for(self, node: cst.CSTNode) -> Reference:
        """Return the module that a name begins with and the remaining name, or two empty strings if
        there is none.
        """
        root, _, rest = dotted(node).partition(".")
        if root not in self.modules or self.hides(root):
            return Reference("", "")
        path = f"{self.modules[root]}.{rest}".rstrip(".")
        # TensorFlow 1 first, because its path begins with TensorFlow's.
        for module in (TENSORFLOW_1, TENSORFLOW, NUMPY):
            if path.startswith(f"{module}."):
                return Reference(module, path.removeprefix(f"{module}."))
        return Reference("", "")

    def hides(self, name: str) -> bool:
        """Return whether a parameter of an enclosing function shadows a module's name."""
        return any(name in names for names in self.parameters)

    def is_root(self, node: cst.CSTNode) -> bool:
        """Return whether a dotted name begins with an imported module: `tf.log`, but not `math.log`
        or `log`.
        """
        root = dotted(node).partition(".")[0]
        return self.modules.get(root) in (TENSORFLOW, TENSORFLOW_1, NUMPY)

    def enclosing_class(self) -> ClassScope | None:
        """Return the innermost class around the current code, or None outside of classes."""
        if not self.classes:
            return None
        return self.classes[-1]

    def keeps_layers(self) -> bool:
        """Return whether the current code is in a class whose methods call named TensorFlow 1
        layers, which the model must keep.
        """
        scope = self.enclosing_class()
        return scope is not None and scope.must_keep_layers


class Rewriter(cst.CSTTransformer):
    """Rewriter for a file, which records code that could not be ported.

    Args:
        context: Context of the file.
    """

    METADATA_DEPENDENCIES: ClassVar[Collection[Any]] = (PositionProvider,)

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context

    def note(self, node: cst.CSTNode, what: cst.CSTNode | str, why: str | None) -> None:
        """Record code that could not be ported. Do nothing if there is no reason."""
        if why is not None:
            self.context.notes.add(self._note_at(node, what, why))

    def check(self, node: cst.CSTNode, what: cst.CSTNode | str, why: str) -> None:
        """Record code that was ported, but that a person should look at."""
        self.context.checks.add(self._note_at(node, what, why))

    def _note_at(self, node: cst.CSTNode, what: cst.CSTNode | str, why: str) -> Note:
        line = self.get_metadata(PositionProvider, node).start.line
        text = what if isinstance(what, str) else code(what).strip()
        return Note(line, text, why)


def dotted(node: cst.CSTNode | None) -> str:
    """Return a dotted name as text; `""` for other nodes."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        front = dotted(node.value)
        if front:
            return f"{front}.{node.attr.value}"
    return ""


def bound_name(alias: cst.ImportAlias) -> str:
    """Return the name that `from module import alias` binds."""
    if alias.asname is not None:
        return dotted(alias.asname.name)
    return dotted(alias.name)


def name_node(path: str) -> cst.Name | cst.Attribute:
    """Return a dotted name as a node."""
    front, _, last = path.rpartition(".")
    if front:
        return cst.Attribute(name_node(front), cst.Name(last))
    return cst.Name(last)


def code(node: cst.CSTNode) -> str:
    """Return a node as text."""
    return cst.Module([]).code_for_node(node)


def keyword(call: cst.Call, name: str) -> cst.Arg | None:
    """Return a call's argument with this keyword, or None."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == name:
            return arg
    return None


def comma() -> cst.Comma:
    """Return a comma followed by a space."""
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def as_name(name: str) -> cst.AsName:
    """Return the `as` clause that gives an import this name."""
    return cst.AsName(cst.Name(name), cst.SimpleWhitespace(" "), cst.SimpleWhitespace(" "))


def with_names(node: cst.ImportFrom, aliases: list[cst.ImportAlias]) -> cst.ImportFrom:
    """Return an import that contains only these names."""
    last = aliases[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return node.with_changes(names=[*aliases[:-1], last])


def names_of(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield an assignment's targets one by one."""
    if isinstance(node, cst.Tuple | cst.List):
        for element in node.elements:
            yield from names_of(element.value)
    else:
        yield node
