"""Parts of the running program: classes that it registers under a name or puts
into a config.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rlcatalog.errors import ModelContractError, shown
from rlcatalog.frameworks import frameworks
from rlcatalog.frameworks.table import framework_of
from rlcatalog.models.plain import code_of, frameworks_of_plain
from rlcatalog.observations import Filter, Preprocessor
from rlcatalog.plugins import ActionDistSpec, FilterSpec, ModelSpec, Part, PreprocessorSpec
from rlcatalog.plugins.declarations import Declaration
from rlcatalog.spaces import SpaceInfo

#: Kind → the config key or function for its classes, their declaration, and their base class.
_KINDS: dict[str, tuple[str, type[Declaration], str]] = {
    "model": (
        "custom_model",
        ModelSpec,
        "rlcatalog_torch.TorchModelV2 or rlcatalog_tf.TFModelV2, or a torch.nn.Module or"
        " keras.Layer: its class, an instance or a function that makes one",
    ),
    "action_dist": (
        "custom_action_dist",
        ActionDistSpec,
        "rlcatalog.ActionDistribution; a function needs num_inputs=",
    ),
    "preprocessor": ("custom_preprocessor", PreprocessorSpec, "rlcatalog.Preprocessor"),
    "filter": ("register_filter", FilterSpec, "rlcatalog.Filter"),
}


def in_process(kind: str, cls: Any, name: str | None = None, **fields: Any) -> Part:
    """Create the part for a class of the running program, or for a plain module.

    Args:
        kind: `"model"`, `"action_dist"`, `"preprocessor"` or `"filter"`.
        cls: The class; for a model, also an instance of a plain module or a factory for one.
        name: The part's name; None uses the name of the class.
        **fields: Additional fields of the part's declaration; None means the default.

    Raises:
        ModelContractError: The class is not of this kind.
    """
    taker, spec, base = _KINDS[kind]
    if kind == "action_dist":
        cls = _adapted_dist(cls, fields.pop("num_inputs", None))
    framework: Any = getattr(cls, "framework_of_class", None) if isinstance(cls, type) else None
    served: list[str] = ["numpy"]
    own: dict[str, Any] = {}
    if kind == "model":
        if framework in frameworks():
            served, own = [framework], {"slot": getattr(cls, "slot_of_class", "trunk")}
        else:
            served, own = frameworks_of_plain(cls), {"plain": True}
        fits = bool(served)
    elif kind == "action_dist":
        fits = (
            isinstance(cls, type)
            and hasattr(cls, "required_model_output_shape")
            and hasattr(cls, "logp")
        )
        served = [framework] if framework in frameworks() else list(frameworks())
        joins = {
            field: bool(getattr(cls, field, False)) for field in ("composite", "wraps_default")
        }
        own = {"size": partial(_size_of, cls), **joins}  # not a closure, because it is pickled
    else:
        fits = isinstance(cls, type) and issubclass(
            cls, Preprocessor if kind == "preprocessor" else Filter
        )
    if not fits:
        name_or = "" if kind == "filter" else "a registered name or "
        raise ModelContractError(f"{taker}: {shown(cls)} must be {name_or}a subclass of {base}.")
    own |= {field: value for field, value in fields.items() if value is not None}
    code = code_of(cls)
    own_name = re.sub(r"\W", "", code.__name__)  # a lambda's has brackets
    summary = (code.__doc__ or "").strip().partition("\n")[
        0
    ] or f"{own_name}, registered in process"
    declaration = spec(name or own_name, dict.fromkeys(served, path_of(code)), summary, **own)
    return Part(declaration, "", "", objects=dict.fromkeys(served, cls))


def _adapted_dist(cls: Callable[..., Any], num_inputs: int | Callable[..., int] | None) -> Any:
    """Return an action-distribution class for a framework's distribution class, or for a function
    that returns one.

    Anything else, including a class that no installed framework adapts, is returned unchanged.
    """
    own = framework_of(cls) if isinstance(cls, type) and not hasattr(cls, "logp") else None
    if not callable(cls) or (own is None and num_inputs is None):
        return cls
    for framework in frameworks().values() if own is None else (own,):
        if framework.target("distribution") is not None and framework.is_installed:
            return framework.load("distribution")(cls, num_inputs)
    return cls


def _size_of(cls: Any, action: SpaceInfo, config: Mapping[str, Any], *inner: int) -> Any:
    """Return the number of model outputs that a distribution class needs."""
    return cls.required_model_output_shape(action.space, dict(config))


def path_of(cls: Any) -> str:
    """Return the import path of a class; for a class inside a function, the path as if it were at
    module level.
    """
    return f"{cls.__module__}:{cls.__qualname__}".replace("<locals>.", "").replace(
        "<lambda>", "lambda_"
    )
