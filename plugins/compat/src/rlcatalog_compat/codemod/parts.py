"""Find out what a file contains that rlcatalog runs once it is ported: the parts of the report."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from rlcatalog_compat.codemod.context import RAY, bound_name, dotted
from rlcatalog_compat.names import modules

#: Modules of RLlib, without `ray.`, that contain algorithms.
_ALGORITHMS = ("rllib.agents", "rllib.algorithms")


class Part(NamedTuple):
    """Class or algorithm in a file.

    Attributes:
        line: Its line in the original file.
        kind: What it is, such as "model".
        name: Its name.
    """

    line: int
    kind: str
    name: str


class Parts(NamedTuple):
    """What the report says about a file.

    Attributes:
        parts: Its classes and the algorithms that it imports, in their order.
        imports_ray: Whether the file imports Ray.
        models: The names under which it registers models.
        env_ids: The names under which it registers environments with Gymnasium.
    """

    parts: list[Part]
    imports_ray: bool
    models: list[str]
    env_ids: list[str]


def read_parts(module: cst.Module, environments: Mapping[str, object]) -> Parts:
    """Return what a file contains.

    Args:
        module: The file, before it is ported.
        environments: Its environments, by the name of the class.
    """
    reader = _PartReader(environments)
    MetadataWrapper(module, unsafe_skip_copy=True).visit(reader)
    return Parts(reader.parts, reader.imports_ray, reader.models, reader.env_ids)


class _PartReader(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, environments: Mapping[str, object]) -> None:
        super().__init__()
        self._environments = environments
        #: Name of a base class → the kind of the classes that derive from it.
        self._kinds: dict[str, str] = {}
        self.parts: list[Part] = []
        self.imports_ray = False
        self.models: list[str] = []
        self.env_ids: list[str] = []

    def visit_Import(self, node: cst.Import) -> None:
        for alias in node.names:
            if dotted(alias.name).partition(".")[0] == "ray":
                self.imports_ray = True

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        root, _, path = dotted(node.module).partition(".")
        if root not in RAY or node.relative:
            return
        if root == "ray":
            self.imports_ray = True
        if isinstance(node.names, cst.ImportStar):
            return
        for alias in node.names:
            name = dotted(alias.name)
            if name in _kinds_of_base_classes():
                self._kinds[bound_name(alias)] = _kinds_of_base_classes()[name]
            is_algorithm = path.startswith(_ALGORITHMS) and name in _algorithms()
            if is_algorithm:
                self._add(node, "algorithm", name)

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        name = node.name.value
        if name in self._environments:
            self._add(node, "environment", name)
            return
        for base in node.bases:
            base_name = dotted(base.value)
            # Also `models.torch.TorchModelV2`, whose module was imported.
            last_name = base_name.rpartition(".")[2]
            kind = self._kinds.get(base_name)
            if kind is None and "." in base_name:
                kind = _kinds_of_base_classes().get(last_name)
            if kind is not None:
                self._kinds[name] = kind  # for the classes that derive from this one
                self._add(node, kind, name)
                return

    def visit_Call(self, node: cst.Call) -> None:
        function = dotted(node.func)
        if function.endswith("register_custom_model"):
            self.models += _first_text(node)
        is_gym = function in ("register", "gym.register", "gym.envs.register")
        if is_gym or function == "gymnasium.register":
            self.env_ids += _first_text(node)

    def _add(self, node: cst.CSTNode, kind: str, name: str) -> None:
        line = self.get_metadata(PositionProvider, node).start.line
        self.parts.append(Part(line, kind, name))


def _first_text(call: cst.Call) -> list[str]:
    """Return the first argument of a call in a list, if it is a string; otherwise an empty list."""
    if call.args and isinstance(call.args[0].value, cst.SimpleString):
        return [str(call.args[0].value.evaluated_value)]
    return []


@cache
def _kinds_of_base_classes() -> dict[str, str]:
    """Return the classes of RLlib's models, distributions and preprocessors with their kinds."""
    kinds: dict[str, str] = {}
    for path, module in modules().items():
        if not path.startswith("rllib.models"):
            continue
        for name in module.names:
            if name.endswith(("ModelV2", "Network", "Net", "Model", "QModel")):
                kinds[name] = "model"
            elif "action_dist" in path or name.endswith(("Distribution", "DistributionWrapper")):
                kinds[name] = "distribution"
            elif name.endswith("Preprocessor"):
                kinds[name] = "preprocessor"
    return kinds


@cache
def _algorithms() -> frozenset[str]:
    """Return the names of RLlib's algorithms, and of their configs, that the mirror has."""
    names: set[str] = set()
    for path, module in modules().items():
        if path.startswith(_ALGORITHMS):
            names.update(name for name in module.names if name[:3] in ("PPO", "A2C", "A3C"))
    return frozenset(names)
