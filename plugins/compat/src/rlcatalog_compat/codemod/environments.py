"""Rules for environments: `reset`, `step` and `seed` of gym's older interface get the form that
Gymnasium expects.

Only classes that derive from a class of gym or Gymnasium are rewritten, and only if it is certain
what their methods return. The others are reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import libcst as cst
from libcst.metadata import MetadataWrapper

from rlcatalog_compat.codemod.context import Context, Rewriter, dotted, names_of
from rlcatalog_compat.codemod.env_methods import (
    ParentReset,
    Uncertain,
    check_wrapped_env,
    own_nodes,
    port_reset,
    port_step,
    time_limits,
    unpack_reset,
)

_OLD_CALL = (
    "in Gymnasium, reset() returns (observation, info), and step() returns (observation, reward,"
    " terminated, truncated, info)"
)
_OLD_NAMES = (
    "only gym's oldest versions call _reset and _step; rename them to reset and step, and run the"
    " command again"
)
_FOREIGN_STEP = (
    "Gymnasium's step() returns (observation, reward, terminated, truncated, info). This class"
    " derives from one that the command does not know, so it left the class unchanged"
)
_NO_SEED = (
    "Gymnasium's environments have no method seed(); pass the seed to reset(), or define seed() in"
    " this class"
)
_TIME_LIMIT = (
    "the done of step() is now terminated, and truncated is False. If this line ends an episode"
    " because its time is up, return truncated=True there instead"
)
#: Methods of NumPy's `RandomState` → methods of `Generator`, which is Gymnasium's `np_random`.
_GENERATOR = {
    "randint": "integers",
    "rand": "random",
    "randn": "standard_normal",
    "random_sample": "random",
}
#: Methods that take the sizes of the axes one by one, where a Generator takes a tuple.
_AXES_ONE_BY_ONE = ("rand", "randn")
#: Keys of an environment's metadata, renamed by gym 0.22.
_METADATA = {"render.modes": "render_modes", "video.frames_per_second": "render_fps"}


@dataclass
class _Environment:
    """Class that derives from a class of gym, directly or through classes in the same file.

    Attributes:
        methods: Its own methods.
        parent: The environment in the same file that it derives from, or None.
        parent_reset: What `reset` of its base class does.
        wraps_gym: Whether the environment that it keeps as an attribute, if any, is certainly one
            of gym.
        changed: Names of its methods that were rewritten.
    """

    methods: dict[str, cst.FunctionDef]
    parent: _Environment | None
    parent_reset: ParentReset
    wraps_gym: bool
    changed: set[str] = field(default_factory=set)

    def defines(self, method: str) -> bool:
        """Return whether the class or one that it derives from in this file has a method."""
        if method in self.methods:
            return True
        return self.parent is not None and self.parent.defines(method)

    def changes(self, method: str) -> bool:
        """Return whether a method, which may be inherited, was rewritten."""
        if method in self.methods or self.parent is None:
            return method in self.changed
        return self.parent.changes(method)


def port_environments(wrapper: MetadataWrapper, context: Context) -> cst.Module:
    """Return a file in which the environments have Gymnasium's interface.

    Args:
        wrapper: The file.
        context: Context of the file, in which what is not certain is recorded.
    """
    return wrapper.visit(_EnvironmentPorter(context))


class _EnvironmentPorter(Rewriter):
    """Transformer that applies the rules for environments to a file.

    Args:
        context: Context of the file.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        #: The environments of the file, by name.
        self._environments: dict[str, _Environment] = {}
        #: The classes around the current code; None for one that is no environment.
        self._classes: list[_Environment | None] = []
        #: The methods around the current code that were rewritten as a whole.
        self._new_methods: dict[cst.FunctionDef, cst.FunctionDef] = {}
        #: The nodes of all `reset` and `step` that were rewritten or reported as a whole. The
        #: calls in them are not reported again.
        self._reported_nodes: set[cst.CSTNode] = set()

    # --- classes ----------------------------------------------------------------------------------

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        environment = self._read_class(node)
        self._classes.append(environment)
        if environment is None:
            self._note_foreign_step(node)
            return
        self._environments[node.name.value] = environment
        for name in ("_reset", "_step"):
            if name in environment.methods and not environment.defines(name[1:]):
                self.note(environment.methods[name], f"def {name}", _OLD_NAMES)
        # `step` first, because `reset` may call it.
        if "step" in environment.methods:
            self._port_step(environment)
        if "reset" in environment.methods:
            self._port_reset(environment)
        self._note_calls(environment)

    def leave_ClassDef(
        self, original_node: cst.ClassDef, updated_node: cst.ClassDef
    ) -> cst.ClassDef:
        environment = self._classes.pop()
        if environment is not None:
            self.context.environments[original_node.name.value] = sorted(environment.changed)
        return updated_node

    def _read_class(self, node: cst.ClassDef) -> _Environment | None:
        """Return a class that derives from one of gym, or None for other classes."""
        for base in node.bases:
            name = dotted(base.value)
            parent = self._environments.get(name)
            path = self._path_in_gym(name)
            is_gym_class = path.endswith(("Env", "Wrapper"))
            if parent is None and not is_gym_class:
                continue
            parent_reset = ParentReset.KEPT
            if path in ("Env", "core.Env"):
                parent_reset = ParentReset.ONLY_SEEDS
            elif path.endswith("Wrapper") or (parent and parent.parent_reset is ParentReset.INNER):
                parent_reset = ParentReset.INNER
            methods = _methods_of(node)
            wraps_gym = parent_reset is ParentReset.INNER or self._makes_env(methods)
            return _Environment(methods, parent, parent_reset, wraps_gym)
        return None

    def _makes_env(self, methods: Mapping[str, cst.FunctionDef]) -> bool:
        """Return whether a class creates an environment with `gym.make`."""
        for method in methods.values():
            for node in own_nodes(method):
                if isinstance(node, cst.Call) and self._path_in_gym(dotted(node.func)) == "make":
                    return True
        return False

    def _path_in_gym(self, name: str) -> str:
        """Return what a dotted name refers to in gym, such as `core.Env`; `""` for other names."""
        root, _, rest = name.partition(".")
        if root not in self.context.gym:
            return ""
        return f"{self.context.gym[root]}.{rest}".strip(".")

    def _note_foreign_step(self, node: cst.ClassDef) -> None:
        """Record a `step` with four values of a class that seems to be an environment."""
        step = _methods_of(node).get("step")
        bases = [dotted(base.value) for base in node.bases]
        if step is None or not any(base.endswith(("Env", "Wrapper")) for base in bases):
            return
        for statement in own_nodes(step):
            if isinstance(statement, cst.Return) and isinstance(statement.value, cst.Tuple):
                if len(statement.value.elements) == 4:
                    self.note(statement, statement, _FOREIGN_STEP)

    # --- methods ----------------------------------------------------------------------------------

    def _port_step(self, environment: _Environment) -> None:
        step = environment.methods["step"]
        try:
            new_step = port_step(step, environment.methods)
            if new_step is step:
                return
            if not environment.wraps_gym:
                check_wrapped_env(step)
        except Uncertain as uncertain:
            self._note_method(step, uncertain)
            return
        self._replace(environment, step, new_step)
        for comparison in time_limits(step, environment.methods):
            self.check(comparison, comparison, _TIME_LIMIT)

    def _port_reset(self, environment: _Environment) -> None:
        reset = environment.methods["reset"]
        try:
            new_reset = port_reset(
                reset,
                parent_reset=environment.parent_reset,
                env_class=self._name_of_env(),
                has_seed=environment.defines("seed"),
            )
            if new_reset is reset:
                return
            if not environment.wraps_gym:
                check_wrapped_env(reset)
        except Uncertain as uncertain:
            self._note_method(reset, uncertain)
            return
        self._replace(environment, reset, new_reset)

    def _replace(
        self, environment: _Environment, old: cst.FunctionDef, new: cst.FunctionDef
    ) -> None:
        """Remember the new form of a method."""
        environment.changed.add(old.name.value)
        self._new_methods[old] = new
        self._reported_nodes.update(own_nodes(old))

    def _note_method(self, method: cst.FunctionDef, uncertain: Uncertain) -> None:
        """Record a method that is left unchanged."""
        self.note(uncertain.node, uncertain.what, uncertain.why)
        self._reported_nodes.update(own_nodes(method))

    def _name_of_env(self) -> str:
        """Return the file's name for `gymnasium.Env`; `""` if it has none."""
        for name, path in self.context.gym.items():
            if path == "":
                return f"{name}.Env"
            if path in ("Env", "core.Env"):
                return name
        return ""

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        new_method = self._new_methods.get(original_node)
        if new_method is None:
            return updated_node
        # The rules for single expressions apply to the new body, too.
        return cst.ensure_type(new_method.visit(_Expressions(self)), cst.FunctionDef)

    # --- calls ------------------------------------------------------------------------------------

    def visit_Assign(self, node: cst.Assign) -> None:
        if node in self._reported_nodes:
            return
        method = env_method(node.value)
        is_old_reset = method == "reset" and len(_targets(node)) == 1
        is_old_step = method == "step" and len(_targets(node)) == 4
        if is_old_reset or is_old_step:
            self.note(node, node, _OLD_CALL)

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        return self.port_assign(updated_node)

    def port_assign(self, node: cst.Assign) -> cst.Assign:
        """Return an assignment of `self.reset()` for a `reset` that was rewritten; other
        assignments unchanged.
        """
        if not self._classes or self._classes[-1] is None:
            return node
        if _is_own_call(node.value, "reset") and self._classes[-1].changes("reset"):
            return unpack_reset(node)
        return node

    def _note_calls(self, environment: _Environment) -> None:
        """Record the calls of an environment's own methods that do not fit the new interface."""
        for method in environment.methods.values():
            # The calls whose results are dropped, or assigned as a whole.
            statements = set()
            for node in own_nodes(method):
                if isinstance(node, cst.Expr | cst.Assign):
                    statements.add(node.value)
                if isinstance(node, cst.Assign) and _is_own_call(node.value, "step"):
                    has_four = len(_targets(node)) == 4
                    if has_four and environment.changes("step"):
                        self.note(node, node, _OLD_CALL)
                if _is_own_call(node, "seed") and not environment.defines("seed"):
                    self.note(node, node, _NO_SEED)
                is_reset = _is_own_call(node, "reset") and environment.changes("reset")
                if is_reset and node not in statements:
                    self.note(node, node, _OLD_CALL)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        return self.port_draw(updated_node)

    def port_draw(self, call: cst.Call) -> cst.Call:
        """Return a call such as `self.np_random.randint(5)` with the name of Gymnasium's generator,
        `self.np_random.integers(5)`.
        """
        owner, _, method = dotted(call.func).rpartition(".")
        if owner != "self.np_random" or method not in _GENERATOR or not self._has_generator():
            return call
        function = cst.ensure_type(call.func, cst.Attribute)
        args = list(call.args)
        if method in _AXES_ONE_BY_ONE and len(args) > 1:
            elements = [cst.Element(arg.value) for arg in args]
            args = [cst.Arg(cst.Tuple(elements))]
        new_function = function.with_changes(attr=cst.Name(_GENERATOR[method]))
        return call.with_changes(func=new_function, args=args)

    def _has_generator(self) -> bool:
        """Return whether the current class has Gymnasium's `np_random`, and no generator of its
        own, such as a `RandomState`.
        """
        if not self._classes or self._classes[-1] is None:
            return False
        for method in self._classes[-1].methods.values():
            for node in own_nodes(method):
                if isinstance(node, cst.AssignTarget) and dotted(node.target) == "self.np_random":
                    return False
        return True

    def leave_DictElement(
        self, original_node: cst.DictElement, updated_node: cst.DictElement
    ) -> cst.DictElement:
        key = updated_node.key
        if not self._classes or self._classes[-1] is None or not isinstance(key, cst.SimpleString):
            return updated_node
        new_key = _METADATA.get(str(key.evaluated_value))
        if new_key is None:
            return updated_node
        quote = key.quote
        return updated_node.with_changes(key=cst.SimpleString(f"{quote}{new_key}{quote}"))


