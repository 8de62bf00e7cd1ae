"""Checks for frameworks: their operations, compared with NumPy, and the backend with a small
policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from rlcatalog.errors import CatalogError, MissingPluginError, NoMatchError, NotServedError
from rlcatalog.frameworks import TensorOps, frameworks, tensor_ops
from rlcatalog_policy import Policy, build
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.examples import TWO, VECTOR
from rlcatalog_testing.passes import Array, alike, array_of

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
WHOLE = np.arange(6).reshape(3, 2)
TAKEN = np.arange(4) < np.array([0, 2, 4])[:, None]
LOWEST = np.finfo(np.float32).min

CUT = SimpleNamespace(widths=(1, 3), order=None)

#: Operation, its result for tensors from `t(array)`, and the same in NumPy.
OPERATIONS: tuple[tuple[str, Callable[[TensorOps, Callable[[Any], Any]], Any], Any], ...] = (
    ("reshape", lambda ops, t: ops.reshape(t(X), (2, 2)), X.reshape(3, 2, 2)),
    ("reshape", lambda ops, t: ops.reshape(t(X), (4,)), X),
    ("integers", lambda ops, t: ops.integers(t(X * 4)), (X * 4).astype(np.int64)),
    (
        "side_by_side",
        lambda ops, t: ops.side_by_side([t(X), t(WHOLE)]),
        np.hstack([X, WHOLE], dtype=np.float32),
    ),
    (
        "fill_forbidden",
        lambda ops, t: ops.fill_forbidden(t(X), t(X > 0)),
        np.where(X > 0, X, LOWEST),
    ),
    (
        "booleans",
        lambda ops, t: ops.booleans(np.array([[1, 0]], np.int8), t(X)),
        np.array([[True, False]]),
    ),
    (
        "whole",
        lambda ops, t: ops.whole(t(np.array([1.9999, -3.0001], np.float32))),
        np.array([2, -3]),
    ),
    (
        "finite",
        lambda ops, t: ops.finite(t(np.array([1, np.inf], np.float32))),
        np.array([1, -LOWEST], np.float32),
    ),
    ("rows", lambda ops, t: ops.rows(t(X), (2,)), X.reshape(-1, 2)),
    ("in_rows", lambda ops, t: ops.in_rows(X.reshape(-1), t(X), 4), X),
    ("columns", lambda ops, t: ops.columns([t(X[:, 0]), t(X)]), np.hstack([X[:, :1], X])),
    ("cut", lambda ops, t: ops.cut(t(X), CUT)[0], X[:, :1]),
    ("cut", lambda ops, t: ops.cut(t(X), CUT)[1], X[:, 1:]),
    ("each_row", lambda ops, t: ops.each_row(t(X), 2), np.repeat(X, 2, axis=0)),
    ("all_rows", lambda ops, t: ops.all_rows(t(X), t(X[:2])), np.tile(X, (2, 1))),
    ("padded", lambda ops, t: ops.padded(t(X), 6), np.pad(X, ((0, 0), (0, 2)))),
    ("taken", lambda ops, t: ops.taken(t(np.array([0, 2, 4])), 4), TAKEN),
    (
        "only",
        lambda ops, t: ops.only(t(TAKEN), t(np.where(TAKEN, X, np.float32(np.nan)))),
        np.where(TAKEN, X, 0),
    ),
    ("total", lambda ops, t: ops.total([t(X), t(X)]), 2 * X),
    ("sum", lambda ops, t: ops.sum(t(X), axis=1), X.sum(1)),
    ("mean", lambda ops, t: ops.mean(t(X)), X.mean()),
    ("mean", lambda ops, t: ops.mean(t(X), axis=1, keepdims=True), X.mean(1, keepdims=True)),
    ("std", lambda ops, t: ops.std(t(X)), X.std(ddof=1)),
    ("exp", lambda ops, t: ops.exp(t(X)), np.exp(X)),
    ("minimum", lambda ops, t: ops.minimum(t(X), t(-X)), -np.abs(X)),
    ("clip", lambda ops, t: ops.clip(t(X), -0.5, 0.25), X.clip(-0.5, 0.25)),
    ("without_gradient", lambda ops, t: ops.without_gradient(t(X)), X),
)
#: Targets that every framework has.
REQUIRED = ("reshape", "integers", "side_by_side", "fill_forbidden")


def _name(subject: Subject) -> str:
    name = subject.part.name
    if not frameworks()[name].is_installed:
        raise NotApplicable(f"{frameworks()[name].module} is not installed here")
    # Other packages may have imported RLlib, which turns TensorFlow's eager execution off.
    frameworks()[name].prepare()
    return name


@check(
    "framework",
    hint="compare each operation with its description in rlcatalog.frameworks.TensorOps",
)
def operations_are_those_of_numpy(subject: Subject) -> None:
    """The four required operations exist, and all operations work as documented."""
    name = _name(subject)
    ops = tensor_ops(name)
    require(ops.framework == name, f"its table is named {ops.framework!r}, expected {name!r}")

    def tensor(value: Any) -> Any:
        with suppress(NotServedError):
            return ops.tensor(value)
        return value

    for operation, ask, expected in OPERATIONS:
        try:
            found = ask(ops, tensor)
        except NotServedError:
            require(
                operation not in REQUIRED,
                f"{operation} is missing, but every framework must have it",
            )
            continue
        array = ops.array(found)
        alike(
            np.asarray(found if array is None else array),
            np.asarray(expected),
            f"{operation}()",
            1e-5,
        )


def _policies(subject: Subject) -> Iterator[tuple[Policy, Array]]:
    """Yield a small policy, and observations."""
    name = _name(subject)
    try:
        policy = build(VECTOR, TWO, {}, name, catalog=subject.catalog)
    except (NoMatchError, NotServedError, MissingPluginError) as error:
        raise NotApplicable(f"no installed model has code for it: {error}") from error
    yield policy, np.random.default_rng(0).uniform(-1, 1, (5, 4)).astype(np.float32)


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
        for what, found, expected in (
            ("raw actions", step.raw_action, (count, 1)),
            ("log densities", step.logp, (count,)),
            ("values", step.value, (count,)),
            ("parameters", step.dist_inputs, (count, 2)),
        ):
            if found is not None:
                require(
                    isinstance(found, np.ndarray),
                    f"{what} are {type(found).__name__}, expected NumPy arrays",
                )
                require(
                    found.shape == expected, f"{what} have shape {found.shape}, expected {expected}"
                )
        require(
            all(action in (0, 1) for action in step.action),
            f"it returned {step.action}, outside {TWO}",
        )
        again = [policy.act(obs, explore=False) for _ in range(2)]
        alike(again[1].raw_action, again[0].raw_action, "acting without exploring, a second time")
        if policy.has_value and step.value is not None:
            alike(policy.values(obs), step.value, "values()", 1e-5)


@check_backends(
    hint="return the same scores as acting, or raise NotServedError; reject bad input with a"
    " CatalogError"
)
def the_backend_evaluates(policy: Policy, obs: Array) -> None:
    """Stored actions get the same log density as when they were sampled, or evaluation raises a
    typed error.
    """
    step = policy.act(obs)
    try:
        found = policy.evaluate({"obs": obs, "raw_action": step.raw_action})
    except NotServedError:
        return
    alike(array_of(found.logp), step.logp, "evaluate()'s logp, compared with acting's")
    require(
        array_of(found.entropy).shape == (5,),
        f"evaluate()'s entropy has shape {array_of(found.entropy).shape}",
    )
    if step.value is not None:
        alike(array_of(found.value), step.value, "evaluate()'s value, compared with acting's")
    unasked = policy.evaluate({"obs": obs, "raw_action": step.raw_action}, entropy=False)
    alike(
        array_of(unasked.logp),
        step.logp,
        "the logp of evaluate(entropy=False), compared with acting's",
    )
    for name, wrong in (
        ("actions with a different width", {"obs": obs, "raw_action": np.zeros((5, 7), np.int64)}),
        ("fewer actions than observations", {"obs": obs, "raw_action": step.raw_action[:2]}),
        ("actions outside the space", {"obs": obs, "raw_action": step.raw_action + 9}),
    ):
        with suppress(CatalogError):
            policy.evaluate(wrong)
            require(False, f"evaluate() accepted {name}")
