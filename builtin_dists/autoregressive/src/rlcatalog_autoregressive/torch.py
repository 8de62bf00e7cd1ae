"""The autoregressive head, its conditionals and its distribution in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlcatalog.config import Initializer
from rlcatalog.errors import ActionMaskError
from rlcatalog.models import hidden_spec, init_recipe
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
        config: The flat model config, whose key `init` names the initial values.
    """

    first: Tensor
    last: Tensor
    source: Tensor
    is_choice: Tensor
    value: Tensor
    shift: Tensor
    scale: Tensor
    hidden: Any  # a list of linear layers

    def __init__(self, layout: PartColumns, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.layout = layout
        self.activation = activation(layout.activation) or nn.Identity()
        widths = layout.hidden_widths
        recipe = init_recipe(config)
        self.actions = _weight(widths[0], len(layout.columns), recipe.hidden)
        self.hidden = nn.ModuleList(
            dense(inputs, hidden_spec(outputs, config)) for inputs, outputs in pairwise(widths)
        )
        # Small weights: a new model's parts are almost independent.
        self.params = _weight(layout.num_params, widths[-1], recipe.logits)
        # Constants, not weights: they move between devices with the model and are not saved.
        constants = {"first": layout.masks.first, "last": layout.masks.last}
        for i, mask in enumerate(layout.masks.between):
            constants[f"between_{i}"] = mask
        constants |= layout.encoding._asdict()  # buffers `source`, `is_choice` and others
        for name, array in constants.items():
            self.register_buffer(name, torch.from_numpy(array), persistent=False)
        self._has_only_choices = bool(layout.encoding.is_choice.all())

    def encode(
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
            start: The raw column with which `raw` begins.
        """
        dtype = dtype or self.actions.dtype
        numbers = raw.index_select(1, self.source[columns] - start)
        one_hots = (numbers == self.value[columns]).to(dtype)
        if self._has_only_choices:
            return one_hots
        shift = self.shift[columns].to(dtype)
        scale = self.scale[columns].to(dtype)
        return torch.where(self.is_choice[columns], one_hots, (numbers.to(dtype) - shift) * scale)

    def effects(self, context: Tensor, raw: Tensor) -> Tensor:
        """Return the effect `[B, params]` of whole actions on the parameters, in one pass.

        Args:
            context: `[B, hidden]`.
            raw: Raw actions `[B, raw]`.
        """
        dtype = context.dtype
        weight = self.actions * self.first
        x = self.activation(torch.addmm(context, self.encode(raw, dtype), weight.to(dtype).t()))
        for i, layer in enumerate(self.hidden):
            weight = layer.weight * getattr(self, f"between_{i}")
            x = self.activation(F.linear(x, weight.to(dtype), layer.bias.to(dtype)))
        weight = self.params * self.last
        return F.linear(x, weight.to(dtype))


class Run:
    """Pass over the parts in sampling order that computes each unit once, without gradients.

    Args:
        conditionals: The conditionals.
        independent: The parameters `[B, params]` that the parts would have if they were
            independent.
        context: `[B, hidden]`.
    """

    def __init__(self, conditionals: Conditionals, independent: Tensor, context: Tensor) -> None:
        layout = conditionals.layout
        dtype = context.dtype
        self.conditionals = conditionals
        self.activation = conditionals.activation
        self.dtype = dtype
        # Split all tensors by part once: a slice costs as much as a sum over it.
        self.independent = independent.split_with_sizes(layout.param_widths, dim=1)
        action_weights = conditionals.actions.to(dtype).t()
        self.action_weights = action_weights.split_with_sizes(layout.encoded_widths, dim=0)
        param_weights = conditionals.params.to(dtype)
        self.param_weights = param_weights.split_with_sizes(layout.param_widths, dim=0)
        #: The first layer's inputs, to which each part's values are added, and views of them by
        #: part.
        self.sums = context.clone()
        widths_in_first_layer = layout.unit_widths[0]
        self.sums_of_parts = self.sums.split_with_sizes(widths_in_first_layer, dim=1)
        self.layers = []
        for layer in conditionals.hidden:
            self.layers.append((layer.weight.to(dtype), layer.bias.to(dtype)))
        #: Outputs of the units in each layer; those of later parts are not computed yet.
        self.outputs = [
            context.new_empty(context.shape[0], width) for width in layout.hidden_widths
        ]

    def params(self, part: ActionPart) -> Tensor:
        """Return a part's parameters `[B, n]`, given the raw values added so far."""
        # Each layer reads the units of this part and of earlier ones: the first `stop` columns.
        outputs = self.outputs[0]
        first_units = part.units[0]
        stop = first_units.stop
        outputs[:, first_units] = self.activation(self.sums_of_parts[part.rank])
        for (weight, bias), units, next_outputs in zip(
            self.layers, part.units[1:], self.outputs[1:], strict=True
        ):
            sums = F.linear(outputs[:, :stop], weight[units, :stop], bias[units])
            next_outputs[:, units] = self.activation(sums)
            outputs = next_outputs
            stop = units.stop
        weight = self.param_weights[part.place_in_space][:, :stop]
        return torch.addmm(self.independent[part.place_in_space], outputs[:, :stop], weight.t())

    def add(self, part: ActionPart, value: Tensor) -> None:
        """Add a part's raw values, `[B]` or `[B, width]`, so that later parts see them."""
        if part.is_scalar:
            # A one-hot vector times the weights is one row of the weights.
            self.sums += self.action_weights[part.place_in_space].index_select(0, value)
            return
        columns = self.conditionals.encode(
            flatten_rows(value), self.dtype, part.encoded, part.raw.start
        )
        self.sums += torch.mm(columns, self.action_weights[part.place_in_space])


def _weight(outputs: int, inputs: int, initializer: Initializer) -> nn.Parameter:
    return nn.Parameter(initialize(torch.empty(outputs, inputs), *initializer))


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
    def check_allowed(  # type: ignore[override]
        mask: Tensor, params: Tensor, part: ActionPart
    ) -> None:
        """Raise an error if a row allows no value of a part, counting values that its parameters
        already forbid.

        Raises:
            ActionMaskError: A row allows no value; the message names the row. On other devices than
                the CPU, nothing is checked, because the check would wait for the device.
        """
        if not mask.is_cpu:
            return
        # A forbidden value's logit is the lowest finite number, to which the effect of earlier
        # parts may have been added; beyond half of it, a logit counts as forbidden.
        largest_logit = torch.finfo(params.dtype).max / 2
        is_free = params > -largest_logit
        if part.is_bits:
            # A bit's logit forbids 0 if it is very high, and 1 if it is very low.
            is_free = torch.stack([params < largest_logit, is_free], dim=2).flatten(1)
        # Otherwise, logits belong to combinations of choices, while a mask has a column for each
        # value of each choice.
        has_logit_per_column = part.is_bits or part.masks.has_single_choice
        if has_logit_per_column:
            mask = mask & is_free
        choices = [allows_value for _, allows_value in part.masks.allowing(mask)]
        allows_any = torch.stack(choices, dim=1).all(dim=1)
        if not bool(allows_any.all()):
            first_without = int(allows_any.long().argmin())  # the first False
            raise ActionMaskError(nothing_left(first_without, part.path))


class AutoregressiveModel(AutoregressiveHead, TorchModelV2):
    """Head for actions whose parts depend on each other; see `AutoregressiveHead`."""

    ops = OPS
    conditionals_class = Conditionals
    features_of = staticmethod(features_of)
    dense_class = staticmethod(dense)
    outputs_class = OutputLayers
