"""Building: parts made of the components that a lookup chose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlcatalog.choice import MODEL_SLOTS
from rlcatalog.config.flat import FlatConfig
from rlcatalog.errors import CatalogError, ModelContractError, PartError, reason, shown
from rlcatalog.models import ModelPart
from rlcatalog.observations import Preprocessor
from rlcatalog.plugins import Component
from rlcatalog.spaces import SpaceInfo


def make_preprocessor(
    component: Component,
    info: SpaceInfo,
    options: Mapping[str, Any],
    check: str,
    find_child: Callable[[SpaceInfo, Mapping[str, Any]], Preprocessor],
) -> Preprocessor:
    """Make a preprocessor of what was chosen for a space.

    Raises:
        PartError: Its class is none of preprocessors, or its constructor does not do what a preprocessor's must.
    """
    cls = component.load("numpy")
    if not (isinstance(cls, type) and issubclass(cls, Preprocessor)):
        raise component.fault(f"its target must be a subclass of rlcatalog.Preprocessor, found {shown(cls)}.")
    try:
        if cls.__init__ is Preprocessor.__init__:
            made = cls(info.space, options, check=check, info=info, find_child=find_child)
        else:  # a custom class with a constructor in RLlib's form
            made = cls(info.space, dict(options))
    except ModelContractError as error:
        if component.distribution and component.provider not in str(error):
            error.args = (f"{component.title}: {error}",)
        raise
    except (KeyboardInterrupt, CatalogError):
        raise
    except BaseException as error:
        raise PartError(f"{component.title} raised {reason(error)}", component) from error
    if not hasattr(made, "size"):
        raise component.fault(f"{cls.__qualname__}.__init__() does not call that of rlcatalog.Preprocessor.")
    if made.check_mode != check:
        made.set_check(check)
    return made


def load_model_classes(
    choices: Mapping[str, Component | None], config: FlatConfig, framework: str, kwargs: Mapping[str, Any] | None
) -> list[ModelPart]:
    """Load the classes of a model's slots, from trunk to head.

    Args:
        choices: The component of each slot, or None.
        config: The config; what `custom_model_config` holds is the trunk's.
        framework: The framework.
        kwargs: More keyword arguments of the trunk.

    Raises:
        PartError: A target cannot be imported, or is no model class of this framework.
    """
    parts = []
    for slot in MODEL_SLOTS:
        if (component := choices.get(slot)) is None:
            continue
        custom = config.fresh()["custom_model_config"] if config["custom_model"] is not None else {}
        own = {**(kwargs or {}), **custom} if slot == "trunk" else {}
        cls = component.load(framework)
        if component.is_third_party and getattr(cls, "framework_of_class", None) != framework:
            raise component.fault(f"its target must be a model class of {framework!r}, found {shown(cls)}.")
        parts.append(ModelPart(cls, slot, own, component))
    return parts
