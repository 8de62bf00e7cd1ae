"""Building a model from its parts: trunk → memory → head → interface, always in this order."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from rlcatalog.errors import ConfigError, ModelContractError, NotServedError, nearest
from rlcatalog.model import ModelV2
from rlcatalog.views import ViewRequirement

#: What every model's constructor takes, in this order.
STANDARD = ("obs_space", "action_space", "num_outputs", "model_config", "name")


@dataclass(frozen=True)
class Part:
    """One class of the chain, with keyword arguments of its own."""

    cls: type
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def assemble(
    parts: list[Part],
    obs_space: Any,
    action_space: Any,
    num_outputs: int | None,
    fresh_config: Callable[[], dict[str, Any]],
    name: str,
    interface: type | None = None,
) -> ModelV2:
    """Build a chain of parts, each holding the one before it as `trunk`.

    Args:
        parts: The classes, from the inside out.
        obs_space: Space of encoded observations.
        action_space: The environment's action space.
        num_outputs: Width of the outermost part's output, or None for a trunk.
        fresh_config: Makes a model config that the caller of it may keep.
        name: The model's name.
        interface: A mixin that adds methods; it is mixed over a host that holds the model.

    Raises:
        ModelContractError: A class is not a ModelV2, or does not keep the trunk protocol.
        ConfigError: A keyword argument that the class does not take.
    """

    def chain(outputs: int | None) -> ModelV2:
        model: ModelV2 | None = None
        for part in parts:
            wanted = outputs if part is parts[-1] else None
            held = {} if model is None else {"trunk": _checked_trunk(model, part.cls)}
            outer = construct(part.cls, (obs_space, action_space, wanted, fresh_config(), name), part.kwargs, held)
            if model is not None:
                outer.view_requirements = _views_of_both(model, outer)
            model = outer
        assert model is not None
        return model

    if interface is None:
        return chain(num_outputs)
    check_class(parts[-1].cls)
    host = _host_class(parts[-1].cls)
    if issubclass(parts[-1].cls, interface):
        return chain(num_outputs)

    def inner(outputs: int | None) -> ModelV2:
        model = chain(outputs)
        return model if outputs is not None else _checked_trunk(model, interface)

    mixed = type(interface.__name__, (interface, host), {"build_inner": staticmethod(inner)})
    return construct(mixed, (obs_space, action_space, num_outputs, fresh_config(), name), {}, {})


def construct(cls: type, standard: tuple[Any, ...], kwargs: Mapping[str, Any], held: Mapping[str, Any]) -> ModelV2:
    """Build one model and check that it is one."""
    check_class(cls)
    check_kwargs(cls, kwargs)
    model = cls(*standard, **kwargs, **held)
    if "obs_space" not in getattr(model, "__dict__", {}):
        raise ModelContractError(
            f"{cls.__name__}.__init__ must call its base's __init__(obs_space, action_space, num_outputs, model_config,"
            " name); it did not."
        )
    assert isinstance(model, ModelV2)
    return model


def check_class(cls: Any) -> None:
    """Raise unless `cls` is a model class.

    Raises:
        ModelContractError: It is not a subclass of TorchModelV2 or TFModelV2.
    """
    if not (isinstance(cls, type) and issubclass(cls, ModelV2) and getattr(cls, "framework_of_class", None)):
        raise ModelContractError(f"{cls!r} must be a subclass of rlcatalog.torch.TorchModelV2 or"
                                 " rlcatalog.tf.TFModelV2.")  # fmt: skip


def check_kwargs(cls: type, kwargs: Mapping[str, Any]) -> None:
    """Raise when the class's constructor does not take one of the keyword arguments.

    Raises:
        ConfigError: It does not; the message names it and the accepted ones.
    """
    if not kwargs:
        return
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]  # type: ignore[misc]
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    accepted = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL and p.name not in (*STANDARD, "trunk")]
    for name in kwargs:
        if name not in accepted:
            raise ConfigError(f"custom_model_config: {cls.__name__} takes no {name!r}.{nearest(name, accepted)}"
                              f" Accepted: {', '.join(accepted) or 'none'}.")  # fmt: skip


def _checked_trunk(trunk: ModelV2, outer: type) -> ModelV2:
    if not isinstance(trunk.num_outputs, Integral):
        raise ModelContractError(
            f"{type(trunk).__name__} was built as the trunk of {outer.__name__}, with num_outputs=None, and did not"
            " announce the width of its output in self.num_outputs."
        )
    trunk.num_outputs = int(trunk.num_outputs)  # a product of a shape is NumPy's
    if getattr(outer, "is_memory", False) and list(trunk.get_initial_state()):
        raise NotServedError(
            f"{type(trunk).__name__} is recurrent itself (get_initial_state() is not empty); {outer.__name__} cannot be"
            " wrapped around it. Switch the memory off in the config."
        )
    return trunk


def _views_of_both(trunk: ModelV2, outer: ModelV2) -> dict[str, ViewRequirement]:
    """Return what a model asks to see and what its trunk does."""
    for name in sorted(set(trunk.view_requirements) & set(outer.view_requirements) - {"obs"}):
        asked, found = outer.view_requirements[name], trunk.view_requirements[name]
        if (asked.data_col, str(asked.shift)) != (found.data_col, str(found.shift)):
            raise ModelContractError(
                f"{type(outer).__name__} and its trunk {type(trunk).__name__} ask for different views under the name"
                f" {name!r}: {asked} and {found}. Rename the trunk's."
            )
    return {**trunk.view_requirements, **outer.view_requirements}


def _host_class(cls: type) -> type:
    if cls.framework_of_class == "torch":  # type: ignore[attr-defined]
        from rlcatalog.torch.host import TorchHost

        return TorchHost
    from rlcatalog.tf.host import TFHost

    return TFHost
