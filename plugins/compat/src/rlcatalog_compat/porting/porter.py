"""The rewriting of one file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from rlcatalog_compat.mirror import KNOWN
from rlcatalog_compat.porting import imports, keras_rules, numpy_rules, tensorflow_rules, torch_rules
from rlcatalog_compat.porting.context import Context, Note, code, dotted
from rlcatalog_compat.porting.reading import Reader, attributes_of, symbolic_names

_CRITIC = "a central critic needs its algorithm's own batches; the model ports, the algorithm stays with Ray"
_OLD_GYM = "gym's older interface: step() returns five values in Gymnasium, reset(*, seed, options) two"
_OLD_CALL = "gym's older interface: in Gymnasium step() returns terminated and truncated for done, reset() an info, too"
_LOOP = "batch normalisation in a loop; make a list of tf.keras.layers.BatchNormalization() in __init__"

_CONSTRUCTOR = "def __init__(self, *args, **kwargs):\n    super().__init__(*args, **kwargs)\n"
_TRAINING = "Keras 3 wants to know training as True or False; call the layer in forward() instead"


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
    """
    wrapper = MetadataWrapper(cst.parse_module(content), unsafe_skip_copy=True)
    context = Context()
    wrapper.module.visit(Reader(context))
    module = wrapper.visit(_Porter(context))
    first: dict[tuple[int, str], Note] = {}
    for note in sorted(context.notes):
        first.setdefault((note.line, note.why), note)
    return Ported(module.bytes, list(first.values()))


