"""Rewriter that applies all rules to a file."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from typing import Any

import libcst as cst
from libcst.metadata import (
    ExpressionContext,
    ExpressionContextProvider,
    MetadataWrapper,
    PositionProvider,
)

from rlcatalog_compat.codemod import imports, layer_rules, numpy_rules, tensorflow_rules
from rlcatalog_compat.codemod.context import Context, Note, Rewriter, code, dotted
from rlcatalog_compat.codemod.lifter import Lifter
from rlcatalog_compat.codemod.reader import Reader, scope_of
from rlcatalog_compat.codemod.symbolic import parameters_of
from rlcatalog_compat.names import known

_CRITIC = (
    "a central critic needs its algorithm's batches; the model can be ported, but the"
    " algorithm needs Ray"
)
_OLD_GYM = (
    "gym's older interface: in Gymnasium, step() returns five values, and reset(*, seed,"
    " options) two"
)
_OLD_CALL = (
    "gym's older interface: in Gymnasium, step() returns terminated and truncated instead of done,"
    " and reset() also returns an info"
)
_UNNAMED = (
    "a layer with an unknown name or argument; create it in __init__ with tf.keras.layers,"
    " and call it in forward()"
)
_BROKEN = (
    "the rules' result for this file is not valid Python, so the file is unchanged. Please"
    " report this"
)
#: A file must contain one of these words for any rule to apply.
_WORDS = (
    b"ray",
    b"gym",
    b"tensorflow",
    b"numpy",
    b"torch",
    b"keras",
    b"rlcatalog_compat",
    b"env",
    b"central_value",
)

_CONSTRUCTOR = "def __init__(self, *args, **kwargs):\n    super().__init__(*args, **kwargs)\n"
_LAYERS = "self.kept_layers = rlcatalog_compat.layers.start()"


#: Statements that run their body more than once.
_LOOPS = (
    cst.For,
    cst.While,
    cst.CompFor,
    cst.ListComp,
    cst.GeneratorExp,
    cst.DictComp,
    cst.SetComp,
)
_Line = cst.SimpleStatementLine | cst.SimpleStatementSuite


@dataclass(frozen=True)
class Ported:
    """Rewritten file.

    Attributes:
        content: New content.
        notes: Pieces of code that could not be ported, sorted by line in the original file.
    """

    content: bytes
    notes: list[Note]


def port(content: bytes) -> Ported:
    """Rewrite a Python file. Other code is unchanged, including comments and layout.

    Args:
        content: The file.

    Raises:
        libcst.ParserSyntaxError: The text is not valid Python code.
        SyntaxError: Likewise, from Python's parser.
    """
    if not any(word in content for word in _WORDS):
        with warnings.catch_warnings(action="ignore"):
            ast.parse(content)
        return Ported(content, [])
    wrapper = MetadataWrapper(cst.parse_module(content), unsafe_skip_copy=True)
    context = Context()
    wrapper.module.visit(Reader(context))
    lifted = wrapper.visit(Lifter(wrapper.module, context))
    module = MetadataWrapper(lifted).visit(_Porter(context))
    if module.bytes != content and _compiles(content) and not _compiles(module.bytes):
        return Ported(content, [Note(1, "the file", _BROKEN)])
    first = {(note.line, note.why): note for note in sorted(context.notes, reverse=True)}
    return Ported(module.bytes, sorted(first.values()))


def _compiles(content: bytes) -> bool:
    with warnings.catch_warnings(action="ignore"):
        try:
            compile(content, "file", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
    return True


class _Porter(Rewriter):
    """Transformer that applies the rules to a file.

    Args:
        context: Context of the file.
    """

    METADATA_DEPENDENCIES = (PositionProvider, ExpressionContextProvider)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._inner: set[cst.CSTNode] = set()
        self._loops: list[int] = []

    # --- imports ----------------------------------------------------------------------------------

    def visit_Import(self, node: cst.Import | cst.ImportFrom | cst.MatchValue) -> bool:
        # `leave_SimpleStatementLine` changes imports, and patterns must stay dotted names.
        return False

    visit_ImportFrom = visit_MatchValue = visit_Import

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> Any:
        body = self._imports(original_node, updated_node)
        if len(updated_node.body) > 1:
            return updated_node.with_changes(body=body)
        lines = [
            updated_node.with_changes(body=body[:1]),
            *(cst.SimpleStatementLine([one]) for one in body[1:]),
        ]
        return cst.FlattenSentinel(lines) if len(lines) > 1 else lines[0]

    def leave_SimpleStatementSuite(
        self, original_node: cst.SimpleStatementSuite, updated_node: cst.SimpleStatementSuite
    ) -> cst.SimpleStatementSuite:
        return updated_node.with_changes(body=self._imports(original_node, updated_node))

    def _imports(self, original: _Line, updated: _Line) -> list[cst.BaseSmallStatement]:
        """Return a line's statements with corrected imports."""
        body: list[cst.BaseSmallStatement] = []
        for was, statement in zip(original.body, updated.body, strict=True):
            new, stays = [statement], list[tuple[str, str]]()
            if isinstance(statement, cst.Import):
                new, stays = imports.port_import(statement)
            elif isinstance(statement, cst.ImportFrom):
                statement = (
                    imports.padding_as_before(statement)
                    if self.context.pads_as_before
                    else statement
                )
                new, stays = imports.port_from(statement)
            for what, why in stays:
                self.note(was, what, why)
            body += [one.with_changes(semicolon=cst.MaybeSentinel.DEFAULT) for one in new[:-1]]
            body.append(new[-1].with_changes(semicolon=statement.semicolon))
        return body

    # --- names ------------------------------------------------------------------------------------

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self._inner.add(node.value)
        if node not in self._inner:
            self._check_mirrored(node)
            self._check_names(node)
            self.note(node, node, tensorflow_rules.graph_code(self.context, node))

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        if self._is_target(original_node):
            return updated_node
        if not isinstance(updated_node.value, cst.Name | cst.Attribute):
            return tensorflow_rules.shape(self.context, updated_node)
        for rule in (numpy_rules.attribute, tensorflow_rules.attribute, layer_rules.number):
            if (changed := rule(self.context, updated_node)) is not updated_node:
                return changed
        return updated_node

    def leave_Subscript(
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        return (
            updated_node
            if self._is_target(original_node)
            else tensorflow_rules.shape(self.context, updated_node)
        )

    def _is_target(self, node: cst.CSTNode) -> bool:
        """Return whether an expression is assigned to or deleted."""
        use = self.get_metadata(ExpressionContextProvider, node, None)
        return use in (ExpressionContext.STORE, ExpressionContext.DEL)

    def _check_names(self, node: cst.Attribute) -> None:
        """Record a name that NumPy or Gymnasium lacks."""
        self.note(node, dotted(node), numpy_rules.why_gone(self.context, node))
        first, *rest = dotted(node).split(".")
        path = None if self.context.hides(first) else self.context.gym.get(first)
        if path is not None and rest and imports.why_not_in_gymnasium(path) is None:
            self.note(node, dotted(node), imports.why_not_in_gymnasium(path, ".".join(rest)))

    def _check_mirrored(self, node: cst.Attribute) -> None:
        """Record an unsupported name of an RLlib module."""
        first, *rest = dotted(node).split(".")
        if first not in self.context.mirrored or self.context.hides(first):
            return
        path = self.context.mirrored[first]
        for part in rest:
            why = imports.why_not(path, part)
            self.note(node, dotted(node), why)
            path = f"{path}.{part}".strip(".")
            if why or path not in known():
                return

    # --- calls ------------------------------------------------------------------------------------

    def visit_Call(self, node: cst.Call) -> None:
        self.context.whole += dotted(node.func) == "int"
        self.note(node, node.func, tensorflow_rules.names_anew(self.context, node))
        name = _env_method(node)
        if name == "seed" or (name == "render" and node.args):
            self.note(node, node, _OLD_CALL)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        self.context.whole -= dotted(original_node.func) == "int"
        if tensorflow_rules.is_kept(self.context, original_node):
            return self._kept(original_node, updated_node)
        if (listed := tensorflow_rules.shape(self.context, updated_node)) is not updated_node:
            return listed
        changed = tensorflow_rules.call(self.context, original_node, updated_node)
        if not isinstance(changed, cst.Call):
            return changed
        self.note(
            original_node,
            original_node,
            tensorflow_rules.drops_by_place(self.context, original_node),
        )
        changed = numpy_rules.call(self.context, tensorflow_rules.rows(self.context, changed))
        return layer_rules.model_call(self.context, layer_rules.call(self.context, changed))

    def _kept(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        """Return a call to a layer that the model keeps; if not possible, add a note and return the
        call unchanged.
        """
        scope = self.context.classes[-1]
        methods = (
            [*function.params.posonly_params, *function.params.params]
            for function in scope.functions
        )
        if any(parameters and parameters[0].name.value == "self" for parameters in methods):
            once = not self.context.loops and scope.calls[scope.functions[-1].name.value] < 2
            if (kept := tensorflow_rules.kept(self.context, updated, once)) is not None:
                scope.keeps = True
                return kept
        self.note(original, original.func, _UNNAMED)
        return updated

    def visit_Assign(self, node: cst.Assign) -> None:
        target = node.targets[0].target
        several = len(target.elements) if isinstance(target, cst.Tuple) else 1
        if (_env_method(node.value), several) in (("reset", 1), ("step", 4)):
            self.note(node, node, _OLD_CALL)

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        return tensorflow_rules.unpacked(updated_node)

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        for helper in sorted(self.context.helpers):
            updated_node = _with_import(updated_node, helper)
        return updated_node

    # --- current place ----------------------------------------------------------------------------

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.context.classes.append(scope_of(node, self.context))

    def leave_ClassDef(
        self, original_node: cst.ClassDef, updated_node: cst.ClassDef
    ) -> cst.ClassDef:
        return _with_layers(updated_node) if self.context.classes.pop().keeps else updated_node

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        for scope in self.context.classes[-1:]:
            scope.functions.append(node)
        self.context.hidden.append(parameters_of(node))
        self._loops.append(self.context.loops)
        self.context.loops = 0
        if node.name.value == "central_value_function":
            self.note(node, "central_value_function", _CRITIC)

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
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
                self.note(node, node, _OLD_GYM)

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


def _env_method(node: cst.BaseExpression) -> str:
    """Return the name of the environment method that an expression calls; `""` for other
    expressions.
    """
    front, _, name = (
        dotted(node.func).rpartition(".") if isinstance(node, cst.Call) else ("", "", "")
    )
    return name if front.rpartition(".")[2].endswith("env") else ""


def _with_import(module: cst.Module, helper: str) -> cst.Module:
    """Return a module with an import added after its docstring, `__future__` imports and first
    import.
    """
    body = list(module.body)
    if any(code(statement).strip() == f"import {helper}" for statement in body):
        return module
    after = 1 if module.get_docstring() is not None else 0
    for place, statement in enumerate(body):
        found = statement.body if isinstance(statement, cst.SimpleStatementLine) else []
        future = any(
            isinstance(one, cst.ImportFrom) and dotted(one.module) == "__future__" for one in found
        )
        if future:
            after = place + 1
        elif any(isinstance(one, cst.Import | cst.ImportFrom) for one in found):
            after = place + 1
            break
    line = cst.parse_statement(f"import {helper}\n")
    return module.with_changes(body=[*body[:after], line, *body[after:]])


def _with_layers(node: cst.ClassDef) -> cst.ClassDef:
    """Return a class whose constructor creates the attribute for kept layers."""
    if _LAYERS in code(node):
        return node
    line = cst.parse_statement(_LAYERS)
    body = list(node.body.body)
    for place, statement in enumerate(body):
        if isinstance(statement, cst.FunctionDef) and statement.name.value == "__init__":
            inside = _lines(statement.body)
            first = 1 if statement.get_docstring() is not None else 0
            inside.insert(
                next((i + 1 for i, one in enumerate(inside) if ".__init__(" in code(one)), first),
                line,
            )
            block = (
                statement.body
                if isinstance(statement.body, cst.IndentedBlock)
                else cst.IndentedBlock([])
            )
            body[place] = statement.with_changes(body=block.with_changes(body=inside))
            break
    else:
        constructor = cst.parse_statement(_CONSTRUCTOR + f"    {_LAYERS}\n")
        body.insert(1 if node.get_docstring() is not None else 0, constructor)
    return node.with_changes(body=node.body.with_changes(body=body))


def _lines(suite: cst.BaseSuite) -> list[Any]:
    """Return a function's statements, one per line."""
    if isinstance(suite, cst.IndentedBlock):
        return list(suite.body)
    default = cst.MaybeSentinel.DEFAULT
    return [cst.SimpleStatementLine([one.with_changes(semicolon=default)]) for one in suite.body]  # type: ignore[list-item]
