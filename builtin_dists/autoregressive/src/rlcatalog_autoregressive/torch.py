"""The autoregressive head, its conditionals and its distribution in PyTorch."""

from __future__ import annotations

from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlcatalog.errors import ActionMaskError
from rlcatalog.models import DenseSpec
from rlcatalog_autoregressive.head import AutoregressiveHead
from rlcatalog_autoregressive.joint import JointDistribution, nothing_left
from rlcatalog_autoregressive.part_columns import ActionPart, PartColumns
from rlcatalog_torch import (
    OPS,
    OutputLayers,
    TorchDistribution,
    TorchModelV2,
    activation,
    dense,
    features_of,
    flatten_rows,
    initialize,
)


class Conditionals(nn.Module):
    """MADE layers (Germain et al. 2015) that add the effect of earlier action parts to the
    parameters of later ones.

    All computations use the context's dtype, which distributions may widen. One pass over all parts
    and a pass part by part therefore differ by rounding.

    `context [B, hidden] + masked weights · earlier parts → activation → … → [B, params]`. Units are
    assigned to the parts in sampling order, so that each part needs only its own units and those of
    earlier parts.

    Args:
        layout: The parts.
    """

    first: Tensor
    last: Tensor
    source: Tensor
    is_choice: Tensor
    value: Tensor
    shift: Tensor
    scale: Tensor
    hidden: Any  # a list of linear layers

    def __init__(self, layout: PartColumns) -> None:
        super().__init__()
        self.layout = layout
        self.activation = activation(layout.activation) or nn.Identity()
        widths = layout.hiddens
        self.actions = _weight(widths[0], len(layout.columns), 1.0)
        self.hidden = nn.ModuleList(dense(n, DenseSpec(m)) for n, m in pairwise(widths))
        self.params = _weight(layout.params, widths[-1], 0.01)
        first, between, last = layout.masks
        arrays = {
            "first": first,
            "last": last,
            **{f"between_{i}": mask for i, mask in enumerate(between)},
        }
        arrays |= zip(
            ("source", "is_choice", "value", "shift", "scale"), layout.encoding, strict=True
        )
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(array), persistent=False)
        self._all_choices = bool(layout.encoding[1].all())

    def encoded(
        self,
        raw: Tensor,
        dtype: torch.dtype | None = None,
        columns: slice = slice(None),
        start: int = 0,
    ) -> Tensor:
        """Return the encoding `[B, encoded]` of raw actions `[B, raw]`: one-hot vectors and scaled
        numbers.

        Args:
            raw: Raw values from the column `start` onwards.
            dtype: The dtype of the result. Default: the weights' dtype.
            columns: Encoded columns to return.
            start: See `raw`.
        """
        numbers, dtype = (
            raw.index_select(1, self.source[columns] - start),
            dtype or self.actions.dtype,
        )
        chosen = (numbers == self.value[columns]).to(dtype)
        if self._all_choices:
            return chosen
        shift, scale = self.shift[columns].to(dtype), self.scale[columns].to(dtype)
        return torch.where(self.is_choice[columns], chosen, (numbers.to(dtype) - shift) * scale)

    def given(self, context: Tensor, raw: Tensor) -> Tensor:
        """Return the effect `[B, params]` of whole actions on the parameters, in one pass.

        Args:
            context: `[B, hidden]`.
            raw: Raw actions `[B, raw]`.
        """
        dtype = context.dtype
        weight = self.actions * self.first
        x = self.activation(torch.addmm(context, self.encoded(raw, dtype), weight.to(dtype).t()))
        for i, layer in enumerate(self.hidden):
            weight = layer.weight * getattr(self, f"between_{i}")
            x = self.activation(F.linear(x, weight.to(dtype), layer.bias.to(dtype)))
        weight = self.params * self.last
        return F.linear(x, weight.to(dtype))


