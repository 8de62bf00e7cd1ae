"""Rules for the methods `reset` and `step` of an environment with gym's older interface."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import libcst as cst

from rlcatalog_compat.codemod.context import code, dotted

_LIMIT = re.compile(
    r"step|time|tick|count|horizon|limit|length|max_|epoch|iter|frame|\bt\b", re.IGNORECASE
)
_END = re.compile(r"done|over|end|terminal|finish", re.IGNORECASE)
_STEP_ELSEWHERE = (
    "Gymnasium's step() returns (observation, reward, terminated, truncated, info). The command"
    " cannot tell how many values this step() returns, so it left the method unchanged"
)
_MIXED_DONE = (
    "Gymnasium's step() returns terminated and truncated instead of done. This step() changes the"
    " done of the environment inside it, so the command cannot tell which of the two is meant, and"
    " left the method unchanged"
)
_TAKEN = (
    "Gymnasium's interface needs the names {}, which this method uses for something else, so the"
    " command left it unchanged"
)
_RETURN_INFO = (
    "Gymnasium's reset() has no argument return_info, and always returns (observation, info)"
)
_RESET_ELSEWHERE = (
    "Gymnasium's reset() returns (observation, info). The command cannot tell what this reset()"
    " returns, so it left the method unchanged"
)
_RESET_PARAMETERS = (
    "Gymnasium calls reset(seed=..., options=...). This reset() needs another argument, so the"
    " command left it unchanged; give the argument a default"
)
_INNER_RESET = (
    "in Gymnasium, this call returns (observation, info) and takes the seed. The command cannot"
    " tell what to do with them here, so it left reset() unchanged"
)
_OTHER_ENV = (
    "the command cannot tell whether this is an environment of Gymnasium, whose reset() and step()"
    " return other values than gym's, so it left the method unchanged"
)
_NO_ENV_NAME = (
    "Gymnasium's reset() must call gymnasium.Env.reset(self, seed=seed), but this file does not"
    " import gymnasium.Env, so the command left the method unchanged"
)


class ParentReset(Enum):
    """What `reset` of an environment's base class does."""

    #: It is `gymnasium.Env.reset`, which only seeds the random numbers.
    ONLY_SEEDS = "only seeds"
    #: It resets an environment that the class wraps.
    INNER = "inner"
    #: It is the method of another environment, which the class replaces.
    KEPT = "kept"


class Uncertain(Exception):
    """It is not certain how to rewrite a method.

    Args:
        node: The code that is not certain.
        why: The reason.
        what: The code as the report shows it; by default, `node` itself.
    """

    def __init__(self, node: cst.CSTNode, why: str, what: str = "") -> None:
        super().__init__(why)
        self.node = node
        self.why = why
        self.what = what or code(node).strip()


