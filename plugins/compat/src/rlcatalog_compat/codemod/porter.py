"""The rewriting of one file."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from typing import Any

import libcst as cst
from libcst.metadata import ExpressionContext, ExpressionContextProvider, MetadataWrapper, PositionProvider

from rlcatalog_compat.codemod import imports, keras_rules, numpy_rules, tensorflow_rules, torch_rules
from rlcatalog_compat.codemod.context import Context, Note, Rewriter, code, dotted
from rlcatalog_compat.codemod.lifter import Lifter
from rlcatalog_compat.codemod.reader import Reader, scope_of
from rlcatalog_compat.codemod.symbolic import parameters_of
from rlcatalog_compat.names import known

_CRITIC = "a central critic needs its algorithm's own batches; the model ports, the algorithm stays with Ray"
_OLD_GYM = "gym's older interface: step() returns five values in Gymnasium, reset(*, seed, options) two"
_OLD_CALL = "gym's older interface: in Gymnasium step() returns terminated and truncated for done, reset() an info, too"
_UNNAMED = (
    "a layer whose name, or an argument, is not known; make it in __init__ with tf.keras.layers, call it in forward()"
)
_BROKEN = "what the rules made of this file is no Python; it stays as it was. Please report it"
#: What a file must hold for any rule to change or note something.
_WORDS = (b"ray", b"gym", b"tensorflow", b"numpy", b"torch", b"keras", b"rlcatalog_compat", b"env", b"central_value")

_CONSTRUCTOR = "def __init__(self, *args, **kwargs):\n    super().__init__(*args, **kwargs)\n"
_LAYERS = "self.kept_layers = rlcatalog_compat.layers.start()"


#: What runs its body more than once.
_LOOPS = (cst.For, cst.While, cst.CompFor, cst.ListComp, cst.GeneratorExp, cst.DictComp, cst.SetComp)
_Line = cst.SimpleStatementLine | cst.SimpleStatementSuite


@dataclass(frozen=True)
class Ported:
    """A file, rewritten.

    Attributes:
        content: What it should hold.
        notes: What could not be ported, by lines of the file as it was.
    """

    content: bytes
    notes: list[Note]


def port(content: bytes) -> Ported:
    """Rewrite a Python file; what needs no change stays as it is, comments and layout included.

    Args:
        content: The file.

    Raises:
        libcst.ParserSyntaxError: It is no Python.
        SyntaxError: It is no Python either.
    """
    if not any(word in content for word in _WORDS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(content)
        return Ported(content, [])
    wrapper = MetadataWrapper(cst.parse_module(content), unsafe_skip_copy=True)
    context = Context()
    wrapper.module.visit(Reader(context))
    lifted = wrapper.visit(Lifter(wrapper.module, context))
    module = MetadataWrapper(lifted).visit(_Porter(context))
    if module.bytes != content and _compiles(content) and not _compiles(module.bytes):
        return Ported(content, [Note(1, "the file", _BROKEN)])
    first: dict[tuple[int, str], Note] = {}
    for note in sorted(context.notes):
        first.setdefault((note.line, note.why), note)
    return Ported(module.bytes, list(first.values()))


def _compiles(content: bytes) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(content, "file", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
    return True


class _Porter(Rewriter):
    """Walks a file and lets the rules change it.

    Args:
        context: What is known of the file.
    """

    METADATA_DEPENDENCIES = (PositionProvider, ExpressionContextProvider)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._inner: set[cst.CSTNode] = set()
        self._loops: list[int] = []

    # --- imports ---------------------------------------------------------------------------------------------------

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> Any:
        body = self._imports(original_node, updated_node)
        if len(updated_node.body) > 1:
            return updated_node.with_changes(body=body)
        lines = [updated_node.with_changes(body=body[:1]), *(cst.SimpleStatementLine([one]) for one in body[1:])]
        return cst.FlattenSentinel(lines) if len(lines) > 1 else lines[0]

    def leave_SimpleStatementSuite(
        self, original_node: cst.SimpleStatementSuite, updated_node: cst.SimpleStatementSuite
    ) -> cst.SimpleStatementSuite:
        return updated_node.with_changes(body=self._imports(original_node, updated_node))

    def _imports(self, original: _Line, updated: _Line) -> list[cst.BaseSmallStatement]:
        """Return the statements of a line, its imports as they should be."""
        body: list[cst.BaseSmallStatement] = []
        for was, statement in zip(original.body, updated.body, strict=True):
            new, stays = [statement], list[tuple[str, str]]()
            if isinstance(statement, cst.Import):
                one, stays = imports.port_import(statement)
                new = [one]
            elif isinstance(statement, cst.ImportFrom):
                statement = imports.padding_as_before(statement) if self.context.pads_as_before else statement
                new, stays = imports.port_from(statement)
            for what, why in stays:
                self.note(was, what, why)
            if len(new) > 1:
                new = [one.with_changes(semicolon=cst.MaybeSentinel.DEFAULT) for one in new]
                new[-1] = new[-1].with_changes(semicolon=statement.semicolon)
            body += new
        return body

    # --- names -----------------------------------------------------------------------------------------------------

    def visit_Attribute(self, node: cst.Attribute) -> None:
        if node in self._inner:
            self._inner.add(node.value)
            return
        self._inner.add(node.value)
        self._check_mirrored(node)
        self._check_names(node)
        why = tensorflow_rules.graph_code(self.context, node)
        if why is not None:
            self.note(node, code(node), why)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        if self._is_target(original_node):
            return updated_node
        if not isinstance(updated_node.value, cst.Name | cst.Attribute):
            return tensorflow_rules.shape(self.context, updated_node)
        for rule in (numpy_rules.attribute, tensorflow_rules.attribute):
            changed = rule(self.context, updated_node)
            if changed is not updated_node:
                return changed
        return torch_rules.number(self.context, updated_node)

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        if self._is_target(original_node):
            return updated_node
        return tensorflow_rules.shape(self.context, updated_node)

    def visit_MatchValue(self, node: cst.MatchValue) -> bool:
        return False  # a pattern must stay a dotted name

    def _is_target(self, node: cst.CSTNode) -> bool:
        """Return whether an expression is assigned to or deleted."""
        return self.get_metadata(ExpressionContextProvider, node, None) in (
            ExpressionContext.STORE,
            ExpressionContext.DEL,
        )

    def _check_names(self, node: cst.Attribute) -> None:
        """Note a name that NumPy or Gymnasium lacks."""
        if why := numpy_rules.why_gone(self.context, node):
            self.note(node, dotted(node), why)
        first, *rest = dotted(node).split(".")
        if first in self.context.gym and not self.context.hides(first):
            path = self.context.gym[first]
            if rest and imports.why_not_in_gymnasium(path) is None:
                why = imports.why_not_in_gymnasium(path, ".".join(rest))
                if why is not None:
                    self.note(node, dotted(node), why)

    def _check_mirrored(self, node: cst.Attribute) -> None:
        """Note a name of a module of RLlib's that is not served."""
        first, *rest = dotted(node).split(".")
        if first not in self.context.mirrored or self.context.hides(first):
            return
        path = self.context.mirrored[first]
        for part in rest:
            why = imports.why_not(path, part)
            if why is not None:
                self.note(node, dotted(node), why)
                return
            if f"{path}.{part}".strip(".") not in known():
                return
            path = f"{path}.{part}".strip(".")

    # --- calls -----------------------------------------------------------------------------------------------------

    def visit_Call(self, node: cst.Call) -> None:
        self.context.whole += dotted(node.func) == "int"
        why = tensorflow_rules.names_anew(self.context, node)
        if why is not None:
            self.note(node, code(node.func), why)
        front, _, name = dotted(node.func).rpartition(".")
        if front.rpartition(".")[2].endswith("env") and (name == "seed" or (name == "render" and node.args)):
            self.note(node, code(node), _OLD_CALL)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        self.context.whole -= dotted(original_node.func) == "int"
        if tensorflow_rules.is_kept(self.context, original_node):
            return self._kept(original_node, updated_node)
        if (listed := tensorflow_rules.shape(self.context, updated_node)) is not updated_node:
            return listed
        changed = tensorflow_rules.call(self.context, original_node, updated_node)
        if not isinstance(changed, cst.Call):
            return changed
        if dropout := tensorflow_rules.drops_by_place(self.context, original_node):
            self.note(original_node, code(original_node), dropout)
        changed = numpy_rules.call(self.context, tensorflow_rules.rows(self.context, changed))
        return keras_rules.model_call(self.context, keras_rules.call(self.context, changed))

    def _kept(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        """Return a call of a layer that the model keeps, or the call as it was and a note."""
        scope = self.context.classes[-1]
        if any(_has_self(function) for function in scope.functions):
            once = not self.context.loops and scope.calls[scope.functions[-1].name.value] < 2
            kept = tensorflow_rules.kept(self.context, updated, once)
            if kept is not None:
                scope.keeps = True
                return kept
        self.note(original, code(original.func), _UNNAMED)
        return updated

    def visit_Assign(self, node: cst.Assign) -> None:
        if not isinstance(node.value, cst.Call):
            return
        front, _, name = dotted(node.value.func).rpartition(".")
        target = node.targets[0].target
        several = len(target.elements) if isinstance(target, cst.Tuple) else 1
        if front.rpartition(".")[2].endswith("env") and (name, several) in (("reset", 1), ("step", 4)):
            self.note(node, code(node), _OLD_CALL)

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        return tensorflow_rules.unpacked(updated_node)

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        for helper in sorted(self.context.helpers):
            updated_node = _with_import(updated_node, helper)
        return updated_node

    # --- where we are ----------------------------------------------------------------------------------------------

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.context.classes.append(scope_of(node, self.context))

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        return _with_layers(updated_node) if self.context.classes.pop().keeps else updated_node

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        for scope in self.context.classes[-1:]:
            scope.functions.append(node)
        self.context.hidden.append(parameters_of(node))
        self._loops.append(self.context.loops)
        self.context.loops = 0
        if node.name.value == "central_value_function":
            self.note(node, "central_value_function", _CRITIC)

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        for scope in self.context.classes[-1:]:
            scope.functions.pop()
        self.context.hidden.pop()
        self.context.loops = self._loops.pop()
        return updated_node

    def visit_Return(self, node: cst.Return) -> None:
        if not isinstance(node.value, cst.Tuple) or len(node.value.elements) != 4:
            return
        for scope in self.context.classes[-1:]:
            in_env = any(base.endswith(("Env", "Wrapper")) for base in scope.bases)
            if in_env and scope.functions and scope.functions[-1].name.value == "step":
                self.note(node, code(node), _OLD_GYM)

    def on_visit(self, node: cst.CSTNode) -> bool:
        self.context.loops += isinstance(node, _LOOPS)
        return super().on_visit(node)

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        self.context.loops -= isinstance(original_node, _LOOPS)
        return super().on_leave(original_node, updated_node)

    def visit_Lambda(self, node: cst.Lambda) -> None:
        self.context.hidden.append(parameters_of(node))

    def leave_Lambda(self, original_node: cst.Lambda, updated_node: cst.Lambda) -> cst.Lambda:
        self.context.hidden.pop()
        return updated_node


def _with_import(module: cst.Module, helper: str) -> cst.Module:
    """Return a module that imports another behind its first import, and behind docstring and `__future__`."""
    body = list(module.body)
    if any(code(statement).strip() == f"import {helper}" for statement in body):
        return module
    after = 1 if module.get_docstring() is not None else 0
    for place, statement in enumerate(body):
        found = statement.body if isinstance(statement, cst.SimpleStatementLine) else []
        future = any(isinstance(one, cst.ImportFrom) and dotted(one.module) == "__future__" for one in found)
        if future:
            after = place + 1
        elif any(isinstance(one, cst.Import | cst.ImportFrom) for one in found):
            after = place + 1
            break
    line = cst.parse_statement(f"import {helper}\n")
    return module.with_changes(body=[*body[:after], line, *body[after:]])


def _has_self(function: cst.FunctionDef) -> bool:
    parameters = [*function.params.posonly_params, *function.params.params]
    return bool(parameters) and parameters[0].name.value == "self"


def _with_layers(node: cst.ClassDef) -> cst.ClassDef:
    """Return a class whose constructor makes a place for the layers that it keeps."""
    if _LAYERS in code(node):
        return node
    line = cst.parse_statement(_LAYERS)
    body = list(node.body.body)
    for place, statement in enumerate(body):
        if isinstance(statement, cst.FunctionDef) and statement.name.value == "__init__":
            inside = _lines(statement.body)
            first = 1 if statement.get_docstring() is not None else 0
            after = next((i + 1 for i, one in enumerate(inside) if ".__init__(" in code(one)), first)
            block = cst.IndentedBlock([*inside[:after], line, *inside[after:]])
            if isinstance(statement.body, cst.IndentedBlock):
                block = statement.body.with_changes(body=block.body)
            body[place] = statement.with_changes(body=block)
            break
    else:
        constructor = cst.parse_statement(_CONSTRUCTOR + f"    {_LAYERS}\n")
        body.insert(1 if node.get_docstring() is not None else 0, constructor)
    return node.with_changes(body=node.body.with_changes(body=body))


def _lines(suite: cst.BaseSuite) -> list[Any]:
    """Return a function's statements, line by line."""
    if isinstance(suite, cst.IndentedBlock):
        return list(suite.body)
    default = cst.MaybeSentinel.DEFAULT
    return [cst.SimpleStatementLine([one.with_changes(semicolon=default)]) for one in suite.body]  # type: ignore[list-item]
