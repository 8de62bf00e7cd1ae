"""Column layouts for the logits of several choices, computed once per tuple of lengths."""

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
from rlcatalog_categorical.plugin import input_lens as lens_of_space


@dataclass(frozen=True, eq=False)
class ChoiceColumns:
    """Layout that turns logits `[B, total]` into `[B, k, longest]`.

    Attributes:
        lens: Number of values of each choice.
        longest: The largest number of values of any choice.
        total: The sum of the numbers of values.
        padded_columns: The column of the logits for each of the `k · longest` places, where `total`
            stands for padding. None if all choices have the same number of values, because
            reshaping the logits is then enough.
    """

    lens: tuple[int, ...]
    longest: int
    total: int
    padded_columns: Array | None

    def wrong_width(self, shape: Sequence[int]) -> ModelContractError:
        """Return the error for inputs of a shape that does not contain one logit for each value."""
        return ModelContractError(
            f"MultiCategorical with input_lens {self.lens} requires inputs [B, {self.total}],"
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
        has_all_choices = width is None or width == len(self.lens)
        if has_one_per_row and has_all_choices:
            return
        expected_rows = batch_size or "B"
        raise ModelContractError(
            f"MultiCategorical: expected actions [{expected_rows}, {len(self.lens)}], or a"
            f" list of {len(self.lens)} tensors [{expected_rows}], found shape"
            f" {tuple(shape)}."
        )

    def check_same(self, other: ChoiceColumns) -> None:
        """Raise an error unless another distribution has the same choices, as required for a KL
        divergence.

        Raises:
            ModelContractError: The choices differ.
        """
        if self.lens != other.lens:
            raise ModelContractError(
                f"MultiCategorical.kl(): input_lens differ: {self.lens} and {other.lens}."
            )


@lru_cache(maxsize=256)
def layout_of(lens: tuple[int, ...]) -> ChoiceColumns:
    """Return the layout for a tuple of lengths.

    Raises:
        ConfigError: There are no lengths, or a length is below 1.
    """
    lens = tuple(int(n) for n in lens)
    if not lens or min(lens) < 1:
        raise ConfigError(
            f"input_lens must contain at least one number, each at least 1; found {lens}."
        )
    longest = max(lens)
    total = sum(lens)
    have_same_length = min(lens) == longest
    if have_same_length:
        return ChoiceColumns(lens, longest, total, padded_columns=None)
    counts = np.array(lens)[:, None]
    starts = np.cumsum(lens)[:, None] - counts
    values = np.arange(longest)
    # `total`, one more than the last column, stands for padding.
    columns = np.where(values < counts, starts + values, total)
    return ChoiceColumns(lens, longest, total, padded_columns=columns.reshape(-1))


def choices(action: SpaceInfo, lens: tuple[int, ...]) -> list[SpaceInfo]:
    """Return each choice as a Discrete space that starts at 0, in C order."""
    paths = action_codec(action).paths
    return [
        SpaceInfo("discrete", path, shape=(), dtype="int64", n=n)
        for path, n in zip(paths, lens, strict=True)
    ]


def lens_of(input_lens: ArrayLike | None, action_space: Space[Any] | None) -> tuple[int, ...]:
    """Return the given lengths, or else the action space's lengths, as a tuple in C order.

    Raises:
        ConfigError: Neither argument is given.
        UnsupportedSpaceError: The space has no such lengths.
    """
    if input_lens is not None:
        return tuple(int(n) for n in np.asarray(input_lens).reshape(-1).tolist())
    if action_space is None:
        raise ConfigError(
            "MultiCategorical needs input_lens (the number of values of each choice) or"
            " action_space."
        )
    return lens_of_space(SpaceInfo.read(action_space, "action"))
