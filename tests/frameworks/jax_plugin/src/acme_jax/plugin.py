"""Declarations: the framework, and code in it for parts of other packages."""

from __future__ import annotations

from rlcatalog import ActionDistSpec, FrameworkSpec, ModelSpec, hookimpl


@hookimpl
def rlcatalog_frameworks() -> list[FrameworkSpec]:
    targets = {
        "backend": "acme_jax.backend:Backend",
        "ops": "acme_jax.ops:OPS",
        "bookkeeping": "acme_jax.models:Bookkeeping",
        "learner": "acme_jax.learner:Learner",
        "kit": "acme_jax.kit:Kit",
    }
    return [
        FrameworkSpec("jax", targets, "JAX", module="jax", packages=("jaxlib",)),
        FrameworkSpec(
            "jax",
            {"freeze": "acme_jax.frozen:freeze"},
            "frozen policies",
            extends="acme-jax/jax",
        ),
    ]


@hookimpl
def rlcatalog_models() -> list[ModelSpec]:
    return [
        ModelSpec(
            "fcnet",
            {"jax": "acme_jax.models:FullyConnected"},
            "the fully connected network in JAX",
            extends="rlcatalog-fcnet/fcnet",
        )
    ]


@hookimpl
def rlcatalog_action_dists() -> list[ActionDistSpec]:
    return [
        ActionDistSpec(
            "categorical",
            {"jax": "acme_jax.distributions:Categorical"},
            "the categorical distribution in JAX",
            extends="rlcatalog-categorical/categorical",
        )
    ]
