"""`Filter`: the base class of observation filters, a stateful stage between
preprocessor and model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlcatalog.errors import CatalogError, ModelContractError, raised_as, shown
from rlcatalog.frameworks.ops import Array, TensorOps
from rlcatalog.observations.preprocessor import Leaf, Preprocessor
from rlcatalog.observations.trunk_observation import TrunkObservation
from rlcatalog.plugins import Part
from rlcatalog.plugins.part import blame_part, call_target


class Filter:
    """Base class of filters.

    A `FilterSpec` names a subclass with the same constructor, or a function with the same arguments
    that returns a filter.

    Args:
        preprocessor: The preprocessor whose output is filtered; `leaves()` lists its leaves.
        options: The model config.
    """

    #: The leaves that it changes, which `explain` lists.
    leaves: Sequence[Leaf] = ()
    #: The part from which the catalog created it; None for a filter that your code created.
    part: Part | None = None
    #: Shape of one filtered observation, set by the catalog.
    shape: tuple[int, ...] | None = None
    _harmless = False
    #: Its preprocessor, which determines when to check.
    _after: Preprocessor | None = None

    def __init__(self, preprocessor: Preprocessor, options: Mapping[str, Any]) -> None:
        self.preprocessor = preprocessor
        self.options = options

    def __call__(self, encoded: Array, *, update: bool = False) -> Array:
        """Filter encoded observations `[B, ...]`, and learn from them if `update` is set."""
        raise NotImplementedError(
            f"{type(self).__name__} must implement __call__(encoded, *, update)."
        )

    def processed_space(self, preprocessor: Preprocessor) -> Any:
        """Return the space of filtered observations; by default the preprocessor's
        encoded space.
        """
        return preprocessor.observation_space

    def lowered(self) -> Callable[[Any, TensorOps], Any] | None:
        """Return `filter(x, ops)` for exported policies, which filters `[B, ...]` with the current
        statistics.

        `ops` is the tensor library's `TensorOps`. If it returns None, which is the default, the
        exported policy expects filtered observations.
        """
        return None

    def filtered(self, encoded: Array, *, update: bool = False) -> Array:
        """Call the filter and check its contract: the number and shape of observations, and an
        unchanged input.

        Raises:
            ModelContractError: The filter breaks its contract; the message names the class and its
                origin.
        """
        always = self._after is not None and self._after.check_mode == "always"
        before = encoded.copy() if always or not self._harmless else None
        with raised_as(lambda why: ModelContractError(f"{self.who} raised {why}"), CatalogError):
            output = self(encoded, update=update)
        shape = encoded.shape if self.shape is None else (len(encoded), *self.shape)
        if (
            not isinstance(output, np.ndarray)
            or output.shape != shape
            or output.dtype.kind not in "biuf"
        ):
            what = (
                f"{output.dtype} of shape {output.shape}"
                if isinstance(output, np.ndarray)
                else shown(output)
            )
            raise ModelContractError(
                f"{self.who} must return numbers of shape {shape}, found {what}."
            )
        if before is not None:
            if not np.array_equal(before, encoded, equal_nan=before.dtype.kind == "f"):
                raise ModelContractError(
                    f"{self.who} modifies its observations; it must return new arrays."
                )
            self._harmless = True
        return output

    def saved_state(self) -> dict[str, Array]:
        """Return the result of `get_state` after checking it.

        Raises:
            ModelContractError: The result is not a dict of number arrays by name.
        """
        with raised_as(
            lambda why: ModelContractError(f"{self.who}: its get_state() raised {why}"),
            CatalogError,
        ):
            state = self.get_state()
        if not isinstance(state, dict) or not all(
            isinstance(name, str)
            and isinstance(a, np.ndarray | np.generic)
            and a.dtype.kind in "biuf"
            for name, a in state.items()
        ):
            raise ModelContractError(
                f"{self.who}: its get_state() must return arrays by name, found {shown(state)}."
            )
        return state

    @property
    def who(self) -> str:
        """The filter's class and origin, for error messages."""
        name, part = type(self).__qualname__, self.part
        return name if part is None else f"{name} (filter {part.name!r} of {part.provider})"

    def get_state(self) -> dict[str, Array]:
        """Return the statistics as arrays by name, for saving with the policy."""
        return {}

    def set_state(self, state: Mapping[str, Array]) -> None:
        """Restore statistics that `get_state` returned."""


def make_filter(
    part: Part | None,
    preprocessor: Preprocessor,
    options: Mapping[str, Any],
    unclaimed: TrunkObservation | None = None,
) -> Filter | None:
    """Create a part's filter; return None for an empty slot.

    A filter does not change entries that a head claims: their paths are in its options, under
    `"claimed"`.

    Raises:
        ModelContractError: The part does not create a filter.
    """
    if part is None:
        return None
    options = {**options, "claimed": [] if unclaimed is None else unclaimed.paths}
    made = call_target(part, "numpy", preprocessor, options)
    if not isinstance(made, Filter):
        raise part.fault(f"its target must create a rlcatalog.Filter, found {shown(made)}.")
    made.part, made._after = part, preprocessor
    with blame_part(part, "processed_space"):
        made.shape = tuple(made.processed_space(preprocessor).shape)
    return made
