"""Column layouts for the logits of several choices, computed once per tuple of counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import ArrayLike

from rlcatalog import SpaceInfo
from rlcatalog.actions import action_codec
from rlcatalog.errors import ConfigError, ModelContractError
from rlcatalog.frameworks import Array
from rlcatalog_categorical.plugin import input_lens as counts_of_space


@dataclass(frozen=True, eq=False)
class ChoiceColumns:
    """Layout that turns logits `[B, total]` into `[B, k, longest]`.

    Attributes:
        counts: Number of values of each choice.
        longest: The largest number of values of any choice.
        total: The sum of the numbers of values.
        padded_columns: The column of the logits for each of the `k · longest` places, where `total`
            stands for padding. None if all choices have the same number of values, because
            reshaping the logits is then enough.
    """

    counts: tuple[int, ...]
    longest: int
    total: int
    padded_columns: Array | None

    def wrong_width(self, shape: Sequence[int]) -> ModelContractError:
        """Return the error for inputs of a shape that does not contain one logit for each value."""
        return ModelContractError(
            f"MultiCategorical with input_lens {self.counts} requires inputs [B, {self.total}],"
            f" found {tuple(shape)}."
        )

    def check_actions(self, shape: Sequence[Any], batch_size: int | None) -> None:
        """Raise an error unless a shape has one action per row; None means an unknown size.

        Raises:
            ModelContractError: The actions do not have this shape.
        """
        rows = shape[0] if len(shape) else -1  # a scalar has no rows, and fits no batch
        has_one_per_row = batch_size is None or rows is None or rows == batch_size
        width = None
        if None not in shape[1:]:
            width = math.prod(shape[1:])
        has_all_choices = width is None or width == len(self.counts)
        if has_one_per_row and has_all_choices:
            return
        expected_rows = batch_size or "B"
        raise ModelContractError(
            f"MultiCategorical: expected actions [{expected_rows}, {len(self.counts)}], or a"
            f" list of {len(self.counts)} tensors [{expected_rows}], found shape"
            f" {tuple(shape)}."
        )

    def check_same(self, other: ChoiceColumns) -> None:
        """Raise an error unless another distribution has the same choices, as required for a KL
        divergence.

        Raises:
            ModelContractError: The choices differ.
        """
        if self.counts != other.counts:
            raise ModelContractError(
                f"MultiCategorical.kl(): input_lens differ: {self.counts} and {other.counts}."
            )


@lru_cache(maxsize=256)
def layout_of(counts: tuple[int, ...]) -> ChoiceColumns:
    """Return the layout for the numbers of values of the choices.

    Raises:
        ConfigError: There are no numbers, or one is below 1.
    """
    counts = tuple(int(n) for n in counts)
    if not counts or min(counts) < 1:
        raise ConfigError(
            f"input_lens must contain at least one number, each at least 1; found {counts}."
        )
    longest = max(counts)
    total = sum(counts)
    have_same_count = min(counts) == longest
    if have_same_count:
        return ChoiceColumns(counts, longest, total, padded_columns=None)
    counts_in_rows = np.array(counts)[:, None]
    starts = np.cumsum(counts)[:, None] - counts_in_rows
    values = np.arange(longest)
    # `total`, one more than the last column, stands for padding.
    columns = np.where(values < counts_in_rows, starts + values, total)
    return ChoiceColumns(counts, longest, total, padded_columns=columns.reshape(-1))


def choices(action: SpaceInfo, counts: tuple[int, ...]) -> list[SpaceInfo]:
    """Return each choice as a Discrete space that starts at 0, in C order."""
    paths = action_codec(action).paths
    return [
        SpaceInfo("discrete", path, shape=(), dtype="int64", n=n)
        for path, n in zip(paths, counts, strict=True)
    ]


def counts_of(input_lens: ArrayLike | None, action_space: Space[Any] | None) -> tuple[int, ...]:
    """Return the given numbers of values, or else the action space's, as a tuple in C order.

    Raises:
        ConfigError: Neither argument is given.
        UnsupportedSpaceError: The space has no such numbers.
    """
    if input_lens is not None:
        return tuple(int(n) for n in np.asarray(input_lens).reshape(-1).tolist())
    if action_space is None:
        raise ConfigError(
            "MultiCategorical needs input_lens (the number of values of each choice) or"
            " action_space."
        )
    return counts_of_space(SpaceInfo.read(action_space, "action"))