def own_nodes(function: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield the nodes in a function in their order, without those of functions inside it."""
    for child in function.children:
        yield child
        if not isinstance(child, cst.FunctionDef | cst.Lambda | cst.ClassDef):
            yield from own_nodes(child)


class _Replace(cst.CSTTransformer):
    """Transformer that replaces nodes.

    Args:
        new_nodes: Node → what it becomes.
    """

    def __init__(self, new_nodes: Mapping[cst.CSTNode, Any]) -> None:
        super().__init__()
        self._new_nodes = new_nodes

    def on_leave(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        if original_node in self._new_nodes:
            return self._new_nodes[original_node]
        return super().on_leave(original_node, updated_node)


def _replaced(function: cst.FunctionDef, new_nodes: Mapping[cst.CSTNode, Any]) -> cst.FunctionDef:
    return cst.ensure_type(function.visit(_Replace(new_nodes)), cst.FunctionDef)


def _returns_of(function: cst.FunctionDef) -> list[cst.Return]:
    """Return a function's return statements that return a value."""
    returns = []
    for node in own_nodes(function):
        if isinstance(node, cst.Return) and node.value is not None:
            returns.append(node)
    return returns


def _bound_names(function: cst.FunctionDef) -> set[str]:
    """Return all names that occur in a function, parameters included."""
    return {node.value for node in own_nodes(function) if isinstance(node, cst.Name)}


def _elements(node: cst.BaseExpression | None) -> Sequence[cst.BaseElement]:
    """Return the elements of a tuple; none for other expressions."""
    return node.elements if isinstance(node, cst.Tuple) else ()


def _inserted(node: cst.Tuple, index: int, name: str) -> cst.Tuple:
    """Return a tuple with a name inserted after the element before the index."""
    elements = list(node.elements)
    # With the comma of the element before it, which may end a line.
    element = cst.Element(cst.Name(name), comma=elements[index - 1].comma)
    return node.with_changes(elements=[*elements[:index], element, *elements[index:]])


def _pair(value: cst.BaseExpression, second: cst.BaseExpression) -> cst.Tuple:
    """Return `value, second`, without parentheses around both."""
    if isinstance(value, cst.Tuple) and not value.lpar:
        value = value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.Tuple([cst.Element(value), cst.Element(second)], lpar=[], rpar=[])


def _is_inner_call(node: cst.CSTNode | None, method: str) -> bool:
    """Return whether an expression calls a method of the wrapped environment or of a base class:
    `self.env.step(...)`, `super().step(...)` or `gym.Wrapper.step(self, ...)`.
    """
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return False
    if node.func.attr.value != method:
        return False
    owner = node.func.value
    if isinstance(owner, cst.Call):
        return dotted(owner.func) == "super"
    name = dotted(owner)
    passes_self = bool(node.args) and dotted(node.args[0].value) == "self"
    is_wrapped_env = name.startswith("self.") and name.endswith("env")
    return is_wrapped_env or (passes_self and name.endswith(("Env", "Wrapper")))


def check_wrapped_env(function: cst.FunctionDef) -> None:
    """Raise an error if a `reset` or `step` calls that of an environment that the class keeps.

    Raises:
        Uncertain: It does, and this environment may have any interface.
    """
    for node in own_nodes(function):
        if isinstance(node, cst.Call) and _is_inner_call(node, function.name.value):
            if dotted(node.func).startswith("self."):
                raise Uncertain(node, _OTHER_ENV)


# --- step -----------------------------------------------------------------------------------------


def port_step(function: cst.FunctionDef, methods: Mapping[str, cst.FunctionDef]) -> cst.FunctionDef:
    """Return a `step` that returns five values; the function itself if it has no need to change.

    Args:
        function: The method.
        methods: All methods of its class, by name.

    Raises:
        Uncertain: It is not certain what the method returns.
    """
    returns = _returns_of(function)
    unpacks = _unpacks_of_step(function)
    old_returns = [node for node in returns if len(_elements(node.value)) == 4]
    for node in returns:
        helper = _own_method(node.value, methods)
        if helper is not None and _returns_four(helper):
            raise Uncertain(node, _STEP_ELSEWHERE)
        if isinstance(node.value, cst.Name) and _is_four_values(node.value.value, function):
            raise Uncertain(node, _STEP_ELSEWHERE)
        is_other = node not in old_returns and not _is_inner_call(node.value, "step")
        if is_other and (old_returns or unpacks):
            raise Uncertain(node, _STEP_ELSEWHERE)
    if not old_returns and not unpacks:
        return function
    if not unpacks:
        new_nodes: dict[cst.CSTNode, Any] = {}
        for node in old_returns:
            values = cst.ensure_type(node.value, cst.Tuple)
            new_nodes[node] = node.with_changes(value=_inserted(values, 3, "False"))
        return _replaced(function, new_nodes)
    return _port_step_of_wrapper(function, unpacks, old_returns)


def _own_method(
    node: cst.CSTNode | None, methods: Mapping[str, cst.FunctionDef]
) -> cst.FunctionDef | None:
    """Return the method of the class that an expression calls, or None."""
    owner, _, name = dotted(node.func if isinstance(node, cst.Call) else None).rpartition(".")
    return methods.get(name) if owner == "self" else None


def _returns_four(function: cst.FunctionDef) -> bool:
    return any(len(_elements(node.value)) == 4 for node in _returns_of(function))


def _is_four_values(name: str, function: cst.FunctionDef) -> bool:
    """Return whether a function assigns a tuple of four values, or what the wrapped environment's
    step returns, to a name.
    """
    for node in own_nodes(function):
        if isinstance(node, cst.Assign) and dotted(node.targets[0].target) == name:
            if len(_elements(node.value)) == 4 or _is_inner_call(node.value, "step"):
                return True
    return False


class _Unpack(NamedTuple):
    """Statement `obs, reward, done, info = self.env.step(action)`.

    Attributes:
        line: The statement's line.
        assign: The statement.
        done: The name of the third value.
    """

    line: cst.SimpleStatementLine
    assign: cst.Assign
    done: str


def _unpacks_of_step(function: cst.FunctionDef) -> list[_Unpack]:
    """Return the statements that unpack four values of the wrapped environment's step.

    Raises:
        Uncertain: One of them has another form than the one above.
    """
    unpacks = []
    lines: dict[cst.CSTNode, cst.SimpleStatementLine] = {}
    for node in own_nodes(function):
        if isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1:
            lines[node.body[0]] = node
        if not isinstance(node, cst.Assign) or not _is_inner_call(node.value, "step"):
            continue
        elements = _elements(node.targets[0].target)
        if len(elements) == 5:
            continue
        done = dotted(elements[2].value) if len(elements) == 4 else ""
        if not done or "." in done or len(node.targets) > 1 or node not in lines:
            raise Uncertain(node, _STEP_ELSEWHERE)
        unpacks.append(_Unpack(lines[node], node, done))
    return unpacks


def _port_step_of_wrapper(
    function: cst.FunctionDef, unpacks: Sequence[_Unpack], old_returns: Sequence[cst.Return]
) -> cst.FunctionDef:
    """Return a `step` that passes on whether the wrapped environment's episode was truncated."""
    done = unpacks[0].done
    if any(unpack.done != done for unpack in unpacks) or done == "_":
        raise Uncertain(unpacks[0].assign, _MIXED_DONE)
    _check_done_is_passed_on(function, done, unpacks)
    new_nodes: dict[cst.CSTNode, Any] = _five_values(function, unpacks)
    for node in old_returns:
        values = cst.ensure_type(node.value, cst.Tuple)
        third = values.elements[2]
        if dotted(third.value) != done:
            raise Uncertain(node, _MIXED_DONE)
        elements = list(values.elements)
        elements[2] = third.with_changes(value=cst.Name("terminated"))
        values = _inserted(values.with_changes(elements=elements), 3, "truncated")
        new_nodes[node] = node.with_changes(value=values)
    return _replaced(function, new_nodes)


def _check_done_is_passed_on(
    function: cst.FunctionDef, done: str, unpacks: Sequence[_Unpack]
) -> None:
    """Raise an error if a method assigns to `done` anything but what the wrapped environment
    returns, False or None.
    """
    assigns = [unpack.assign for unpack in unpacks]
    for node in own_nodes(function):
        is_augmented = isinstance(node, cst.AugAssign) and dotted(node.target) == done
        is_assigned = False
        if isinstance(node, cst.Assign) and node not in assigns:
            is_target = any(dotted(target.target) == done for target in node.targets)
            # An initial value, in case that the wrapped environment makes no step.
            is_initial = dotted(node.value) in ("False", "None")
            is_assigned = is_target and not is_initial
        if is_augmented or is_assigned:
            raise Uncertain(node, _MIXED_DONE)


def _five_values(function: cst.FunctionDef, unpacks: Sequence[_Unpack]) -> dict[cst.CSTNode, Any]:
    """Return line → the lines that unpack five values and compute `done` of them.

    Raises:
        Uncertain: The function uses the names that the lines need.
    """
    taken = {"terminated", "truncated"} & _bound_names(function)
    if taken:
        names = " and ".join(sorted(taken))
        raise Uncertain(unpacks[0].assign, _TAKEN.format(names))
    new_nodes: dict[cst.CSTNode, Any] = {}
    for unpack in unpacks:
        targets = cst.ensure_type(unpack.assign.targets[0].target, cst.Tuple)
        elements = list(targets.elements)
        is_used = unpack.done != "_"
        elements[2] = elements[2].with_changes(value=cst.Name("terminated" if is_used else "_"))
        targets = targets.with_changes(elements=elements)
        targets = _inserted(targets, 3, "truncated" if is_used else "_")
        target = unpack.assign.targets[0].with_changes(target=targets)
        lines: list[cst.BaseStatement] = []
        lines.append(unpack.line.with_changes(body=[unpack.assign.with_changes(targets=[target])]))
        if is_used and _reads(function, unpack.done):
            lines.append(_statement(f"{unpack.done} = terminated or truncated"))
        new_nodes[unpack.line] = cst.FlattenSentinel(lines)
    return new_nodes


def _reads(function: cst.FunctionDef, name: str) -> bool:
    """Return whether a function reads a name other than as the third value that it returns."""
    returned: set[cst.CSTNode] = set()
    for statement in _returns_of(function):
        elements = _elements(statement.value)
        if len(elements) == 4:
            returned.add(elements[2].value)
    targets: set[cst.CSTNode] = set()
    for node in own_nodes(function):
        if isinstance(node, cst.AssignTarget):
            targets.add(node.target)
            targets.update(element.value for element in _elements(node.target))
    for node in own_nodes(function):
        is_name = isinstance(node, cst.Name) and node.value == name
        if is_name and node not in returned and node not in targets:
            return True
    return False


def time_limits(
    step: cst.FunctionDef, methods: Mapping[str, cst.FunctionDef]
) -> Iterator[cst.Comparison]:
    """Yield the comparisons in `step` that may end an episode because its time is up, and those in
    methods that it calls to find out whether an episode has ended.
    """
    functions = [step]
    for node in own_nodes(step):
        method = _own_method(node, methods)
        if method is not None and _END.search(method.name.value) and method not in functions:
            functions.append(method)
    for function in functions:
        for node in own_nodes(function):
            if isinstance(node, cst.Comparison) and _is_limit(node):
                yield node


def _is_limit(node: cst.Comparison) -> bool:
    """Return whether a comparison says that a counter has reached a number."""
    operator = node.comparisons[0].operator
    is_order = isinstance(operator, cst.GreaterThan | cst.GreaterThanEqual | cst.Equal)
    return is_order and bool(_LIMIT.search(code(node.left)))


# --- reset ----------------------------------------------------------------------------------------


def port_reset(
    function: cst.FunctionDef, *, parent_reset: ParentReset, env_class: str, has_seed: bool
) -> cst.FunctionDef:
    """Return a `reset` that takes a seed and returns an info; the function itself if it has no need
    to change.

    Args:
        function: The method.
        parent_reset: What `reset` of the base class does.
        env_class: The file's name for `gymnasium.Env`; `""` if it has none.
        has_seed: Whether the class has a method `seed` of its own.

    Raises:
        Uncertain: It is not certain what the method returns.
    """
    returns = _returns_of(function)
    inner = _inner_resets(function)
    if _is_new_reset(function, returns, inner):
        return function
    _check_parameters(function)
    for node in returns:
        if len(_elements(node.value)) == 2:
            raise Uncertain(node, _RESET_ELSEWHERE)
    seed_lines = []
    if has_seed and _calls_seed(inner, parent_reset):
        seed_lines.append(_statement("if seed is not None:\n    self.seed(seed)"))
    if inner:
        if inner[0].is_of_wrapped_env and parent_reset is ParentReset.ONLY_SEEDS:
            seed_lines.insert(0, _statement("super().reset(seed=seed)"))
        new_function = _port_reset_of_wrapper(function, returns, inner, parent_reset)
        return _with_first_lines(new_function, seed_lines)
    if not returns:
        if _only_raises(function):
            return function
        raise Uncertain(function, _RESET_ELSEWHERE, "def reset")
    seeding = _call_that_seeds(function, parent_reset, env_class)
    new_nodes: dict[cst.CSTNode, Any] = {}
    for node in returns:
        assert node.value is not None
        new_nodes[node] = node.with_changes(value=_pair(node.value, cst.Dict([])))
    lines = [seeding, *seed_lines]
    return _with_first_lines(_with_parameters(_replaced(function, new_nodes)), lines)


def _call_that_seeds(
    function: cst.FunctionDef, parent_reset: ParentReset, env_class: str
) -> cst.BaseStatement:
    """Return the call of `gymnasium.Env.reset` in a method that calls no other `reset`."""
    if parent_reset is ParentReset.ONLY_SEEDS:
        return _statement("super().reset(seed=seed)")
    if parent_reset is ParentReset.INNER:
        raise Uncertain(function, _INNER_RESET, "def reset")
    if not env_class:
        raise Uncertain(function, _NO_ENV_NAME, "def reset")
    # `super()` would also run the `reset` that this one replaces.
    return _statement(f"{env_class}.reset(self, seed=seed)")


def _statement(text: str) -> cst.BaseStatement:
    statement = cst.parse_statement(f"{text}\n")
    assert isinstance(statement, cst.BaseStatement)
    return statement


def _calls_seed(inner: Sequence[_InnerReset], parent_reset: ParentReset) -> bool:
    """Return whether a `reset` must call the class's own `seed`: no other environment's does."""
    if not inner:
        return True
    return parent_reset is ParentReset.ONLY_SEEDS and not inner[0].is_of_wrapped_env


def _is_new_reset(
    function: cst.FunctionDef, returns: Sequence[cst.Return], inner: Sequence[_InnerReset]
) -> bool:
    """Return whether a `reset` already has Gymnasium's interface.

    Raises:
        Uncertain: It has parameters of a newer interface, but may return what an older one does.
    """
    params = function.params
    names = [param.name.value for param in (*params.params, *params.kwonly_params)]
    if "return_info" in names:
        raise Uncertain(function, _RETURN_INFO, "def reset")
    passes_on = [node for node in returns if _is_inner_call(node.value, "reset")]
    if "seed" in names:
        for node in returns:
            if len(_elements(node.value)) != 2 and node not in passes_on:
                raise Uncertain(node, _RESET_ELSEWHERE)
        return True
    # `def reset(self, **kwargs): return self.env.reset(**kwargs)` passes everything on.
    has_kwargs = params.star_kwarg is not None
    return has_kwargs and bool(returns) and len(passes_on) == len(returns) == len(inner)


def _check_parameters(function: cst.FunctionDef) -> None:
    """Raise an error if a `reset` has parameters that Gymnasium's callers do not pass, or uses the
    names of the new ones.
    """
    for param in function.params.params[1:]:
        if param.default is None:
            raise Uncertain(function, _RESET_PARAMETERS, "def reset")
    taken = {"seed", "options"} & _bound_variables(function)
    if taken:
        raise Uncertain(function, _TAKEN.format(" and ".join(sorted(taken))), "def reset")


def _bound_variables(function: cst.FunctionDef) -> set[str]:
    """Return the names that a function assigns to, and its parameters."""
    names = {param.name.value for param in function.params.params}
    for node in own_nodes(function.body):
        if isinstance(node, cst.AssignTarget):
            names.add(dotted(node.target))
            names.update(dotted(element.value) for element in _elements(node.target))
    return names


def _only_raises(function: cst.FunctionDef) -> bool:
    """Return whether a method is abstract: it raises an error, and assigns nothing."""
    nodes = list(own_nodes(function.body))
    has_raise = any(isinstance(node, cst.Raise) for node in nodes)
    return has_raise and not any(isinstance(node, cst.Assign) for node in nodes)


class _InnerReset(NamedTuple):
    """Call of the wrapped environment's or the base class's `reset`.

    Attributes:
        call: The call.
        statement: The assignment, return or expression that the call is in; None if it is in
            another statement.
        line: The line that consists of this statement; None if it has several.
        is_first_level: Whether the statement is run in every reset: no `if` or loop is around it.
    """

    call: cst.Call
    statement: cst.Assign | cst.Return | cst.Expr | None
    line: cst.SimpleStatementLine | None
    is_first_level: bool

    @property
    def is_alone(self) -> bool:
        """Whether the statement has no other expression than the call."""
        return self.statement is not None and self.statement.value is self.call

    @property
    def is_of_wrapped_env(self) -> bool:
        """Whether the call is one of an environment that the class keeps as an attribute."""
        return dotted(self.call.func).startswith("self.")


def _inner_resets(function: cst.FunctionDef) -> list[_InnerReset]:
    """Return the calls of the wrapped environment's or the base class's `reset`, in their order."""
    inner = []
    first_level = set(function.body.body)
    for line in own_nodes(function):
        if not isinstance(line, cst.SimpleStatementLine | cst.SimpleStatementSuite):
            continue
        for statement in line.body:
            for node in own_nodes(statement):
                if not isinstance(node, cst.Call) or not _is_inner_call(node, "reset"):
                    continue
                reset = _InnerReset(node, statement=None, line=None, is_first_level=False)
                if isinstance(statement, cst.Assign | cst.Return | cst.Expr):
                    reset = reset._replace(statement=statement)
                if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
                    reset = reset._replace(line=line)
                inner.append(reset._replace(is_first_level=line in first_level))
    return inner


def _port_reset_of_wrapper(
    function: cst.FunctionDef,
    returns: Sequence[cst.Return],
    inner: Sequence[_InnerReset],
    parent_reset: ParentReset,
) -> cst.FunctionDef:
    """Return a `reset` that passes the seed on, and returns the wrapped environment's info.

    Args:
        function: The method.
        returns: Its return statements.
        inner: The calls of the wrapped environment's or the base class's `reset`.
        parent_reset: What the latter does.
    """
    first = inner[0]
    if not first.is_first_level:
        raise Uncertain(first.call, _INNER_RESET)
    names = _bound_names(function)
    info = "reset_info" if "info" in names else "info"
    passes_kwargs = any(arg.star == "**" for arg in first.call.args)
    # `gymnasium.Env.reset` returns nothing.
    has_info = first.is_of_wrapped_env or parent_reset is not ParentReset.ONLY_SEEDS
    new_nodes: dict[cst.CSTNode, Any] = {}
    for node in returns:
        if not _is_inner_call(node.value, "reset"):
            assert node.value is not None
            returned_info = cst.Name(info) if has_info else cst.Dict([])
            new_nodes[node] = node.with_changes(value=_pair(node.value, returned_info))
    for reset in inner:
        call = reset.call
        if reset is first and not passes_kwargs:
            call = _with_seed(call)
        if has_info:
            _unpack_inner_reset(reset, call, info, new_nodes, "obs" not in names)
        elif isinstance(reset.statement, cst.Expr):
            new_nodes[reset.call] = call
        else:
            raise Uncertain(reset.call, _INNER_RESET)
    unpacks = _unpacks_of_step(function)
    if unpacks:
        new_nodes.update(_five_values(function, unpacks))
    new_function = _replaced(function, new_nodes)
    if passes_kwargs:
        return new_function
    return _with_parameters(new_function)


def _unpack_inner_reset(
    reset: _InnerReset,
    call: cst.Call,
    info: str,
    new_nodes: dict[cst.CSTNode, Any],
    may_bind_obs: bool,
) -> None:
    """Enter what becomes of a call that now returns an observation and an info.

    Args:
        reset: The call, as it was.
        call: The call with its new arguments.
        info: The name for the info.
        new_nodes: Node → what it becomes.
        may_bind_obs: Whether the name `obs` is free.
    """
    statement = reset.statement
    if reset.is_alone and isinstance(statement, cst.Return):
        new_nodes[reset.call] = call
    elif reset.is_alone and isinstance(statement, cst.Assign):
        new_nodes[statement] = _unpacked(statement, call, info)
    elif reset.is_alone and isinstance(statement, cst.Expr):
        new_line = _statement(f"_, {info} = {code(call)}")
        new_nodes[statement] = cst.ensure_type(new_line, cst.SimpleStatementLine).body[0]
    elif reset.line is not None and reset.is_first_level and may_bind_obs:
        new_nodes[reset.line] = _call_on_its_own_line(reset, call, info, new_nodes)
    else:
        raise Uncertain(reset.call, _INNER_RESET)


def _call_on_its_own_line(
    reset: _InnerReset, call: cst.Call, info: str, new_nodes: Mapping[cst.CSTNode, Any]
) -> Any:
    """Return `obs, info = self.env.reset()` and `return self.scale(obs), info` instead of
    `return self.scale(self.env.reset())`.
    """
    assert reset.line is not None
    assert reset.statement is not None
    statement = new_nodes.get(reset.statement, reset.statement)
    new_statement = statement.visit(_Replace({reset.call: cst.Name("obs")}))
    first_line = _statement(f"obs, {info} = {code(call)}")
    first_line = first_line.with_changes(leading_lines=reset.line.leading_lines)
    second_line = reset.line.with_changes(body=[new_statement], leading_lines=[])
    return cst.FlattenSentinel([first_line, second_line])


def _unpacked(assign: cst.Assign, call: cst.BaseExpression, info: str) -> cst.Assign:
    """Return `obs, info = call` instead of `obs = call`."""
    target = assign.targets[0]
    pair = _pair(target.target, cst.Name(info))
    return assign.with_changes(targets=[target.with_changes(target=pair)], value=call)


def unpack_reset(assign: cst.Assign) -> cst.Assign:
    """Return `obs, _ = self.reset()` instead of `obs = self.reset()`."""
    if _elements(assign.targets[0].target):
        return assign
    return _unpacked(assign, assign.value, "_")


def _with_seed(call: cst.Call) -> cst.Call:
    """Return a call of `reset` that passes the seed and the options on."""
    arguments = cst.ensure_type(
        cst.parse_expression("reset(seed=seed, options=options)"), cst.Call
    ).args
    return call.with_changes(args=[*call.args, *arguments])


def _with_parameters(function: cst.FunctionDef) -> cst.FunctionDef:
    """Return a `reset` with the parameters `seed` and `options`."""
    header = cst.parse_statement("def reset(*, seed=None, options=None): pass")
    new_params = cst.ensure_type(header, cst.FunctionDef).params
    params = function.params
    star_arg = params.star_arg
    if not isinstance(star_arg, cst.Param):  # the `*`, unless it is `*args`
        star_arg = new_params.star_arg
    kwonly_params = [*params.kwonly_params, *new_params.kwonly_params]
    return function.with_changes(
        params=params.with_changes(star_arg=star_arg, kwonly_params=kwonly_params)
    )


def _with_first_lines(
    function: cst.FunctionDef, lines: Sequence[cst.BaseStatement]
) -> cst.FunctionDef:
    """Return a function that begins with these lines, after its docstring."""
    if not isinstance(function.body, cst.IndentedBlock):
        raise Uncertain(function, _RESET_ELSEWHERE, "def reset")
    insert_at = 0 if function.get_docstring() is None else 1
    body = [*function.body.body[:insert_at], *lines, *function.body.body[insert_at:]]
    return function.with_changes(body=function.body.with_changes(body=body))
