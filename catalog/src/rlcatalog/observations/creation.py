"""Creating the preprocessor that a part declares, with its contract checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlcatalog.errors import ModelContractError, shown
from rlcatalog.observations.preprocessor import Preprocessor
from rlcatalog.observations.watch import check_answers
from rlcatalog.plugins.part import Part, blame_part
from rlcatalog.spaces import SpaceInfo


def create_preprocessor(
    part: Part,
    info: SpaceInfo,
    options: dict[str, Any],
    check: str,
    find_child: Callable[[SpaceInfo, Mapping[str, Any]], Preprocessor],
) -> Preprocessor:
    """Create the preprocessor that a part declares.

    Args:
        part: The part.
        info: The space.
        options: The model config; the preprocessor may change it.
        check: When to check observations: `"first"`, `"always"` or `"never"`.
        find_child: Returns the preprocessor of a child of the space.

    Raises:
        PartError: The target is not a preprocessor class, or its constructor breaks the contract.
    """
    cls = part.load("numpy")  # a preprocessor has one class, for all frameworks
    if not (isinstance(cls, type) and issubclass(cls, Preprocessor)):
        raise part.fault(
            f"its target must be a subclass of rlcatalog.Preprocessor, found {shown(cls)}."
        )
    try:
        with blame_part(part):
            has_own_constructor = cls.__init__ is not Preprocessor.__init__
            if has_own_constructor:
                # As in RLlib, such a constructor takes only the space and the model config.
                preprocessor = cls(info.space, dict(options))
            else:
                preprocessor = cls(
                    info.space, options, check=check, info=info, find_child=find_child
                )
    except ModelContractError as error:
        is_provider_named = part.provider in str(error)
        if part.distribution and not is_provider_named:
            error.args = (f"{part.title}: {error}",)
        raise
    # The constructor is a user's, and may not have called ours, which sets the size.
    if not hasattr(preprocessor, "size"):
        raise part.fault(
            f"{cls.__qualname__}.__init__() must call rlcatalog.Preprocessor.__init__(); it did"
            " not."
        )
    if preprocessor.check_mode != check:
        preprocessor.set_check(check)
    preprocessor.part = part
    # The conformance kit has tested the parts that the public index lists.
    preprocessor.is_watched = not part.is_indexed
    if preprocessor.is_watched:
        check_answers(preprocessor)
    return preprocessor
