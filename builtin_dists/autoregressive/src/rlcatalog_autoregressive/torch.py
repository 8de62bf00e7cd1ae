"""The autoregressive head and its distribution in PyTorch."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from rlcatalog.errors import ActionMaskError
from rlcatalog.frameworks import tensor_ops
from rlcatalog.models import DenseSpec, last_values, output_plan
from rlcatalog_autoregressive.joint import JointDistribution
from rlcatalog_autoregressive.made.torch import Conditionals
from rlcatalog_autoregressive.part_columns import ActionPart
from rlcatalog_autoregressive.refusals import nothing_left, served_columns
from rlcatalog_torch import OutputLayers, TorchModelV2, dense, features_of


class AutoregressiveDistribution(JointDistribution):
    """P(a₁) P(a₂ | a₁) … P(aₙ | a₁ … aₙ₋₁); see `JointDistribution`."""

    framework_of_class = "torch"
    ops = tensor_ops("torch")

    @staticmethod
    def no_gradient() -> AbstractContextManager[Any]:
        """Return the context in which actions are drawn."""
        return torch.no_grad()

    @staticmethod
    def differentiable() -> bool:
        """Whether what is computed now can be differentiated later."""
        return torch.is_grad_enabled()

    @staticmethod
    def check_allowed(mask: Tensor, params: Tensor, part: ActionPart) -> None:
        """Raise where a row leaves nothing of a part; what is forbidden in its parameters already counts.

        Raises:
            ActionMaskError: It names the row.
        """
        largest = torch.finfo(params.dtype).max / 2
        free = params > -largest
        if part.bits:
            free = torch.stack([params < largest, free], dim=2).flatten(1)
        if part.bits or part.masks.single:  # else parameters stand for combinations, and have no such columns
            mask = mask & free
        left = torch.stack([choice.any(dim=1) for _, choice in part.masks.by_choice(mask)], dim=1).all(dim=1)
        if not bool(left.all()):
            raise ActionMaskError(nothing_left(int(left.long().argmin()), part.path))


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
