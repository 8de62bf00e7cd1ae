"""Columns of the logits of several choices, computed once per tuple of lengths."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from rlcatalog import SpaceInfo
from rlcatalog.actions import action_codec
from rlcatalog.errors import ConfigError, ModelContractError
from rlcatalog_categorical.plugin import input_lens as lens_of_space


@dataclass(frozen=True, eq=False)
class ChoiceColumns:
    """How `[B, total]` logits become `[B, k, longest]`.

    Attributes:
        lens: Number of values of each choice.
        longest: The largest of them.
        total: Their sum.
        index: For unequal lengths, the column behind each of the `k · longest` places; `total` behind padding.
    """

    lens: tuple[int, ...]
    longest: int
    total: int
    index: np.ndarray[Any, Any] | None


@lru_cache(maxsize=256)
def layout_of(lens: tuple[int, ...]) -> ChoiceColumns:
    """Return the layout of a tuple of lengths.

    Raises:
        ConfigError: There is none, or one is below 1.
    """
    lens = tuple(int(n) for n in lens)
    if not lens or min(lens) < 1:
        raise ConfigError(f"input_lens must hold at least one number, each at least 1; found {lens}.")
    longest, total = max(lens), sum(lens)
    if min(lens) == longest:
        return ChoiceColumns(lens, longest, total, None)
    counts, column = np.array(lens)[:, None], np.arange(longest)
    index = np.where(column < counts, np.cumsum(lens)[:, None] - counts + column, total)
    return ChoiceColumns(lens, longest, total, index.reshape(-1))


def choices(action: SpaceInfo, lens: tuple[int, ...]) -> list[SpaceInfo]:
    """Return each choice as a Discrete that counts from 0, in C order."""
    paths = action_codec(action).paths
    return [SpaceInfo("discrete", path, (), "int64", n=n) for path, n in zip(paths, lens, strict=True)]


def lens_of(input_lens: Any, action_space: Any) -> tuple[int, ...]:
    """Return the lengths as a tuple: as given, in C order, else those of the action space.

    Raises:
        ConfigError: Neither is given.
        UnsupportedSpaceError: The space has no such lengths.
    """
    if input_lens is not None:
        return tuple(int(n) for n in np.asarray(input_lens).reshape(-1).tolist())
    if action_space is None:
        raise ConfigError("MultiCategorical needs input_lens, the number of values of each choice, or action_space.")
    return lens_of_space(SpaceInfo.read(action_space, "action"))


def check_width(found: Any, layout: ChoiceColumns) -> None:
    """Raise unless inputs of shape `found` hold all logits.

    Raises:
        ModelContractError: They do not.
    """
    if len(found) != 2 or found[-1] != layout.total:
        raise ModelContractError(
            f"MultiCategorical with input_lens {layout.lens} takes inputs [B, {layout.total}], found {tuple(found)}."
        )


def check_actions(found: Any, batch_size: int | None, layout: ChoiceColumns) -> None:
    """Raise unless actions of shape `found` are one per row.

    Raises:
        ModelContractError: They are not.
    """
    values = 1
    for n in found[1:]:
        values = values * n if n is not None and values is not None else None  # type: ignore[assignment]
    rows = found[0] if len(found) else -1
    rows_differ = batch_size is not None and rows is not None and rows != batch_size
    if rows_differ or (values is not None and values != len(layout.lens)):
        raise ModelContractError(
            f"MultiCategorical: expected actions [{batch_size or 'B'}, {len(layout.lens)}], or a list of"
            f" {len(layout.lens)} tensors [{batch_size or 'B'}], found shape {tuple(found)}."
        )


def same_lens(one: ChoiceColumns, other: ChoiceColumns) -> None:
    """Raise unless two distributions have the same choices, as a divergence needs.

    Raises:
        ModelContractError: They have not.
    """
    if one is not other and one.lens != other.lens:
        raise ModelContractError(f"MultiCategorical.kl(): input_lens differ: {one.lens} and {other.lens}.")
