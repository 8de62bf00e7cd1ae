"""List of slates that a distribution chooses from."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import ArrayLike

from rlcatalog import SpaceInfo
from rlcatalog.errors import ActionMaskError, ConfigError, ModelContractError
from rlcatalog.frameworks import Array
from rlcatalog_categorical.plugin import slate_nvec


class Slates:
    """List of slates that is created once and shared by many distributions.

    Args:
        table: The slates `[S, k]`: distinct rows of integers >= 0.
        items: Number of available items. If None, one more than the largest entry.

    Attributes:
        table: The slates, int64 `[S, k]`.
        items: Number of items.
        weights: Weights that map a slate to a single number, int64 `[k]`.
        codes: The slates' numbers, sorted, int64 `[S]`.
        order: The slates' indices in the order of `codes`.

    Raises:
        ConfigError: The table has the wrong shape or type, or a duplicate row.
    """

    def __init__(self, table: ArrayLike, items: int | None = None) -> None:
        self.table = _checked_table(table)
        largest_item = int(self.table.max())
        self.items = largest_item + 1 if items is None else items
        places = self.table.shape[1]
        if self.items**places >= 2**63 or largest_item >= self.items:
            raise ConfigError(
                f"all_slates: slates of {places} out of {self.items} items cannot be numbered in"
                " int64."
            )
        # A slate's number has its items as digits, in the base of the number of items.
        self.weights = np.array(
            [self.items ** (places - 1 - place) for place in range(places)], np.int64
        )
        codes = self.table @ self.weights
        # Sorted, so that `logp` finds a slate by binary search.
        self.order = np.argsort(codes)
        self.codes = codes[self.order]
        has_duplicates = (np.diff(self.codes) == 0).any()
        if has_duplicates:
            raise ConfigError("all_slates: the list contains a slate twice.")

    def columns(self, nvec: Sequence[int] | None, mask_columns: int) -> Array:
        """Return the mask's column for each entry of the table, `[S, k]`.

        Args:
            nvec: Number of values for each entry of the MultiDiscrete space. If None, the number of
                items for each place.
            mask_columns: Number of columns of the mask.

        Raises:
            ActionMaskError: The mask does not have one column per item and place.
        """
        if nvec is None:
            places = self.table.shape[1]
            nvec = [self.items] * places
        counts = np.array(nvec)
        if mask_columns != counts.sum():
            raise ActionMaskError(
                "SlateMultiCategorical: a mask needs one column per item and place: expected"
                f" {counts.sum()} columns, found {mask_columns}."
            )
        starts = np.cumsum(counts) - counts
        columns: Array = self.table + starts
        return columns

    def check_width(self, shape: Sequence[int]) -> None:
        """Raise an error unless inputs of a shape contain one logit per slate.

        Raises:
            ModelContractError: The width differs.
        """
        if len(shape) != 2 or shape[-1] != len(self.table):
            raise ModelContractError(
                f"SlateMultiCategorical over {len(self.table)} slates requires inputs [B,"
                f" {len(self.table)}], found {tuple(shape)}."
            )

    def check_same(self, other: Slates) -> None:
        """Raise an error unless another list has the same slates in the same order, as required for
        a KL divergence.

        Raises:
            ModelContractError: The lists differ.
        """
        if other is self:
            return
        if not np.array_equal(other.table, self.table):
            raise ModelContractError(
                "SlateMultiCategorical.kl(): both distributions need the same list of slates."
            )


def _checked_table(table: ArrayLike) -> Array:
    """Return a list of slates as an int64 array.

    Raises:
        ConfigError: It has the wrong shape or type.
    """
    array = np.asarray(table)
    is_table = array.ndim == 2 and array.size > 0
    has_integers = array.dtype.kind in "iu"
    if not is_table or not has_integers or array.min() < 0:
        raise ConfigError(
            f"all_slates must be an array [S, k] of integers >= 0, found shape {array.shape},"
            f" {array.dtype}."
        )
    return array.astype(np.int64)


@lru_cache(maxsize=64)
def selections(items: int, places: int) -> Slates:
    """Return all ordered selections of k distinct items, in lexicographic order."""
    rows = list(itertools.permutations(range(items), places))
    return Slates(np.array(rows, np.int64), items)


def slates_of(
    all_slates: Slates | ArrayLike | None,
    nvec: Sequence[int] | None,
    action_space: Space[Any] | None,
) -> Slates:
    """Return the given list of slates, all slates of `nvec`, or all slates of the action space.

    Raises:
        ConfigError: None of the arguments is given.
        UnsupportedSpaceError: The space has no slates, or too many.
    """
    if isinstance(all_slates, Slates):
        return all_slates
    if all_slates is not None:
        return Slates(all_slates)
    if nvec is None:
        if action_space is None:
            raise ConfigError("SlateMultiCategorical needs all_slates, nvec or action_space.")
        nvec = slate_nvec(SpaceInfo.read(action_space, "action"))
    return selections(int(nvec[0]), len(nvec))
