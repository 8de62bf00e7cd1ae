"""The distribution of Tuple and Dict spaces in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcatalog_multi_action.composite import CompositeDistribution
from rlcatalog_multi_action.fusing import Group
from rlcatalog_multi_action.layout import Layout, Leaf

#: Finite limits by dtype; looked up, as `torch.finfo` costs more than an operation on one row.
_HIGHEST = {dtype: torch.finfo(dtype).max for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)}


class MultiActionDistribution(CompositeDistribution):
    """Independent distributions of a Tuple's or Dict's parts, nested to any depth.

    Args:
        inputs: `[B, size]`: the inputs of the parts side by side, in the space's order.
        model: The model that made them, or None; every part is given it.
        child_distributions: What makes the parts' distributions, called with `(inputs, model)`: one for each child of
            the space, or one for each leaf, depth first.
        input_lens: Their numbers of inputs.
        action_space: The Tuple or Dict space.
    """

    framework_of_class = "torch"
    #: Of this very class, not of subclasses: inside another composite, its parts become parts of that one.
    taken_apart = True

    @staticmethod
    def _tensor(value: Any) -> Tensor:
        return value if isinstance(value, Tensor) else torch.as_tensor(value)

    @staticmethod
    def _is_array(value: Any) -> bool:
        return isinstance(value, Tensor | np.ndarray)

    @staticmethod
    def _cut(tensor: Tensor, widths: Sequence[int]) -> Sequence[Tensor]:
        return tensor.split_with_sizes(widths, dim=-1)

    @staticmethod
    def _side_by_side(parts: list[Tensor]) -> Tensor:
        return torch.cat(parts, dim=-1)

    @staticmethod
    def _stack(columns: list[Tensor]) -> Tensor:
        return torch.stack(columns, dim=-1)

    @staticmethod
    def _joined(layout: Layout, parts: list[Any]) -> Tensor:
        return join(layout, parts)

    @staticmethod
    def _apart(layout: Layout, flat: Any) -> Any:
        return split(layout, flat)

    @staticmethod
    def _maker(group: Group) -> Callable[[Any, Any], Any]:
        dist, runs = group.dist, group.inputs
        gathered = MultiActionDistribution._gathered
        return lambda inputs, model: dist(gathered(inputs, runs), model)

    @staticmethod
    def _column(tensor: Tensor, column: int) -> Tensor:
        return tensor.select(1, column)

    @staticmethod
    def _columns(tensor: Tensor, start: int, width: int) -> Tensor:
        return tensor.narrow(1, start, width)

    @staticmethod
    def _gathered(tensor: Tensor, runs: tuple[tuple[int, int], ...]) -> Tensor:
        if len(runs) == 1:
            start, stop = runs[0]
            return tensor if stop - start == tensor.shape[1] else tensor.narrow(1, start, stop - start)
        return tensor.index_select(1, _index(_columns_of(runs), tensor.device))

    @staticmethod
    def _widened(mask: Tensor, columns: tuple[int, ...]) -> Tensor:
        return torch.nn.functional.pad(mask, (0, 1), value=True).index_select(1, _index(columns, mask.device))

    def _rows(self, value: Tensor, width: int) -> Tensor:
        return value.reshape(self.inputs.shape[0], width)

    @staticmethod
    def _total(values: list[Tensor]) -> Tensor:
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total

    @staticmethod
    def _finite(value: Tensor) -> Tensor:
        return value.clamp(-_HIGHEST[value.dtype], _HIGHEST[value.dtype])

    def _of_flat(self, flat: Any) -> list[Tensor]:
        flat = torch.as_tensor(flat, device=self.inputs.device)
        layout = self.layout
        if flat.shape != (rows := self.inputs.shape[0], layout.width):
            layout.check_flat(flat.shape, rows)
        parts = [self._gathered(flat, group.raw) for group in layout.groups]
        if layout.some_whole and flat.is_floating_point():
            for i, group in enumerate(layout.groups):
                if group.whole:
                    parts[i] = parts[i].round().long()
        return parts

    def _part(self, leaf: Leaf, value: Any) -> Any:
        if leaf.inner is not None and not self._is_array(value):
            return value
        value = torch.as_tensor(value, device=self.inputs.device)
        if value.numel() != (rows := self.inputs.shape[0]) * leaf.width:
            self.layout.check_part(leaf, value.numel(), rows, value.shape)
        return value.round().long() if leaf.whole and value.is_floating_point() else value


@lru_cache(maxsize=256)
def _columns_of(runs: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    return tuple(column for run in runs for column in range(*run))


@lru_cache(maxsize=256)
def _index(columns: tuple[int, ...], device: torch.device) -> Tensor:
    # Kept for later calls, so it must not be an inference tensor, which training cannot use.
    with torch.inference_mode(False):
        return torch.tensor(columns, dtype=torch.int64, device=device)


def join(layout: Layout, actions: Any) -> Tensor:
    """Return raw actions as one flat tensor `[B, width]`.

    Whole numbers alone stay int64; beside floats of half precision they make it float32, which holds them exactly.

    Args:
        layout: Of the space.
        actions: The space's structure, or a flat list of the leaves' actions.
    """
    rows = []
    for leaf, part in zip(layout.leaves, layout.parts(actions), strict=True):
        if leaf.inner is not None and not isinstance(part, Tensor | np.ndarray):
            part = join(leaf.inner, part)
        part = torch.as_tensor(part)
        rows.append(part.reshape(part.shape[0], leaf.width))
    dtype = rows[0].dtype
    for part in rows[1:]:
        dtype = torch.promote_types(dtype, part.dtype)
    if layout.some_whole and dtype in (torch.float16, torch.bfloat16):
        dtype = torch.float32
    return torch.cat([part.to(dtype) for part in rows], dim=1)


def split(layout: Layout, flat: Any) -> Any:
    """Return flat raw actions `[B, width]` as the space's structure: int64 `[B]` for Discrete, else `[B, k]`.

    Args:
        layout: Of the space.
        flat: The actions, a tensor or an array.

    Raises:
        ModelContractError: They have another width.
    """
    flat = torch.as_tensor(flat)
    layout.check_flat(flat.shape, None)
    parts: list[Any] = []
    for leaf, part in zip(layout.leaves, _by_leaf(layout, flat), strict=True):
        if leaf.inner is not None:
            parts.append(split(leaf.inner, part))
        else:
            parts.append(part.squeeze(1) if leaf.single else part)
    return layout.structure(parts)


def _by_leaf(layout: Layout, flat: Tensor) -> Sequence[Tensor]:
    parts: Sequence[Tensor] = flat.split_with_sizes(layout.widths, dim=1)
    if not layout.some_whole or not flat.is_floating_point():
        return parts
    # All at once: one conversion of the whole is cheaper than one for each part.
    whole = flat.round().long().split_with_sizes(layout.widths, dim=1)
    return [rounded if leaf.whole else part for leaf, part, rounded in zip(layout.leaves, parts, whole, strict=True)]
