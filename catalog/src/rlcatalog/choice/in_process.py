"""Components of the running program: classes registered by name or written into a config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlcatalog.errors import ModelContractError, shown
from rlcatalog.frameworks import frameworks
from rlcatalog.observations import Filter, Preprocessor
from rlcatalog.plugins import ActionDistSpec, Component, FilterSpec, ModelSpec, PreprocessorSpec
from rlcatalog.plugins.declarations import Declaration
from rlcatalog.spaces import SpaceInfo


def in_process_model(cls: Any, name: str | None = None, **fields: Any) -> Component:
    """Describe a model class of the running program.

    Args:
        cls: The class.
        name: Its name; the class's own when missing.
        **fields: More fields of its `ModelSpec`; those that are None are left out.
    """
    framework: Any = getattr(cls, "framework_of_class", None)
    if not isinstance(cls, type) or framework not in frameworks():
        raise ModelContractError(
            f"custom_model: {shown(cls)} must be a registered name or a subclass of rlcatalog_torch.TorchModelV2 or"
            " rlcatalog_tf.TFModelV2."
        )
    fields = {"slot": getattr(cls, "slot_of_class", "trunk"), **_given(fields)}
    spec = ModelSpec(name or cls.__name__, {framework: path_of(cls)}, _first_line(cls), **fields)
    return Component(spec, "", "", objects={framework: cls})


def in_process_dist(cls: Any, name: str | None = None, **fields: Any) -> Component:
    """Describe an action-distribution class of the running program; see `in_process_model`."""
    if not hasattr(cls, "required_model_output_shape") or not hasattr(cls, "logp"):
        raise ModelContractError(
            f"custom_action_dist: {shown(cls)} must be a registered name or a subclass of rlcatalog.ActionDistribution."
        )
    framework: Any = getattr(cls, "framework_of_class", None)
    served: list[str] = [framework] if framework in frameworks() else list(frameworks())
    spec = ActionDistSpec(
        name or cls.__name__,
        dict.fromkeys(served, path_of(cls)),
        _first_line(cls),
        size=_Size(cls),
        composite=bool(getattr(cls, "composite", False)),
        wraps_default=bool(getattr(cls, "wraps_default", False)),
        **_given(fields),
    )
    return Component(spec, "", "", objects=dict.fromkeys(served, cls))


def in_process_preprocessor(cls: Any, name: str | None = None, **fields: Any) -> Component:
    """Describe a preprocessor class of the running program; see `in_process_model`."""
    if not (isinstance(cls, type) and issubclass(cls, Preprocessor)):
        raise ModelContractError(
            f"custom_preprocessor: {shown(cls)} must be a registered name or a subclass of rlcatalog.Preprocessor."
        )
    return _neutral_part(PreprocessorSpec, cls, name, fields)


def in_process_filter(cls: Any, name: str | None = None, **fields: Any) -> Component:
    """Describe a filter class of the running program; see `in_process_model`."""
    if not (isinstance(cls, type) and issubclass(cls, Filter)):
        raise ModelContractError(f"register_filter: {shown(cls)} must be a subclass of rlcatalog.Filter.")
    return _neutral_part(FilterSpec, cls, name, fields)


def _neutral_part(spec: type[Declaration], cls: type, name: str | None, fields: dict[str, Any]) -> Component:
    declaration = spec(name or cls.__name__, {"numpy": path_of(cls)}, _first_line(cls), **_given(fields))
    return Component(declaration, "", "", objects={"numpy": cls})


@dataclass(frozen=True)
class _Size:
    """The number of model outputs that a class says it needs; no closure, so that it can be pickled."""

    cls: Any

    def __call__(self, action: SpaceInfo, config: Mapping[str, Any], *inner: int) -> Any:
        return self.cls.required_model_output_shape(action.space, dict(config))


def path_of(cls: Any) -> str:
    """Return where a class stands, as an import path; of one inside a function, as if it stood outside."""
    return f"{cls.__module__}:{cls.__qualname__}".replace("<locals>.", "")


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _first_line(cls: Any) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0] or f"{cls.__name__}, registered in process"
