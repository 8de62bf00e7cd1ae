"""The complex-input network in PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rlcatalog.frameworks import tensor_ops
from rlcatalog.models import last_values
from rlcatalog.observations import is_structure
from rlcatalog_complex_input.building import NetsInside, build_nets, plan_for
from rlcatalog_complex_input.config import ending
from rlcatalog_complex_input.parts import Inputs, features, read, width
from rlcatalog_complex_input.planning import OneHot
from rlcatalog_torch import DenseStack, OutputLayers, TorchModelV2, dtype_of, flatten_rows

_OPS = tensor_ops("torch")


class ComplexInputNetwork(NetsInside, TorchModelV2):
    """A net for each part of the observation, their features side by side, dense layers, then logits and a value.

    The nets are those that the catalog finds for the parts, or that `input_nets` names. The items of a list go through
    nets they share; the features are averaged over the items there are, and the length of the list is one more
    feature. With `vf_share_layers=False` the value has nets and layers of its own. Built as a trunk
    (`num_outputs=None`) the network ends with the `post_fcnet` layers, or with the features side by side.
    """

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int | None, model_config: Any, name: str
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        plan = plan_for(self)
        self._complex_input_parts = plan.parts
        self.__from_columns = any(part.columns is not None for part in plan.parts)
        self.hots = nn.ModuleList(_Hot(hot) for hot in plan.hots)
        nets = build_nets(self, plan.nets, f"{self.name}_net")
        self.nets = nn.ModuleList(nets)
        layers = ending(self.model_config, width(plan.parts, nets), num_outputs)
        self.num_outputs = layers.outputs
        self.hidden = DenseStack(layers.inputs, layers.hidden)
        self.value_nets = self.value_hidden = self.outputs = None
        self._features: Tensor | None = None
        if num_outputs is not None:
            if not layers.share:
                self.value_nets = nn.ModuleList(build_nets(self, plan.nets, f"{self.name}_value_net"))
                self.value_hidden = DenseStack(layers.inputs, layers.hidden)
            self.outputs = OutputLayers(layers)

    def forward(self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        flat = input_dict["obs_flat"] if self.__from_columns else None
        flat = None if is_structure(flat) else flat
        inputs = read(self._complex_input_parts, input_dict["obs"], flat, _OPS, dtype_of(self), list(self.hots))
        is_training = input_dict.get("is_training", False)
        found: Tensor = self.hidden(self.__joined(self.nets, inputs, is_training))
        if self.outputs is None:
            return found, state
        self._features = found
        if self.value_nets is not None and self.value_hidden is not None:
            self._features = self.value_hidden(self.__joined(self.value_nets, inputs, is_training))
        return self.outputs(found), state

    def __joined(self, nets: nn.ModuleList, inputs: Inputs, is_training: Any) -> Tensor:
        joined: Tensor = features(self._complex_input_parts, inputs, tuple(nets), _OPS, is_training)
        return joined

    def value_function(self) -> Tensor:
        """Return the value estimates `[B]` of the last forward pass."""
        values: Tensor = last_values(self, self._features)
        return values


class _Hot(nn.Module):
    """One-hots of integers `[N, *shape]`, as `[N, n]`."""

    def __init__(self, hot: OneHot) -> None:
        super().__init__()
        self.entries: Tensor
        self.values: Tensor
        self.register_buffer("entries", torch.from_numpy(hot.entries), persistent=False)
        self.register_buffer("values", torch.from_numpy(hot.values), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Set one column per entry."""
        return torch.eq(flatten_rows(x)[:, self.entries], self.values).float()
