"""Creating the preprocessor that a component declares, with its contract checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlcatalog.errors import ModelContractError, shown
from rlcatalog.observations.preprocessor import Preprocessor
from rlcatalog.observations.watch import check_answers
from rlcatalog.plugins.component import Component, blame_part
from rlcatalog.spaces import SpaceInfo


def create_preprocessor(
    component: Component,
    info: SpaceInfo,
    options: dict[str, Any],
    check: str,
    find_child: Callable[[SpaceInfo, Mapping[str, Any]], Preprocessor],
) -> Preprocessor:
    """Create the preprocessor that a component declares.

    Args:
        component: The component.
        info: The space.
        options: The model config; the preprocessor may change it.
        check: When to check observations: `"first"`, `"always"` or `"never"`.
        find_child: Returns the preprocessor of a child of the space.

    Raises:
        PartError: The target is not a preprocessor class, or its constructor breaks the contract.
    """
    cls = component.load("numpy")
    if not (isinstance(cls, type) and issubclass(cls, Preprocessor)):
        raise component.fault(
            f"its target must be a subclass of rlcatalog.Preprocessor, found {shown(cls)}."
        )
    try:
        with blame_part(component):
            if cls.__init__ is Preprocessor.__init__:
                preprocessor = cls(
                    info.space, options, check=check, info=info, find_child=find_child
                )
            else:  # a custom class with a constructor in RLlib's form
                preprocessor = cls(info.space, dict(options))
    except ModelContractError as error:
        if component.distribution and component.provider not in str(error):
            error.args = (f"{component.title}: {error}",)
        raise
    if not hasattr(preprocessor, "size"):
        raise component.fault(
            f"{cls.__qualname__}.__init__() must call rlcatalog.Preprocessor.__init__(); it did"
            " not."
        )
    if preprocessor.check_mode != check:
        preprocessor.set_check(check)
    preprocessor.component = component
    preprocessor.is_watched = not component.is_indexed
    if preprocessor.is_watched:
        check_answers(preprocessor)
    return preprocessor
