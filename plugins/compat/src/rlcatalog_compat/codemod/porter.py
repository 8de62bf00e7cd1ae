"""Rewriter that applies all rules to a file."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
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
from rlcatalog_compat.codemod.environments import env_method, port_environments
from rlcatalog_compat.codemod.lifter import Lifter
from rlcatalog_compat.codemod.parts import Parts, read_parts
from rlcatalog_compat.codemod.reader import Reader, scope_of
from rlcatalog_compat.codemod.symbolic import parameters_of
from rlcatalog_compat.names import supported_paths

_CRITIC = (
    "a central critic needs its algorithm's batches; the model can be ported, but the"
    " algorithm needs Ray"
)
_OLD_CALL = (
    "in Gymnasium, environments have no seed(), and render() takes no arguments; pass the seed to"
    " reset(), and the mode to gymnasium.make(..., render_mode=...)"
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
        checks: Pieces of code that were ported, but that a person should look at, sorted likewise.
        environments: Name of an environment class → its methods that were rewritten.
        parts: What the file contains; None if no rule applies to it.
    """

    content: bytes
    notes: list[Note] = field(default_factory=list)
    checks: list[Note] = field(default_factory=list)
    environments: dict[str, list[str]] = field(default_factory=dict)
    parts: Parts | None = None


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
        return Ported(content)
    wrapper = MetadataWrapper(cst.parse_module(content), unsafe_skip_copy=True)
    context = Context()
    # The rules must know what the file's names refer to before they change anything.
    wrapper.module.visit(Reader(context))
    module_with_layers = wrapper.visit(Lifter(wrapper.module, context))
    port_environments(wrapper, context)  # for its notes, with the lines of the original file
    ported_module = MetadataWrapper(module_with_layers).visit(_Porter(context))
    # Last, because it adds lines.
    without_notes = replace(context, notes=set(), checks=set())
    new_content = port_environments(MetadataWrapper(ported_module), without_notes).bytes
    if new_content != content and _compiles(content) and not _compiles(new_content):
        return Ported(content, [Note(1, "the file", _BROKEN)])
    return Ported(
        new_content,
        notes=_one_per_line_and_reason(context.notes),
        checks=_one_per_line_and_reason(context.checks),
        environments=context.environments,
        parts=read_parts(wrapper.module, context.environments),
    )


def _one_per_line_and_reason(notes: Iterable[Note]) -> list[Note]:
    """Return sorted notes; of several on one line with the same reason, only the first."""
    first_notes: dict[tuple[int, str], Note] = {}
    for note in sorted(notes):
        first_notes.setdefault((note.line, note.why), note)
    return sorted(first_notes.values())


