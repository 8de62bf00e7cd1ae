"""List of slates that a distribution chooses from."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from rlcatalog import SpaceInfo
from rlcatalog.errors import ActionMaskError, ConfigError, ModelContractError
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

    def __init__(self, table: Any, items: int | None = None) -> None:
        given = np.asarray(table)
        if given.ndim != 2 or not given.size or given.dtype.kind not in "iu" or given.min() < 0:
            raise ConfigError(
                f"all_slates must be an array [S, k] of integers >= 0, found shape {given.shape},"
                f" {given.dtype}."
            )
        self.table = given.astype(np.int64)
        self.items = int(self.table.max()) + 1 if items is None else items
        places = self.table.shape[1]
        if self.items**places >= 2**63 or self.table.max() >= self.items:
            raise ConfigError(
                f"all_slates: slates of {places} out of {self.items} items cannot be numbered in"
                " int64."
            )
        self.weights = np.array(
            [self.items ** (places - 1 - place) for place in range(places)], np.int64
        )
        codes = self.table @ self.weights
        self.order = np.argsort(codes)
        self.codes = codes[self.order]
        if (np.diff(self.codes) == 0).any():
            raise ConfigError("all_slates: the list contains a slate twice.")

    def columns(self, nvec: Sequence[int] | None, mask_columns: int) -> np.ndarray[Any, Any]:
        """Return the mask's column for each entry of the table, `[S, k]`.

        Args:
            nvec: Number of values for each entry of the MultiDiscrete space. If None, the number of
                items for each place.
            mask_columns: Number of columns of the mask.

        Raises:
            ActionMaskError: The mask does not have one column per item and place.
        """
        places = self.table.shape[1]
        counts = np.array(nvec if nvec is not None else [self.items] * places)
        if mask_columns != counts.sum():
            raise ActionMaskError(
                "SlateMultiCategorical: a mask needs one column per item and place: expected"
                f" {counts.sum()} columns, found {mask_columns}."
            )
        columns: np.ndarray[Any, Any] = self.table + (np.cumsum(counts) - counts)
        return columns

    def check_width(self, found: Any) -> None:
        """Raise an error unless inputs of shape `found` contain one logit per slate.

        Raises:
            ModelContractError: The width differs.
        """
        if len(found) != 2 or found[-1] != len(self.table):
            raise ModelContractError(
                f"SlateMultiCategorical over {len(self.table)} slates requires inputs [B,"
                f" {len(self.table)}], found {tuple(found)}."
            )

    def same_as(self, other: Slates) -> None:
        """Raise an error unless another list has the same slates in the same order, as required for
        a KL divergence.

        Raises:
            ModelContractError: The lists differ.
        """
        if other is not self and not np.array_equal(other.table, self.table):
            raise ModelContractError(
                "SlateMultiCategorical.kl(): both distributions need the same list of slates."
            )


@lru_cache(maxsize=64)
def selections(items: int, places: int) -> Slates:
    """Return all ordered selections of k distinct items, in lexicographic order."""
    return Slates(np.array(list(itertools.permutations(range(items), places)), np.int64), items)


def slates_of(all_slates: Any, nvec: Sequence[int] | None, action_space: Any) -> Slates:
    """Return the given list of slates, all slates of `nvec`, or all slates of the action space.

    Raises:
        ConfigError: None of the arguments is given.
        UnsupportedSpaceError: The space has no slates, or too many.
    """
    if all_slates is not None:
        return all_slates if isinstance(all_slates, Slates) else Slates(all_slates)
    if nvec is None:
        if action_space is None:
            raise ConfigError("SlateMultiCategorical needs all_slates, nvec or action_space.")
        nvec = slate_nvec(SpaceInfo.read(action_space, "action"))
    return selections(int(nvec[0]), len(nvec))
