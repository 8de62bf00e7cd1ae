"""Checks for frameworks: their operations, compared with NumPy, and the backend with a small
policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from rlcatalog.errors import CatalogError, MissingPluginError, NoMatchError, NotServedError
from rlcatalog.frameworks import Array, TensorOps, frameworks, tensor_ops
from rlcatalog_policy import Policy, build
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.examples import TWO, VECTOR
from rlcatalog_testing.passes import alike, array_of

#: Values of all signs `[3, 4]`.
X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
WHOLE_NUMBERS = np.arange(6).reshape(3, 2)
COLUMNS_OF_ROWS = np.array([[0, 3], [1, 1], [2, 0]])
LENGTHS = np.array([0, 2, 4])
#: Which of four places lists of these lengths fill.
TAKEN = np.arange(4) < LENGTHS[:, None]
LOWEST = np.finfo(np.float32).min
#: A cut behind the first of four columns, in the same order.
AFTER_FIRST_COLUMN = SimpleNamespace(widths=(1, 3), order=None)


class Untouched(NamedTuple):
    """An argument that the operation gets as a NumPy array."""

    array: Array


@dataclass(frozen=True)
class Call:
    """A call of an operation, and its result in NumPy.

    Attributes:
        operation: The operation's name.
        arguments: Its arguments. Arrays, also those in lists, become tensors.
        expected: The result in NumPy.
        options: Keyword arguments.
        piece: Index of the tensor that is compared, if the result is a sequence of tensors.
    """

    operation: str
    arguments: tuple[Any, ...]
    expected: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    piece: int | None = None

    def run(self, ops: TensorOps) -> Any:
        """Return the operation's result as a framework computes it.

        Raises:
            NotServedError: The framework omits the operation.
        """
        arguments = [_argument_for(argument, ops) for argument in self.arguments]
        # One of TensorOps' methods, all of which exist.
        operation = getattr(ops, self.operation)
        result = operation(*arguments, **self.options)
        if self.piece is None:
            return result
        return result[self.piece]


def _argument_for(argument: Any, ops: TensorOps) -> Any:
    """Return an argument with tensors in place of arrays."""
    if isinstance(argument, Untouched):
        return argument.array
    if isinstance(argument, list):
        return [_argument_for(item, ops) for item in argument]
    if not isinstance(argument, np.ndarray):
        return argument
    try:
        return ops.tensor(argument)
    except NotServedError:
        return argument  # a framework without this operation computes with arrays


CALLS = (
    Call("reshape", (X, (2, 2)), X.reshape(3, 2, 2)),
    Call("reshape", (X, (4,)), X),
    Call("integers", (X * 4,), (X * 4).astype(np.int64)),
    Call("side_by_side", ([X, WHOLE_NUMBERS],), np.hstack([X, WHOLE_NUMBERS], dtype=np.float32)),
    Call("fill_forbidden", (X, X > 0), np.where(X > 0, X, LOWEST)),
    Call("booleans", (Untouched(np.array([[1, 0]], np.int8)), X), np.array([[True, False]])),
    Call("whole", (np.array([1.9999, -3.0001], np.float32),), np.array([2, -3])),
    Call("finite", (np.array([1, np.inf], np.float32),), np.array([1, -LOWEST], np.float32)),
    Call("rows", (X, (2,)), X.reshape(-1, 2)),
    Call("in_rows", (Untouched(X.reshape(-1)), X, 4), X),
    Call("columns", ([X[:, 0], X],), np.hstack([X[:, :1], X])),
    Call("cut", (X, AFTER_FIRST_COLUMN), X[:, :1], piece=0),
    Call("cut", (X, AFTER_FIRST_COLUMN), X[:, 1:], piece=1),
    Call("entries_at", (X, COLUMNS_OF_ROWS), np.take_along_axis(X, COLUMNS_OF_ROWS, axis=1)),
    Call("each_row", (X, 2), np.repeat(X, 2, axis=0)),
    Call("all_rows", (X, X[:2]), np.tile(X, (2, 1))),
    Call("padded", (X, 6), np.pad(X, ((0, 0), (0, 2)))),
    Call("taken", (LENGTHS, 4), TAKEN),
    Call("only", (TAKEN, np.where(TAKEN, X, np.float32(np.nan))), np.where(TAKEN, X, 0)),
    Call("any", (TAKEN,), TAKEN.any(1)),
    Call("all", (TAKEN,), np.array(False)),
    Call("all_finite", ([X, WHOLE_NUMBERS],), np.array(True)),
    Call("all_finite", ([np.array([LOWEST, LOWEST])],), np.array(True)),
    Call("all_finite", ([X, np.array([1, np.inf], np.float32)],), np.array(False)),
    Call("where", (X > 0, X, -X), np.abs(X)),
    Call("copy", (X,), X),
    Call("expand", (X[0], 2), np.stack([X[0], X[0]])),
    Call("constant", (Untouched(X[0]), X), X[0]),
    Call("total", ([X, X],), 2 * X),
    Call("sum", (X,), X.sum(1), {"axis": 1}),
    Call("mean", (X,), X.mean()),
    Call("mean", (X,), X.mean(1, keepdims=True), {"axis": 1, "keepdims": True}),
    Call("std", (X,), X.std(ddof=1)),
    Call("exp", (X,), np.exp(X)),
    Call("minimum", (X, -X), -np.abs(X)),
    Call("clip", (X, -0.5, 0.25), X.clip(-0.5, 0.25)),
    Call("scaled", (X, X[0], X[1], -0.5, 0.25), ((X - X[0]) * X[1]).clip(-0.5, 0.25)),
    Call("scaled", (X, X[0], X[1], None, None), (X - X[0]) * X[1]),
    Call("without_gradient", (X,), X),
)
#: Operations that every framework has.
REQUIRED = ("reshape", "integers", "side_by_side", "fill_forbidden")


def _prepared_framework(subject: Subject) -> str:
    """Return the framework's name, ready for use.

    Raises:
        NotApplicable: The framework is not installed.
    """
    name = subject.part.name
    framework = frameworks()[name]
    if not framework.is_installed:
        raise NotApplicable(f"{framework.module} is not installed here")
    # Other packages may have imported RLlib, which turns TensorFlow's eager execution off.
    framework.prepare()
    return name


@check(
    "framework",
    hint="compare each operation with its description in rlcatalog.frameworks.TensorOps",
)
def operations_are_those_of_numpy(subject: Subject) -> None:
    """The four required operations exist, and all operations work as documented."""
    name = _prepared_framework(subject)
    ops = tensor_ops(name)
    require(ops.framework == name, f"its table is named {ops.framework!r}, expected {name!r}")
    for call in CALLS:
        try:
            result = call.run(ops)
        except NotServedError:
            require(
                call.operation not in REQUIRED,
                f"{call.operation} is missing, but every framework must have it",
            )
            continue
        array = ops.array(result)
        if array is None:
            array = result
        alike(np.asarray(array), np.asarray(call.expected), f"{call.operation}()", 1e-5)


def _policies(subject: Subject) -> Iterator[tuple[Policy, Array]]:
    """Yield a small policy, and observations."""
    name = _prepared_framework(subject)
    try:
        policy = build(VECTOR, TWO, config={}, framework=name, catalog=subject.catalog)
    except (NoMatchError, NotServedError, MissingPluginError) as error:
        raise NotApplicable(f"no installed model has code for it: {error}") from error
    observations = np.random.default_rng(0).uniform(-1, 1, (5, 4))
    yield policy, observations.astype(np.float32)


#: Checks for backends, with a small policy and observations.
check_backends = partial(check, "framework", each=_policies)


@check_backends(
    hint="return raw actions [B, width], logp [B], values [B] or None, inputs and the new memory,"
    " as NumPy"
)
def the_backend_acts(policy: Policy, observations: Array) -> None:
    """A policy acts on a batch, on one observation and on none; without exploration, the results
    repeat.
    """
    for count in (5, 1, 0):
        obs = observations[:count]
        step = policy.act(obs)
        _check_array(step.raw_action, "raw actions", (count, 1))
        _check_array(step.logp, "log densities", (count,))
        if policy.has_value or step.value is not None:
            _check_array(step.value, "values", (count,))
        _check_array(step.dist_inputs, "parameters", (count, 2))
        are_inside = all(action in (0, 1) for action in step.action)
        require(are_inside, f"it returned {step.action}, outside {TWO}")
        greedy = policy.act(obs, explore=False).raw_action
        greedy_again = policy.act(obs, explore=False).raw_action
        alike(greedy_again, greedy, "acting without exploring, a second time")
        if policy.has_value and step.value is not None:
            alike(policy.values(obs), step.value, "values()", 1e-5)


def _check_array(array: Array | None, what: str, shape: tuple[int, ...]) -> None:
    """Raise an error unless a backend returned a NumPy array with a shape."""
    is_array = isinstance(array, np.ndarray)
    require(is_array, f"{what} are {type(array).__name__}, expected NumPy arrays")
    assert array is not None  # `require` has raised the error
    require(array.shape == shape, f"{what} have shape {array.shape}, expected {shape}")


@check_backends(
    hint="return the same scores as acting, or raise NotServedError; reject bad input with a"
    " CatalogError"
)
def the_backend_evaluates(policy: Policy, obs: Array) -> None:
    """Stored actions get the same log density as when they were sampled, or evaluation raises a
    typed error.
    """
    step = policy.act(obs)
    batch = {"obs": obs, "raw_action": step.raw_action}
    try:
        evaluation = policy.evaluate(batch)
    except NotServedError:
        return
    alike(array_of(evaluation.logp), step.logp, "evaluate()'s logp, compared with acting's")
    assert evaluation.entropy is not None
    entropy = array_of(evaluation.entropy)
    require(entropy.shape == (5,), f"evaluate()'s entropy has shape {entropy.shape}")
    if step.value is not None:
        assert evaluation.value is not None
        alike(array_of(evaluation.value), step.value, "evaluate()'s value, compared with acting's")
    without_entropy = policy.evaluate(batch, entropy=False)
    alike(
        array_of(without_entropy.logp),
        step.logp,
        "the logp of evaluate(entropy=False), compared with acting's",
    )
    for name, raw_actions in (
        ("actions with a different width", np.zeros((5, 7), np.int64)),
        ("fewer actions than observations", step.raw_action[:2]),
        ("actions outside the space", step.raw_action + 9),
    ):
        try:
            policy.evaluate({"obs": obs, "raw_action": raw_actions})
        except CatalogError:
            continue
        raise AssertionError(f"evaluate() accepted {name}")
