"""`Filter`: the base class of observation filters, a stateful stage between
preprocessor and model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlcatalog.errors import (
    CatalogError,
    ModelContractError,
    NotServedError,
    raised_as,
    shown,
)
from rlcatalog.frameworks.ops import NUMBER_KINDS, Array, Tensor, TensorOps
from rlcatalog.observations.preprocessor import Leaf, Preprocessor
from rlcatalog.observations.visible_observation import VisibleObservation
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
    #: Whether an earlier check found that it leaves its input unchanged.
    _is_input_safe = False
    #: The preprocessor whose `check_mode` says when to check the filter, set by the catalog.
    _source_of_check_mode: Preprocessor | None = None

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
        exported policy expects filtered observations, and a policy refuses to act on tensors.
        """
        return None

    def filter_tensors(self, encoded: Tensor, ops: TensorOps) -> Any:
        """Filter encoded observations that are a tensor `[B, *shape]`, on its device and with the
        current statistics.

        A policy that gets tensors calls it, if `lowered` returns a function. By default, it calls
        that function; `lowered` is asked each time, because the statistics may have changed.

        Args:
            encoded: The tensor.
            ops: The operations for it.
        """
        apply = self.lowered()
        if apply is None:
            raise NotServedError(f"{self.who} has no tensor form: its lowered() returns None.")
        return apply(encoded, ops)

    def learn_from_tensors(self, encoded: Tensor, rows: Tensor | None, ops: TensorOps) -> None:
        """Learn from encoded observations that are a tensor `[B, *shape]`, without reading it on
        the host.

        Rows with a number that is not finite must be left out, because such a row can only be
        reported later.

        Args:
            encoded: The tensor.
            rows: Booleans `[B]`: the rows to learn from; None for all.
            ops: The operations for it.

        Raises:
            NotServedError: The filter cannot do this, which is the default.
        """
        raise NotServedError(
            f"{self.who} cannot learn from tensors: it has no learn_from_tensors(). Pass arrays to"
            " preprocess(observations, update=True)."
        )

    def filtered(self, encoded: Array, *, update: bool = False) -> Array:
        """Call the filter and check its contract: the number and shape of observations, and an
        unchanged input.

        Raises:
            ModelContractError: The filter breaks its contract; the message names the class and its
                origin.
        """
        source = self._source_of_check_mode
        checks_always = source is not None and source.check_mode == "always"
        copy = None  # made if this call checks that the filter leaves its input unchanged
        if checks_always or not self._is_input_safe:
            copy = encoded.copy()
        with raised_as(lambda why: ModelContractError(f"{self.who} raised {why}"), CatalogError):
            output = self(encoded, update=update)
        shape = encoded.shape if self.shape is None else (len(encoded), *self.shape)
        if not _has_numbers(output, shape):
            if isinstance(output, np.ndarray):
                what = f"{output.dtype} of shape {output.shape}"
            else:
                what = shown(output)
            raise ModelContractError(
                f"{self.who} must return numbers of shape {shape}, found {what}."
            )
        if copy is not None:
            if not np.array_equal(copy, encoded, equal_nan=copy.dtype.kind == "f"):
                raise ModelContractError(
                    f"{self.who} modifies its observations; it must return new arrays."
                )
            self._is_input_safe = True
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
        if not _is_savable(state):
            raise ModelContractError(
                f"{self.who}: its get_state() must return arrays by name, found {shown(state)}."
            )
        return state

    @property
    def who(self) -> str:
        """The filter's class and origin, for error messages."""
        name = type(self).__qualname__
        if self.part is None:
            return name
        return f"{name} (filter {self.part.name!r} of {self.part.provider})"

    def get_state(self) -> dict[str, Array]:
        """Return the statistics as arrays by name, for saving with the policy."""
        return {}

    def set_state(self, state: Mapping[str, Array]) -> None:
        """Restore statistics that `get_state` returned."""

    def take_statistics(self, source: Any, source_columns: Array, columns: Array) -> None:
        """Replace the statistics of some values by those of another policy's filter.

        `rlcatalog.load_part` calls it.

        Args:
            source: The other filter, from the same part.
            source_columns: Places of the values in the other policy's encoded observations, `[n]`.
            columns: Their places here, `[n]`.

        Raises:
            NotServedError: The filter cannot do this, which is the default.
        """
        raise NotServedError(
            f"{self.who} has no take_statistics(), so the statistics of some values cannot be moved"
            " from one policy to another."
        )


def _has_numbers(output: object, shape: tuple[int, ...]) -> bool:
    """Return whether a filter's result is an array of numbers with this shape."""
    if not isinstance(output, np.ndarray):
        return False
    return output.shape == shape and output.dtype.kind in NUMBER_KINDS


def _is_savable(state: object) -> bool:
    """Return whether a filter's state is a dict of number arrays by name."""
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        return False
    are_arrays = all(isinstance(value, np.ndarray | np.generic) for value in state.values())
    return are_arrays and all(value.dtype.kind in NUMBER_KINDS for value in state.values())


def make_filter(
    part: Part | None,
    preprocessor: Preprocessor,
    options: Mapping[str, Any],
    unclaimed: VisibleObservation | None = None,
    hidden_paths: Sequence[str] = (),
) -> Filter | None:
    """Create a part's filter; return None for an empty slot.

    Args:
        part: The part, or None.
        preprocessor: The preprocessor whose encoded observations are filtered.
        options: The model config.
        unclaimed: The part of the observation that a head leaves to the trunk; None without such a
            head. The filter must not change the entries that the head claims: their paths are in
            its options, under `"claimed"`.
        hidden_paths: Paths of leaves that the environment's observations have, and those to filter
            lack. They are in the filter's options, under `"hidden"`.

    Raises:
        ModelContractError: The part does not create a filter.
    """
    if part is None:
        return None
    claimed_paths = [] if unclaimed is None else unclaimed.hidden_paths
    options = {**options, "claimed": claimed_paths, "hidden": list(hidden_paths)}
    filter_ = call_target(part, "numpy", preprocessor, options)
    if not isinstance(filter_, Filter):
        raise part.fault(f"its target must create a rlcatalog.Filter, found {shown(filter_)}.")
    filter_.part = part
    filter_._source_of_check_mode = preprocessor
    with blame_part(part, "processed_space"):
        filter_.shape = tuple(filter_.processed_space(preprocessor).shape)
    return filter_