class Run:
    """Pass over the parts in sampling order that computes each unit once, without gradients.

    Args:
        made: The conditionals.
        independent: The parameters `[B, params]` that the parts would have if they were
            independent.
        context: `[B, hidden]`.
    """

    def __init__(self, made: Conditionals, independent: Tensor, context: Tensor) -> None:
        self.made, self.activation, self.dtype, layout = (
            made,
            made.activation,
            context.dtype,
            made.layout,
        )
        # Slice only once: a slice costs as much as a sum over it.
        self.independent = independent.split_with_sizes(layout.param_widths, 1)
        self.rows = made.actions.to(self.dtype).t().split_with_sizes(layout.encoded_widths, 0)
        self.out = made.params.to(self.dtype).split_with_sizes(layout.param_widths, 0)
        self.sums = context.clone()
        self.blocks = self.sums.split_with_sizes(layout.unit_widths[0], 1)
        self.layers = [
            (layer.weight.to(self.dtype), layer.bias.to(self.dtype)) for layer in made.hidden
        ]
        self.done = [context.new_empty(context.shape[0], width) for width in layout.hiddens]

    def params(self, part: ActionPart) -> Tensor:
        """Return a part's parameters `[B, n]`, given the raw values added so far."""
        done, stop = self.done[0], part.units[0].stop
        done[:, part.units[0]] = self.activation(self.blocks[part.rank])
        for (weight, bias), units, later in zip(
            self.layers, part.units[1:], self.done[1:], strict=True
        ):
            later[:, units] = self.activation(
                F.linear(done[:, :stop], weight[units, :stop], bias[units])
            )
            done, stop = later, units.stop
        return torch.addmm(
            self.independent[part.place], done[:, :stop], self.out[part.place][:, :stop].t()
        )

    def note(self, part: ActionPart, value: Tensor) -> None:
        """Add a part's raw values, `[B]` or `[B, width]`, so that later parts see them."""
        if part.single:  # adding its row of weights is enough
            self.sums += self.rows[part.place].index_select(0, value)
            return
        seen = self.made.encoded(flatten_rows(value), self.dtype, part.encoded, part.raw.start)
        self.sums += torch.mm(seen, self.rows[part.place])


def _weight(outputs: int, inputs: int, std: float) -> nn.Parameter:
    return nn.Parameter(initialize(torch.empty(outputs, inputs), "normc", {"std": std}))


class AutoregressiveDistribution(TorchDistribution, JointDistribution):
    """Product P(a₁) P(a₂ | a₁) … P(aₙ | a₁ … aₙ₋₁); see `JointDistribution`."""

    run_class = Run

    @staticmethod
    def no_gradient() -> AbstractContextManager[Any]:
        """Return a context manager for sampling actions."""
        return torch.no_grad()

    @staticmethod
    def differentiable() -> bool:
        """Return whether current results may be differentiated later."""
        return torch.is_grad_enabled()

    @staticmethod
    def check_allowed(mask: Tensor, params: Tensor, part: ActionPart) -> None:
        """Raise an error if a row allows no value of a part, counting values that its parameters
        already forbid.

        Raises:
            ActionMaskError: A row allows no value; the message names the row.
        """
        largest = torch.finfo(params.dtype).max / 2
        free = params > -largest
        if part.bits:
            free = torch.stack([params < largest, free], dim=2).flatten(1)
        # Otherwise, parameters belong to combinations and have no such columns.
        if part.bits or part.masks.single:
            mask = mask & free
        left = torch.stack(
            [choice.any(dim=1) for _, choice in part.masks.by_choice(mask)], dim=1
        ).all(dim=1)
        if not bool(left.all()):
            raise ActionMaskError(nothing_left(int(left.long().argmin()), part.path))


class AutoregressiveModel(AutoregressiveHead, TorchModelV2):
    """Head for actions whose parts depend on each other; see `AutoregressiveHead`."""

    ops, conditionals_class, features_of = OPS, Conditionals, staticmethod(features_of)
    dense_class, outputs_class = staticmethod(dense), OutputLayers