class _Porter(cst.CSTTransformer):
    """Walks a file and lets the rules change it.

    Args:
        context: What is known of the file.
    """

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context
        self._inner: set[cst.CSTNode] = set()
        self._functions: list[cst.FunctionDef] = []
        self._bases: list[list[str]] = []
        self._loops: list[int] = []

    def note(self, node: cst.CSTNode, what: str, why: str) -> None:
        """Note a place that could not be ported."""
        line = self.get_metadata(PositionProvider, node).start.line
        self.context.notes.add(Note(line, what, why))

    # --- imports ---------------------------------------------------------------------------------------------------

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> Any:
        lines = [updated_node]
        for place, statement in enumerate(updated_node.body):
            was = original_node.body[place]
            if isinstance(statement, cst.Import):
                new, stays = imports.ported_import(statement)
                updated_node = updated_node.with_changes(body=self._with(updated_node, place, new))
                lines = [updated_node]
            elif isinstance(statement, cst.ImportFrom):
                if self.context.pads_as_before:
                    statement = imports.padding_as_before(statement)
                found, stays = imports.ported_from(statement)
                if len(found) > 1 and len(updated_node.body) > 1:
                    continue
                lines = [updated_node.with_changes(body=self._with(updated_node, place, found[0]))]
                lines += [cst.SimpleStatementLine([other]) for other in found[1:]]
                updated_node = lines[0]
            else:
                continue
            for what, why in stays:
                self.note(was, what, why)
        return cst.FlattenSentinel(lines) if len(lines) > 1 else lines[0]

    @staticmethod
    def _with(line: cst.SimpleStatementLine, place: int, statement: Any) -> list[Any]:
        return [*line.body[:place], statement, *line.body[place + 1 :]]

    # --- names -----------------------------------------------------------------------------------------------------

    def visit_Attribute(self, node: cst.Attribute) -> None:
        if node in self._inner:
            self._inner.add(node.value)
            return
        self._inner.add(node.value)
        self._check_mirrored(node)
        why = tensorflow_rules.graph_code(self.context, node)
        if why is not None:
            self.note(node, code(node), why)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        if not isinstance(updated_node.value, cst.Name | cst.Attribute):
            return tensorflow_rules.shape(self.context, updated_node)
        for rule in (numpy_rules.attribute, tensorflow_rules.attribute):
            changed = rule(self.context, updated_node)
            if changed is not updated_node:
                return changed
        return torch_rules.number(self.context, updated_node)

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        return tensorflow_rules.shape(self.context, updated_node)

    def _check_mirrored(self, node: cst.Attribute) -> None:
        """Note a name of a module of RLlib's that is not served."""
        first, *rest = dotted(node).split(".")
        if first not in self.context.mirrored:
            return
        path = self.context.mirrored[first]
        for part in rest:
            why = imports.why_not(path, part)
            if why is not None:
                self.note(node, dotted(node), why)
                return
            if f"{path}.{part}".strip(".") not in KNOWN:
                return
            path = f"{path}.{part}".strip(".")

    # --- calls -----------------------------------------------------------------------------------------------------

    def visit_Call(self, node: cst.Call) -> None:
        self.context.whole += dotted(node.func) == "int"
        keras_rules.masked_layer(self.context, node)
        if keras_rules.trains_symbolically(self.context, node):
            self.note(node, code(node.func), _TRAINING)
        if not self.context.lambdas and keras_rules.on_symbolic(self.context, node):
            self.context.inside.append(node)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        self.context.whole -= dotted(original_node.func) == "int"
        in_loop = bool(self.context.loops)
        if tensorflow_rules.is_batch_norm(self.context, original_node) and not in_loop:
            return self._batch_norm(original_node, updated_node)
        if self._functions and _has_self(self._functions[-1]):
            kept = tensorflow_rules.kept(self.context, updated_node)
            if kept is not None:
                return kept
        if in_loop and tensorflow_rules.is_batch_norm(self.context, original_node):
            return self._batch_norm(original_node, updated_node)
        if (listed := tensorflow_rules.shape(self.context, updated_node)) is not updated_node:
            return listed
        changed = tensorflow_rules.call(self.context, original_node, updated_node)
        if isinstance(changed, cst.Call):
            changed = tensorflow_rules.rows(self.context, changed)
            changed = keras_rules.model_call(self.context, keras_rules.call(self.context, changed))
        inside = self.context.inside
        if inside and inside[-1] is original_node:
            inside.pop()
            if not inside and isinstance(changed, cst.Call):
                return keras_rules.in_lambda(self.context, original_node, changed)
        return changed

    def _batch_norm(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        in_method = bool(self.context.classes and self._functions and _has_self(self._functions[-1]))
        if self.context.loops or not in_method:
            self.note(original, code(original.func), _LOOP)
            return updated
        return tensorflow_rules.batch_norm(self.context, updated)

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
        self.context.classes.append(attributes_of(node))
        self._bases.append([dotted(base.value).rpartition(".")[2] for base in node.bases])

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        self._bases.pop()
        made = {name: layer for name, layer in self.context.classes.pop().made.items() if layer is not None}
        return _with_layers(updated_node, made) if made else updated_node

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._functions.append(node)
        self.context.symbolic.append(symbolic_names(node, self.context))
        self._loops.append(self.context.loops)
        self.context.loops = 0
        if node.name.value == "central_value_function":
            self.note(node, "central_value_function", _CRITIC)

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        self._functions.pop()
        self.context.symbolic.pop()
        self.context.loops = self._loops.pop()
        return updated_node

    def visit_Return(self, node: cst.Return) -> None:
        in_env = self._bases and any(base.endswith(("Env", "Wrapper")) for base in self._bases[-1])
        if not in_env or not self._functions or self._functions[-1].name.value != "step":
            return
        if isinstance(node.value, cst.Tuple) and len(node.value.elements) == 4:
            self.note(node, code(node), _OLD_GYM)

    def visit_For(self, node: cst.For) -> None:
        self.context.loops += 1

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        self.context.loops -= 1
        return updated_node

    def visit_Lambda(self, node: cst.Lambda) -> None:
        self.context.lambdas += 1

    def leave_Lambda(self, original_node: cst.Lambda, updated_node: cst.Lambda) -> cst.Lambda:
        self.context.lambdas -= 1
        return updated_node


def _with_import(module: cst.Module, helper: str) -> cst.Module:
    """Return a module that imports another behind its first import."""
    body = list(module.body)
    line = cst.parse_statement(f"import {helper}\n")
    lines = [code(statement) for statement in body]
    first = next((i for i, text in enumerate(lines) if "import " in text and "__future__" not in text), -1)
    return module.with_changes(body=[*body[: first + 1], line, *body[first + 1 :]])


def _has_self(function: cst.FunctionDef) -> bool:
    parameters = function.params.params
    return bool(parameters) and parameters[0].name.value == "self"


def _with_layers(node: cst.ClassDef, made: dict[str, cst.BaseExpression]) -> cst.ClassDef:
    """Return a class whose constructor makes layers."""
    lines = [cst.parse_statement(f"self.{name} = {code(layer)}") for name, layer in made.items()]
    body = list(node.body.body)
    for place, statement in enumerate(body):
        if isinstance(statement, cst.FunctionDef) and statement.name.value == "__init__":
            inside = list(statement.body.body)
            after = next((i + 1 for i, line in enumerate(inside) if ".__init__(" in code(line)), 0)
            inside[after:after] = lines
            body[place] = statement.with_changes(body=statement.body.with_changes(body=inside))
            break
    else:
        constructor = cst.parse_statement(_CONSTRUCTOR)
        assert isinstance(constructor, cst.FunctionDef)
        inside = [*constructor.body.body, *lines]
        constructor = constructor.with_changes(body=constructor.body.with_changes(body=inside))
        first = 1 if node.get_docstring() is not None else 0
        body.insert(first, constructor)
    return node.with_changes(body=node.body.with_changes(body=body))
