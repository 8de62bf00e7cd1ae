"""The contract of observation filters: a stateful stage between preprocessor and model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlcatalog.errors import CatalogError, ModelContractError, said, shown
from rlcatalog.observations.preprocessor import Preprocessor
from rlcatalog.observations.unclaimed import Unclaimed
from rlcatalog.plugins import Component

Array = np.ndarray[Any, Any]


class Filter:
    """Base class of filters.

    A `FilterSpec` names a subclass with this constructor, or a function of the same arguments that returns a filter.

    Args:
        preprocessor: Whose output is filtered; its `leaves()` say what stands where.
        options: The model config.
    """

    def __init__(self, preprocessor: Preprocessor, options: Mapping[str, Any]) -> None:
        self.preprocessor = preprocessor
        self.options = options

    def __call__(self, encoded: Array, *, update: bool = False) -> Array:
        """Filter encoded observations `[B, ...]`; learn from them where `update` is set."""
        raise NotImplementedError(f"{type(self).__name__} must implement __call__(encoded, *, update).")

    def processed_space(self, preprocessor: Preprocessor) -> Any:
        """Return the space of filtered observations, as models see it: the preprocessor's, unless overridden."""
        return preprocessor.observation_space

    def get_state(self) -> dict[str, Array]:
        """Return the statistics, as arrays by name, to be saved with the policy."""
        return {}

    def set_state(self, state: Mapping[str, Array]) -> None:
        """Restore statistics that `get_state` returned."""


def make_filter(
    component: Component | None,
    preprocessor: Preprocessor,
    options: Mapping[str, Any],
    unclaimed: Unclaimed | None = None,
) -> Filter | None:
    """Make the filter that a component describes; None for an empty slot.

    What a head claims is not for filters: they find its paths among their options, under `"claimed"`.

    Raises:
        ModelContractError: What the component makes is no filter.
    """
    if component is None:
        return None
    make = component.load("numpy")
    try:
        made = make(preprocessor, {**options, "claimed": [] if unclaimed is None else unclaimed.paths})
    except (CatalogError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise component.fault(f"it cannot be made: {said(error)}") from error
    if not isinstance(made, Filter):
        raise ModelContractError(f"filter {component.name!r} must make a rlcatalog.Filter, found {shown(made)}.")
    return made
