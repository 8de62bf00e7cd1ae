"""Parts of the running program: classes that it registers under a name or puts
into a config.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from rlcatalog.config.flat import ReadOnlyConfig
from rlcatalog.errors import ModelContractError, shown
from rlcatalog.frameworks import frameworks
from rlcatalog.frameworks.table import framework_of
from rlcatalog.models.plain import code_of, frameworks_of_plain
from rlcatalog.observations import Filter, Preprocessor
from rlcatalog.plugins import ActionDistSpec, FilterSpec, ModelSpec, Part, PreprocessorSpec
from rlcatalog.plugins.declarations import Declaration
from rlcatalog.spaces import SpaceInfo

#: What a program may register: a class, a plain module, or a function that creates one.
Code: TypeAlias = type | Callable[..., Any]


class _Kind(NamedTuple):
    """A kind of parts that the running program may bring.

    Attributes:
        taker: The config key or function that takes its classes.
        declaration: The type of its declarations.
        base: What its classes must be, for messages.
    """

    taker: str
    declaration: type[Declaration]
    base: str


_KINDS = {
    "model": _Kind(
        "custom_model",
        ModelSpec,
        "rlcatalog_torch.TorchModelV2 or rlcatalog_tf.TFModelV2, or a torch.nn.Module or"
        " keras.Layer: its class, an instance or a function that makes one",
    ),
    "memory": _Kind(
        "memory",
        ModelSpec,
        "rlcatalog_torch.TorchModelV2 or rlcatalog_tf.TFModelV2, or a torch.nn.Module or"
        " keras.Layer with a state, such as a recurrent layer: its class, an instance or a function"
        " that makes one",
    ),
    "action_dist": _Kind(
        "custom_action_dist",
        ActionDistSpec,
        "rlcatalog.ActionDistribution; a function needs num_inputs=",
    ),
    "preprocessor": _Kind("custom_preprocessor", PreprocessorSpec, "rlcatalog.Preprocessor"),
    "filter": _Kind("register_filter", FilterSpec, "rlcatalog.Filter"),
}


class _Reading(NamedTuple):
    """What a class says of itself.

    Attributes:
        frameworks: The frameworks of the class; empty if it is not of the kind.
        fields: Fields of its declaration.
    """

    frameworks: Sequence[str]
    fields: Mapping[str, Any]


_NOT_OF_THE_KIND = _Reading(frameworks=(), fields={})


def in_process(kind: str, cls: Code, name: str | None = None, **fields: Any) -> Part:
    """Create the part for a class of the running program, or for a plain module.

    Args:
        kind: `"model"`, `"memory"` (a model for this slot), `"action_dist"`, `"preprocessor"` or
            `"filter"`.
        cls: The class; for a model, also an instance of a plain module or a factory for one.
        name: The part's name; None uses the name of the class.
        **fields: Additional fields of the part's declaration; None means the default.

    Raises:
        ModelContractError: The class is not of this kind.
    """
    if kind == "model":
        reading = _read_model(cls)
    elif kind == "memory":
        reading = _read_memory(cls)
    elif kind == "action_dist":
        num_inputs = fields.pop("num_inputs", None)  # for the adapter, not for the declaration
        cls = _adapted_dist(cls, num_inputs)
        reading = _read_dist(cls)
    elif kind == "preprocessor":
        reading = _read_numpy_class(cls, Preprocessor)
    else:
        reading = _read_numpy_class(cls, Filter)
    if not reading.frameworks:
        raise _wrong_class(kind, cls)
    all_fields = dict(reading.fields)
    for field, value in fields.items():
        if value is not None:
            all_fields[field] = value
    code = code_of(cls)
    own_name = re.sub(r"\W", "", code.__name__)  # without the brackets of `<lambda>`
    first_line, _, _ = (code.__doc__ or "").strip().partition("\n")
    declaration_class = _KINDS[kind].declaration
    declaration = declaration_class(
        name or own_name,
        targets=dict.fromkeys(reading.frameworks, path_of(code)),
        summary=first_line or f"{own_name}, registered in process",
        **all_fields,
    )
    objects = dict.fromkeys(reading.frameworks, cls)
    return Part(declaration, distribution="", version="", objects=objects)


def _read_model(cls: Code) -> _Reading:
    framework = _framework_of_class(cls)
    if framework is None:
        return _Reading(frameworks_of_plain(cls), {"plain": True})
    # A class in RLlib's form need not derive from ours.
    slot = getattr(cls, "slot_of_class", "trunk")
    return _Reading([framework], {"slot": slot})


def _read_memory(cls: Code) -> _Reading:
    """Return what a class or module says of itself that the config names as its memory."""
    reading = _read_model(cls)
    return reading._replace(fields={**reading.fields, "slot": "memory"})


def _read_dist(cls: Code) -> _Reading:
    """Return what an action-distribution class says of itself."""
    # A class in RLlib's form need not derive from ours, so it is told by its methods.
    is_dist = hasattr(cls, "required_model_output_shape") and hasattr(cls, "logp")
    if not isinstance(cls, type) or not is_dist:
        return _NOT_OF_THE_KIND
    framework = _framework_of_class(cls)
    # A class that names no framework works with all of them.
    served = list(frameworks()) if framework is None else [framework]
    fields = {
        "size": partial(_size_of, cls),  # not a closure, because it is pickled
        # A class in RLlib's form has neither of these attributes.
        "composite": bool(getattr(cls, "composite", False)),
        "wraps_default": bool(getattr(cls, "wraps_default", False)),
    }
    return _Reading(served, fields)


def _read_numpy_class(cls: Code, base: type) -> _Reading:
    if not isinstance(cls, type) or not issubclass(cls, base):
        return _NOT_OF_THE_KIND
    return _Reading(["numpy"], fields={})


def _framework_of_class(cls: Code) -> str | None:
    """Return the framework that a class of models or distributions names; None if it names none,
    or one that is not declared.
    """
    if not isinstance(cls, type):
        return None
    # The user's class, which may be of any kind.
    framework = getattr(cls, "framework_of_class", None)
    if framework not in frameworks():
        return None
    return str(framework)


def _wrong_class(kind: str, cls: Code) -> ModelContractError:
    taker, _, base = _KINDS[kind]
    expected = f"a registered name or a subclass of {base}"
    if kind == "filter":  # a config names filters, and takes no classes
        expected = f"a subclass of {base}"
    return ModelContractError(f"{taker}: {shown(cls)} must be {expected}.")


def _adapted_dist(cls: Code, num_inputs: int | Callable[..., int] | None) -> Any:
    """Return an action-distribution class for a framework's distribution class, or for a function
    that returns one.

    Anything else, including a class that no installed framework adapts, is returned unchanged.
    """
    if not callable(cls):
        return cls
    own_framework = None
    # A user's class with this method is an action distribution already.
    if isinstance(cls, type) and not hasattr(cls, "logp"):
        own_framework = framework_of(cls)
    if own_framework is not None:
        candidates = [own_framework]
    elif num_inputs is not None:  # what it wraps is unknown, so the first framework adapts it
        candidates = list(frameworks().values())
    else:
        candidates = []
    for framework in candidates:
        if framework.target("distribution") is not None and framework.is_installed:
            adapt = framework.load("distribution")
            return adapt(cls, num_inputs)
    return cls


def _size_of(
    cls: Any,
    action: SpaceInfo,
    config: Mapping[str, Any],
    *_inner_size: int,
) -> Any:
    """Return the number of model outputs that a distribution class needs."""
    # A copy, which the user's class may change. It still knows the catalog of the lookup.
    own_config = config.fresh() if isinstance(config, ReadOnlyConfig) else dict(config)
    return cls.required_model_output_shape(action.space, own_config)


def path_of(cls: Code) -> str:
    """Return the import path of a class; for a class inside a function, the path as if it were at
    module level.
    """
    path = f"{cls.__module__}:{cls.__qualname__}"
    return path.replace("<locals>.", "").replace("<lambda>", "lambda_")
