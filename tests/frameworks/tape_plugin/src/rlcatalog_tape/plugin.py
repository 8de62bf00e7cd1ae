"""Declarations: the framework, and code in it for parts of other packages."""

from __future__ import annotations

from rlcatalog import ActionDistSpec, FrameworkSpec, ModelSpec, hookimpl


@hookimpl
def rlcatalog_frameworks() -> list[FrameworkSpec]:
    return [
        FrameworkSpec(
            name="tape",
            targets={
                "backend": "rlcatalog_tape.backend:Backend",
                "ops": "rlcatalog_tape.ops:OPS",
                "bookkeeping": "rlcatalog_tape.models:Bookkeeping",
                "learner": "rlcatalog_tape.learner:Learner",
                "kit": "rlcatalog_tape.kit:Kit",
            },
            summary="NumPy arrays with gradients from a tape",
            module="tape",
        )
    ]


@hookimpl
def rlcatalog_models() -> list[ModelSpec]:
    return [
        ModelSpec(
            name="fcnet",
            targets={"tape": "rlcatalog_tape.fcnet:FullyConnected"},
            summary="the fully connected network",
            extends="rlcatalog-fcnet/fcnet",
        )
    ]


@hookimpl
def rlcatalog_action_dists() -> list[ActionDistSpec]:
    return [
        ActionDistSpec(
            name="categorical",
            targets={"tape": "rlcatalog_tape.categorical:Categorical"},
            summary="the categorical distribution",
            extends="rlcatalog-categorical/categorical",
        )
    ]
