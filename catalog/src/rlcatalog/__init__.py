"""rlcatalog: a plugin-oriented model catalog for reinforcement learning.

One lookup turns an observation space, an action space, a model config and a framework into parts that fit together:
preprocessor, filter, model and action distribution. Every name below is imported at its first use, so that
`import rlcatalog` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rlcatalog._version import __version__

_LAZY = {
    "ActionDistSpec": "declarations",
    "ActionDistribution": "distribution",
    "Catalog": "catalog",
    "CommandSpec": "declarations",
    "EnvWrapperSpec": "declarations",
    "Filter": "filtering",
    "FilterSpec": "declarations",
    "Match": "declarations",
    "ModelCatalog": "model_catalog",
    "ModelSpec": "declarations",
    "ModelV2": "model",
    "NoMatch": "declarations",
    "Policy": "policy",
    "Preprocessor": "preprocessing",
    "PreprocessorSpec": "declarations",
    "Rank": "declarations",
    "Request": "request",
    "SpaceInfo": "spaceinfo",
    "Stage": "declarations",
    "Step": "policy",
    "TupleActions": "structures",
    "ViewRequirement": "views",
    "build": "lookups",
    "default_catalog": "catalog",
    "explain": "lookups",
    "hookimpl": "hookspecs",
    "load": "lookups",
    "one_hot": "structures",
    "restore_original_dimensions": "restoring",
    "wrap_env": "lookups",
}

__all__ = [
    "MODEL_DEFAULTS",
    "ActionDistSpec",
    "ActionDistribution",
    "Catalog",
    "CommandSpec",
    "EnvWrapperSpec",
    "Filter",
    "FilterSpec",
    "Match",
    "ModelCatalog",
    "ModelSpec",
    "ModelV2",
    "NoMatch",
    "Policy",
    "Preprocessor",
    "PreprocessorSpec",
    "Rank",
    "Request",
    "SpaceInfo",
    "Stage",
    "Step",
    "TupleActions",
    "ViewRequirement",
    "__version__",
    "build",
    "default_catalog",
    "explain",
    "hookimpl",
    "load",
    "one_hot",
    "restore_original_dimensions",
    "wrap_env",
]

if TYPE_CHECKING:
    from rlcatalog.catalog import Catalog, default_catalog
    from rlcatalog.declarations import (
        ActionDistSpec,
        CommandSpec,
        EnvWrapperSpec,
        FilterSpec,
        Match,
        ModelSpec,
        NoMatch,
        PreprocessorSpec,
        Rank,
        Stage,
    )
    from rlcatalog.distribution import ActionDistribution
    from rlcatalog.filtering import Filter
    from rlcatalog.hookspecs import hookimpl
    from rlcatalog.lookups import build, explain, load, wrap_env
    from rlcatalog.model import ModelV2
    from rlcatalog.model_catalog import ModelCatalog
    from rlcatalog.policy import Policy, Step
    from rlcatalog.preprocessing import Preprocessor
    from rlcatalog.request import Request
    from rlcatalog.restoring import restore_original_dimensions
    from rlcatalog.spaceinfo import SpaceInfo
    from rlcatalog.structures import TupleActions, one_hot
    from rlcatalog.views import ViewRequirement

    MODEL_DEFAULTS: dict[str, Any]


def __getattr__(name: str) -> Any:
    if name == "MODEL_DEFAULTS":  # fresh at each access: a caller may fill it in and hand it back
        return importlib.import_module("rlcatalog.catalog").default_catalog().schema.defaults()
    if name not in _LAZY:
        raise AttributeError(f"module 'rlcatalog' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"rlcatalog.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
