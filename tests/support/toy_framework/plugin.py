"""Declarations: the framework, and code in it for parts of other packages."""

from __future__ import annotations

from rlcatalog import ActionDistSpec, FrameworkSpec, ModelSpec, hookimpl


@hookimpl
def rlcatalog_frameworks() -> list[FrameworkSpec]:
    return [
        FrameworkSpec(
            name="toy",
            targets={
                "backend": "toy_framework.backend:Backend",
                "ops": "toy_framework.arrays:OPS",
                "bookkeeping": "toy_framework.models:Bookkeeping",
                "learner": "toy_framework.learner:Learner",
                "kit": "toy_framework.kit:Kit",
            },
            summary="NumPy",
            module="numpy",
            aliases=("np",),
        )
    ]


@hookimpl
def rlcatalog_models() -> list[ModelSpec]:
    return [
        ModelSpec(
            name="fcnet",
            targets={"toy": "toy_framework.models:FullyConnected"},
            summary="the fully connected network in NumPy",
            extends="rlcatalog-fcnet/fcnet",
        )
    ]


@hookimpl
def rlcatalog_action_dists() -> list[ActionDistSpec]:
    return [
        ActionDistSpec(
            name="categorical",
            targets={"toy": "toy_framework.distributions:Categorical"},
            summary="the categorical distribution in NumPy",
            extends="rlcatalog-categorical/categorical",
        )
    ]