def _compiles(content: bytes) -> bool:
    """Return whether a file is valid Python for the running version."""
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
        #: Parts of dotted names, which are checked as a whole.
        self._inner: set[cst.CSTNode] = set()
        #: `context.loops` of the functions around the current one.
        self._outer_loops: list[int] = []

    # --- imports ----------------------------------------------------------------------------------

    def visit_Import(self, node: cst.Import | cst.ImportFrom | cst.MatchValue) -> bool:
        # `leave_SimpleStatementLine` changes imports, and patterns must stay dotted names.
        return False

    visit_ImportFrom = visit_MatchValue = visit_Import

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> Any:
        statements = self._port_imports(original_node, updated_node)
        had_one_statement = len(updated_node.body) == 1
        if had_one_statement and len(statements) > 1:
            # An import became several, which get a line each.
            first, *others = statements
            lines = [updated_node.with_changes(body=[first])]
            lines += [cst.SimpleStatementLine([statement]) for statement in others]
            return cst.FlattenSentinel(lines)
        return updated_node.with_changes(body=statements)

    def leave_SimpleStatementSuite(
        self, original_node: cst.SimpleStatementSuite, updated_node: cst.SimpleStatementSuite
    ) -> cst.SimpleStatementSuite:
        return updated_node.with_changes(body=self._port_imports(original_node, updated_node))

    def _port_imports(self, original: _Line, updated: _Line) -> list[cst.BaseSmallStatement]:
        """Return a line's statements with corrected imports."""
        statements: list[cst.BaseSmallStatement] = []
        for old_statement, statement in zip(original.body, updated.body, strict=True):
            change = self._port_import(statement)
            for what, why in change.unported:
                self.note(old_statement, what, why)
            *front, last = change.statements
            for new_statement in front:
                statements.append(new_statement.with_changes(semicolon=cst.MaybeSentinel.DEFAULT))
            statements.append(last.with_changes(semicolon=statement.semicolon))
        return statements

    def _port_import(self, statement: cst.BaseSmallStatement) -> imports.Change:
        """Return what becomes of a statement, which may be an import."""
        if isinstance(statement, cst.Import):
            return imports.port_import(statement)
        if isinstance(statement, cst.ImportFrom):
            if self.context.pads_as_before:
                statement = imports.padding_as_before(statement)
            return imports.port_from(statement)
        return imports.Change([statement], unported=[])

    # --- names ------------------------------------------------------------------------------------

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self._inner.add(node.value)
        if node not in self._inner:
            self._check_mirrored(node)
            self._check_names(node)
            self.note(node, node, tensorflow_rules.why_graph_code_stays(self.context, node))

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        if self._is_target(original_node):
            return updated_node
        if not isinstance(updated_node.value, cst.Name | cst.Attribute):
            return tensorflow_rules.port_shape(self.context, updated_node)
        for rule in (numpy_rules.attribute, tensorflow_rules.attribute, layer_rules.python_number):
            changed = rule(self.context, updated_node)
            if changed is not updated_node:
                return changed
        return updated_node

    def leave_Subscript(
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        if self._is_target(original_node):
            return updated_node
        return tensorflow_rules.port_shape(self.context, updated_node)

    def _is_target(self, node: cst.CSTNode) -> bool:
        """Return whether an expression is assigned to or deleted."""
        use = self.get_metadata(ExpressionContextProvider, node, None)
        return use in (ExpressionContext.STORE, ExpressionContext.DEL)

    def _check_names(self, node: cst.Attribute) -> None:
        """Record a name that NumPy or Gymnasium lacks."""
        self.note(node, dotted(node), numpy_rules.why_missing(self.context, node))
        root, _, name = dotted(node).partition(".")
        if self.context.hides(root) or root not in self.context.gym or not name:
            return
        module = self.context.gym[root]
        # If Gymnasium lacks the module, its import has a note.
        if imports.why_not_in_gymnasium(module) is None:
            self.note(node, dotted(node), imports.why_not_in_gymnasium(module, name))

    def _check_mirrored(self, node: cst.Attribute) -> None:
        """Record an unsupported name of an RLlib module."""
        root, *names = dotted(node).split(".")
        if root not in self.context.mirrored or self.context.hides(root):
            return
        path = self.context.mirrored[root]
        for name in names:
            why = imports.why_not(path, name)
            self.note(node, dotted(node), why)
            path = f"{path}.{name}".strip(".")
            is_module = path in supported_paths()
            if why or not is_module:
                return

    # --- calls ------------------------------------------------------------------------------------

    def visit_Call(self, node: cst.Call) -> None:
        if _is_int_call(node):
            self.context.int_calls += 1
        self.note(node, node.func, tensorflow_rules.why_scope_stays(self.context, node))
        name = env_method(node)
        if name == "seed" or (name == "render" and node.args):
            self.note(node, node, _OLD_CALL)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if _is_int_call(original_node):
            self.context.int_calls -= 1
        if tensorflow_rules.is_layer_to_keep(self.context, original_node):
            return self._keep_layer(original_node, updated_node)
        shape = tensorflow_rules.port_shape(self.context, updated_node)
        is_shape = shape is not updated_node  # such as `x.get_shape().as_list()`
        if is_shape:
            return shape
        call = tensorflow_rules.call(self.context, original_node, updated_node)
        why_dropout_stays = tensorflow_rules.why_dropout_stays(self.context, original_node)
        self.note(original_node, original_node, why_dropout_stays)
        call = tensorflow_rules.with_dynamic_batch_size(self.context, call)
        call = numpy_rules.call(self.context, call)
        call = layer_rules.call(self.context, call)
        return layer_rules.model_call(self.context, call)

    def _keep_layer(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        """Return a call to a layer that the model keeps; if not possible, add a note and return the
        call unchanged.
        """
        scope = self.context.classes[-1]
        has_self = any(_is_method(function) for function in scope.functions)
        if has_self:
            method = scope.functions[-1].name.value
            # Without a name, a layer that runs more than once would be several layers.
            runs_once = self.context.loops == 0 and scope.calls[method] < 2
            layer_call = tensorflow_rules.keep_layer(self.context, updated, runs_once)
            if layer_call is not None:
                scope.has_kept_layers = True
                return layer_call
        self.note(original, original.func, _UNNAMED)
        return updated

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        return tensorflow_rules.unpack_three(updated_node)

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
        scope = self.context.classes.pop()
        if scope.has_kept_layers:
            return _with_layers(updated_node)
        return updated_node

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        scope = self.context.enclosing_class()
        if scope is not None:
            scope.functions.append(node)
        self.context.parameters.append(parameters_of(node))
        self._outer_loops.append(self.context.loops)
        self.context.loops = 0
        if node.name.value == "central_value_function":
            self.note(node, "central_value_function", _CRITIC)

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        scope = self.context.enclosing_class()
        if scope is not None:
            scope.functions.pop()
        self.context.parameters.pop()
        self.context.loops = self._outer_loops.pop()
        return updated_node

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, _LOOPS):
            self.context.loops += 1
        return super().on_visit(node)

    def on_leave(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        if isinstance(original_node, _LOOPS):
            self.context.loops -= 1
        return super().on_leave(original_node, updated_node)

    def visit_Lambda(self, node: cst.Lambda) -> None:
        self.context.parameters.append(parameters_of(node))

    def leave_Lambda(self, original_node: cst.Lambda, updated_node: cst.Lambda) -> cst.Lambda:
        self.context.parameters.pop()
        return updated_node


def _is_int_call(node: cst.Call) -> bool:
    """Return whether a call is `int(...)`."""
    return dotted(node.func) == "int"


def _is_method(function: cst.FunctionDef) -> bool:
    """Return whether a function's first parameter is `self`."""
    parameters = [*function.params.posonly_params, *function.params.params]
    return bool(parameters) and parameters[0].name.value == "self"


def _with_import(module: cst.Module, helper: str) -> cst.Module:
    """Return a module with an import added after its docstring, `__future__` imports and first
    import.
    """
    body = list(module.body)
    if any(code(statement).strip() == f"import {helper}" for statement in body):
        return module
    insert_at = 1 if module.get_docstring() is not None else 0
    for index, line in enumerate(body):
        if not isinstance(line, cst.SimpleStatementLine):
            continue
        if any(_is_future_import(statement) for statement in line.body):
            insert_at = index + 1
        elif any(isinstance(statement, cst.Import | cst.ImportFrom) for statement in line.body):
            insert_at = index + 1
            break
    body.insert(insert_at, cst.parse_statement(f"import {helper}\n"))
    return module.with_changes(body=body)


def _is_future_import(statement: cst.BaseSmallStatement) -> bool:
    return isinstance(statement, cst.ImportFrom) and dotted(statement.module) == "__future__"


def _with_layers(node: cst.ClassDef) -> cst.ClassDef:
    """Return a class whose constructor creates the attribute for kept layers."""
    if _LAYERS in code(node):
        return node
    body = list(node.body.body)
    for index, statement in enumerate(body):
        if isinstance(statement, cst.FunctionDef) and statement.name.value == "__init__":
            body[index] = _create_layers_in(statement)
            break
    else:
        constructor = cst.parse_statement(_CONSTRUCTOR + f"    {_LAYERS}\n")
        insert_at = 1 if node.get_docstring() is not None else 0
        body.insert(insert_at, constructor)
    return node.with_changes(body=node.body.with_changes(body=body))


def _create_layers_in(constructor: cst.FunctionDef) -> cst.FunctionDef:
    """Return a constructor that creates the attribute for kept layers after it calls its base
    class, or else at its beginning.
    """
    lines = _lines(constructor.body)
    insert_at = 1 if constructor.get_docstring() is not None else 0
    for index, line in enumerate(lines):
        if ".__init__(" in code(line):
            insert_at = index + 1
            break
    lines.insert(insert_at, cst.parse_statement(_LAYERS))
    block = cst.IndentedBlock([])
    if isinstance(constructor.body, cst.IndentedBlock):
        block = constructor.body
    return constructor.with_changes(body=block.with_changes(body=lines))


def _lines(suite: cst.BaseSuite) -> list[cst.BaseStatement]:
    """Return a function's statements, one per line."""
    if isinstance(suite, cst.IndentedBlock):
        return list(suite.body)
    lines: list[cst.BaseStatement] = []
    for statement in suite.body:
        statement = statement.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
        lines.append(cst.SimpleStatementLine([statement]))  # type: ignore[list-item]
    return lines