class _Expressions(cst.CSTTransformer):
    """Transformer that applies the rules for single expressions to a rewritten method.

    Args:
        porter: The transformer of the file.
    """

    def __init__(self, porter: _EnvironmentPorter) -> None:
        super().__init__()
        self._porter = porter

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        return self._porter.port_draw(updated_node)

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        return self._porter.port_assign(updated_node)


def _methods_of(node: cst.ClassDef) -> dict[str, cst.FunctionDef]:
    methods = {}
    for statement in node.body.body:
        if isinstance(statement, cst.FunctionDef):
            methods[statement.name.value] = statement
    return methods


def _targets(node: cst.Assign) -> list[cst.BaseExpression]:
    """Return what an assignment unpacks a value to, which may be one name."""
    return list(names_of(node.targets[0].target))


def _is_own_call(node: cst.CSTNode, method: str) -> bool:
    return isinstance(node, cst.Call) and dotted(node.func) == f"self.{method}"


def env_method(node: cst.BaseExpression) -> str:
    """Return the name of the environment method that an expression calls; `""` for other
    expressions.
    """
    if not isinstance(node, cst.Call):
        return ""
    obj, _, method = dotted(node.func).rpartition(".")
    is_env = obj.rpartition(".")[2].endswith("env")
    return method if is_env else ""
