"""Components of the running program: classes registered by name or written into a config."""

from __future__ import annotations

from typing import Any

from rlcatalog.errors import ModelContractError, shown
from rlcatalog.frameworks import frameworks
from rlcatalog.observations import Preprocessor
from rlcatalog.plugins import ActionDistSpec, Component, ModelSpec, PreprocessorSpec


def in_process_model(cls: Any, name: str | None = None) -> Component:
    """Describe a model class of the running program."""
    framework: Any = getattr(cls, "framework_of_class", None)
    if not isinstance(cls, type) or framework not in frameworks():
        raise ModelContractError(
            f"custom_model: {shown(cls)} must be a registered name or a subclass of rlcatalog.torch.TorchModelV2 or"
            " rlcatalog.tf.TFModelV2."
        )
    spec = ModelSpec(
        name or cls.__name__, {framework: _path(cls)}, _first_line(cls), slot=getattr(cls, "slot_of_class", "trunk")
    )
    return Component(spec, "", "", objects={framework: cls})


def in_process_dist(cls: Any, name: str | None = None) -> Component:
    """Describe an action-distribution class of the running program."""
    if not hasattr(cls, "required_model_output_shape") or not hasattr(cls, "logp"):
        raise ModelContractError(
            f"custom_action_dist: {shown(cls)} must be a registered name or a subclass of rlcatalog.ActionDistribution."
        )
    framework: Any = getattr(cls, "framework_of_class", None)
    served: list[str] = [framework] if framework in frameworks() else list(frameworks())
    spec = ActionDistSpec(
        name or cls.__name__,
        dict.fromkeys(served, _path(cls)),
        _first_line(cls),
        size=lambda action, config, *inner: cls.required_model_output_shape(action.space, dict(config)),
        composite=bool(getattr(cls, "composite", False)),
        wraps_default=bool(getattr(cls, "wraps_default", False)),
    )
    return Component(spec, "", "", objects=dict.fromkeys(served, cls))


def in_process_preprocessor(cls: Any, name: str | None = None) -> Component:
    """Describe a preprocessor class of the running program."""
    if not (isinstance(cls, type) and issubclass(cls, Preprocessor)):
        raise ModelContractError(
            f"custom_preprocessor: {shown(cls)} must be a registered name or a subclass of rlcatalog.Preprocessor."
        )
    spec = PreprocessorSpec(name or cls.__name__, {"numpy": _path(cls)}, _first_line(cls))
    return Component(spec, "", "", objects={"numpy": cls})


def _path(cls: Any) -> str:
    return f"{cls.__module__}:{cls.__qualname__}".replace("<locals>.", "")


def _first_line(cls: Any) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0] or f"{cls.__name__}, registered in process"
