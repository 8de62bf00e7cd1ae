"""Find out what the names in a file refer to, before anything is rewritten."""

from __future__ import annotations

from collections import Counter
from typing import Any

import libcst as cst
from libcst import matchers as m

from rlcatalog_compat.codemod.context import (
    NUMPY,
    RAY,
    TENSORFLOW,
    TENSORFLOW_1,
    ClassScope,
    Context,
    bound_name,
    dotted,
    names_of,
)
from rlcatalog_compat.codemod.layer_rules import is_recurrent
from rlcatalog_compat.names import supported_paths

#: TensorFlow 1 layers in methods, and the functions that keep them.
_KEPT = ("dense", "conv2d", "flatten", "batch_normalization", "batch_norm", "get_variable")

#: Modules of TensorFlow and NumPy that a file may give another name: `L = tf.keras.layers`. The
#: first stands for the package itself.
_SUBMODULES = frozenset(
    {
        "",
        "compat.v1",
        "contrib.layers",
        "contrib.rnn",
        "contrib.slim",
        "initializers",
        "keras",
        "keras.activations",
        "keras.backend",
        "keras.initializers",
        "keras.layers",
        "keras.models",
        "keras.regularizers",
        "layers",
        "linalg",
        "losses",
        "math",
        "nn",
        "random",
    }
)


class Reader(cst.CSTVisitor):
    """Visitor that records in the context which names refer to NumPy, TensorFlow and RLlib modules.

    Args:
        context: Context in which to record the names.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self._rebound: set[str] = set()
        #: How often the file assigns to each name.
        self._assignments: Counter[str] = Counter()
        #: How often the file gives each name to the same module, as in `L = tf.keras.layers`.
        self._aliases: Counter[str] = Counter()

    def visit_Import(self, node: cst.Import) -> None:
        for alias in node.names:
            path = dotted(alias.name)
            if alias.asname is not None:
                self._enter(dotted(alias.asname.name), path)
            else:
                # `import a.b` binds `a`.
                root = path.partition(".")[0]
                self._enter(root, root)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        if isinstance(node.names, cst.ImportStar) or node.relative:
            return
        for alias in node.names:
            path = f"{dotted(node.module)}.{dotted(alias.name)}"
            self._enter(bound_name(alias), path)

    def visit_Call(self, node: cst.Call) -> None:
        if is_recurrent(node):
            self.context.has_recurrent_layers = True
        if dotted(node.func).endswith(("Pool3D", "Pooling3D", "layers.Conv3D")):
            self.context.has_3d_layers = True

    def visit_Assign(self, node: cst.Assign) -> None:
        if not isinstance(node.value, cst.Call):
            self._read_alias(node)
            return
        function = dotted(node.value.func).rpartition(".")[2]
        targets = [dotted(name) for name in names_of(node.targets[0].target)]
        if function == "valid_padding" and "pad" in targets[0]:
            # The current function does not return the padding, only the size: height and width.
            self.context.pads_as_before = True
        if function == "try_import_tf":
            self._enter_tensorflow(targets)

    def _read_alias(self, node: cst.Assign) -> None:
        """Record the names that an assignment such as `L = tf.keras.layers` gives to a module."""
        root, _, inside = dotted(node.value).partition(".")
        if root not in self.context.modules:
            return
        path = f"{self.context.modules[root]}.{inside}".rstrip(".")
        _, _, module = path.partition(".")
        if module.removeprefix("compat.v1.") not in _SUBMODULES:
            return
        for target in node.targets:
            name = dotted(target.target)
            is_attribute = "." in name  # such as `self.layers`
            if not name or is_attribute:
                continue
            if name not in self.context.modules:
                self.context.modules[name] = path
                self._aliases[name] += 1
            elif name in self._aliases and self.context.modules[name] == path:
                self._aliases[name] += 1

    def _enter_tensorflow(self, targets: list[str]) -> None:
        """Record the names that the results of `try_import_tf()` are assigned to."""
        modules = [TENSORFLOW_1, TENSORFLOW]
        if len(targets) == 1:  # RLlib 0.8's function returns only TensorFlow
            modules = [TENSORFLOW]
            self.context.selects_rows = True
        for name, module in zip(targets, modules, strict=False):
            if name != "_":
                self.context.modules[name] = module

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        if node.name.value in ("shape", "get_shape"):
            self.context.defines_shape = True

    def leave_Module(self, original_node: cst.Module) -> None:
        for name in self._rebound:  # `gym = gym.make(...)`: no longer a module
            self.context.gym.pop(name, None)
        for name, alias_count in self._aliases.items():
            if self._assignments[name] > alias_count:  # elsewhere, it is something else
                del self.context.modules[name]

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
        names = {dotted(name) for name in names_of(node.target)}
        self._assignments.update(names)
        self._rebound |= names
        self.context.reassigned |= {name for name in names if "." in name}

    def visit_For(self, node: cst.For | cst.CompFor) -> None:
        self._assignments.update(dotted(name) for name in names_of(node.target))

    visit_CompFor = visit_For

    def _enter(self, name: str, path: str) -> None:
        """Record that a name refers to a module, or to a name in it."""
        path = path.replace("tensorflow.compat.v2", TENSORFLOW)
        root, _, inside = path.partition(".")
        if root in (NUMPY, TENSORFLOW):
            self.context.modules[name] = path
        if root in ("gym", "gymnasium"):
            self.context.gym[name] = inside
        if root in RAY and (not inside or inside in supported_paths()):
            self.context.mirrored[name] = inside


def scope_of(node: cst.ClassDef, context: Context) -> ClassScope:
    """Return the information about a class and its layers."""
    scope = ClassScope([dotted(base.value).rpartition(".")[2] for base in node.bases])
    # The patterns determine the nodes' classes, which `findall` does not tell a type checker.
    texts: Any = m.findall(node, m.SimpleString() | m.FormattedStringText())
    calls: Any = m.findall(node, m.Call())
    assignments_of_calls: Any = m.findall(node, m.Assign(value=m.Call()))
    scope.texts = {text.value for text in texts}
    for call in calls:
        module, name = context.stands_for(call.func)
        if module and name.rpartition(".")[2] in _KEPT:
            scope.must_keep_layers = True
        method = dotted(call.func).removeprefix("self.")
        scope.calls[method] += 1
    for assign in assignments_of_calls:
        if dotted(assign.value.func).rpartition(".")[2] == "Model":
            scope.models |= {dotted(target.target) for target in assign.targets}
    return scope
