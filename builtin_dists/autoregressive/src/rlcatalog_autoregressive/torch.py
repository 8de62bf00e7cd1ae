"""The autoregressive head and its distribution in PyTorch."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcatalog.errors import ActionMaskError, ModelContractError
from rlcatalog.models import DenseSpec, last_values, output_plan
from rlcatalog.spaces import parts_of
from rlcatalog.torch import HALF, OutputLayers, TorchModelV2, dense, features_of, flatten_rows
from rlcatalog_autoregressive.joint import JointDistribution
from rlcatalog_autoregressive.made.torch import Conditionals
from rlcatalog_autoregressive.part_columns import ActionPart
from rlcatalog_autoregressive.refusals import nothing_left, served_columns


class AutoregressiveDistribution(JointDistribution):
    """P(a₁) P(a₂ | a₁) … P(aₙ | a₁ … aₙ₋₁); see `JointDistribution`."""

    framework_of_class = "torch"
    ops = sys.modules[__name__]


class AutoregressiveModel(TorchModelV2):
    """The head for actions whose parts depend on one another, around a trunk or a memory.

    `features → logits of independent parts | context of the conditionals`, `[B, params + hidden]`, and a value that
    reads the same features or, with `vf_share_layers=False`, those of a trunk of its own.

    Args:
        obs_space: See `TorchModelV2`.
        action_space: See `TorchModelV2`.
        num_outputs: See `TorchModelV2`; None: the trunk's features are passed on.
        model_config: See `TorchModelV2`.
        name: See `TorchModelV2`.
        trunk: The model it is built around.
        value_trunk: Another one for the value alone, or None.
        action_dist: The distribution it serves.
    """

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: Any,
        name: str,
        *,
        trunk: TorchModelV2,
        value_trunk: TorchModelV2 | None,
        action_dist: Any,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.trunk, self.value_trunk = trunk, value_trunk
        assert trunk.num_outputs is not None
        width = trunk.num_outputs
        self.outputs = None
        self._features: Tensor | None = None
        if num_outputs is None:
            self.num_outputs = width
            return
        layout = served_columns(action_dist, num_outputs)
        self.outputs = OutputLayers(output_plan(self.model_config, width, [], layout.params))
        self.to_context = dense(width, DenseSpec(layout.hiddens[0]))
        self.conditionals = Conditionals(layout)

    def forward(self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Compute the inputs of the distribution; see `ModelV2.forward`."""
        x, state = features_of(self.trunk, input_dict, state, seq_lens)
        if self.outputs is None:
            return x, state
        self._features = x
        if self.value_trunk is not None:
            self._features, _ = features_of(self.value_trunk, input_dict, [], None)
        return torch.cat([self.outputs(x), self.to_context(x)], dim=1), state

    def value_function(self) -> Tensor:
        """Return the value estimates `[B]` of the last forward pass."""
        return last_values(self, self._features)  # type: ignore[no-any-return]

    def get_initial_state(self) -> list[Any]:
        """Return the trunk's state at the start of an episode."""
        return self.trunk.get_initial_state()


# --- operations ------------------------------------------------------------------------------------------------------


def no_gradient() -> AbstractContextManager[Any]:
    """Return the context in which actions are drawn."""
    return torch.no_grad()


def differentiable() -> bool:
    """Whether what is computed now can be differentiated later."""
    return torch.is_grad_enabled()


def is_array(value: Any) -> bool:
    """Whether a value is one tensor or array, not a structure."""
    return isinstance(value, Tensor | np.ndarray)


def side_by_side(pieces: list[Tensor]) -> Tensor:
    """Return `[B, w]` tensors as one."""
    return torch.cat(pieces, dim=1)


def actions(pieces: list[Tensor]) -> Tensor:
    """Return the raw values of parts, `[B]` or `[B, w]`, side by side: int64 where all are whole, else float32."""
    if all(piece.dtype is torch.int64 and piece.dim() == 1 for piece in pieces):
        return torch.stack(pieces, dim=1)
    rows = [flatten_rows(piece) for piece in pieces]
    if len({row.dtype for row in rows}) > 1:
        rows = [row if row.dtype is torch.float64 else row.float() for row in rows]
    return torch.cat(rows, dim=1)


def stacked(structure: Any) -> Tensor:
    """Return a structure of actions side by side."""
    return actions([torch.as_tensor(part) for part in parts_of(structure) or []])


def rows(values: Any, width: int, like: Tensor) -> Tensor:
    """Return actions as a tensor `[B, width]` where the rows of `like` are.

    Raises:
        ModelContractError: There are more or fewer values.
    """
    found: Tensor = torch.as_tensor(values, device=like.device)
    if found.numel() != like.shape[0] * width:
        raise ModelContractError(
            f"AutoregressiveDistribution: expected actions of shape {(like.shape[0], width)}, found"
            f" {tuple(found.shape)}."
        )
    return found.reshape(like.shape[0], width)


def whole(values: Tensor) -> Tensor:
    """Return whole numbers as int64, rounded where they are stored as floats."""
    return values.round().long() if values.is_floating_point() else values


def is_half(params: Tensor) -> bool:
    """Whether numbers are of half precision."""
    return params.dtype in HALF


def finite(params: Tensor) -> Tensor:
    """Return parameters with what was forbidden at the lowest finite value: half precision may have left it."""
    if params.dtype not in HALF:
        return params
    return params.clamp(torch.finfo(params.dtype).min, torch.finfo(params.dtype).max)


def as_mask(mask: Any, like: Tensor) -> Tensor:
    """Return what a user's function returned as a boolean tensor where `like` is."""
    return torch.as_tensor(mask, device=like.device).bool()


def check_allowed(mask: Tensor, params: Tensor, part: ActionPart) -> None:
    """Raise where a row leaves nothing of a part; what is forbidden in its parameters already counts.

    Raises:
        ActionMaskError: It names the row.
    """
    largest = torch.finfo(params.dtype).max / 2
    free = params > -largest
    if part.bits:
        free = torch.stack([params < largest, free], dim=2).flatten(1)
    if part.bits or len(part.choices) == 1:  # else parameters stand for combinations, and have no such columns
        mask = mask & free
    choices = mask.split_with_sizes(part.choices, dim=1)
    left = torch.stack([choice.any(dim=1) for choice in choices], dim=1).all(dim=1)
    if not bool(left.all()):
        raise ActionMaskError(nothing_left(int(left.long().argmin()), part.path))


def constant(array: Any, like: Tensor) -> Tensor:
    """Return an array as a tensor where `like` is."""
    return torch.as_tensor(array, device=like.device)


def each_row(values: Tensor, count: int) -> Tensor:
    """Return `[B, n]` with each row `count` times: `[B * count, n]`."""
    return values.repeat_interleave(count, dim=0)


def all_rows(values: Tensor, like: Tensor) -> Tensor:
    """Return `[P, n]` as often as `like` has rows: `[B * P, n]`."""
    return values.repeat(like.shape[0], 1)


def in_columns(values: Tensor, count: int) -> Tensor:
    """Return `[B * count]` as `[B, count]`."""
    return values.reshape(-1, count)


def weighted(weights: Tensor, values: Tensor) -> Tensor:
    """Return the sum over columns of weights `[B, P]` times values `[B * P]`: what never happens counts for nothing."""
    values = values.reshape(weights.shape)
    return torch.where(weights > 0, weights * values, 0.0).sum(dim=1)


def total(values: list[Tensor]) -> Tensor:
    """Return the sum of tensors `[B]`."""
    return reduce(add, values)


def exp(values: Tensor) -> Tensor:
    """Return e to the power of `values`."""
    return values.exp()


def stop(values: Tensor) -> Tensor:
    """Return values without gradient."""
    return values.detach()
