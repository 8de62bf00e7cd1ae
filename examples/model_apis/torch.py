"""Model APIs in PyTorch: methods that an algorithm needs, mixed into the model that the
catalog chooses.

Hand a class to `ModelCatalog.get_model_v2(..., model_interface=...)`. Its base at run
time holds the chosen model (a default net, a custom model, a memory around one of them)
and answers `model(...)` and `get_initial_state()` for it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlcatalog_torch import FullyConnectedNetwork, TorchModelV2


class TorchQModel(TorchModelV2):
    """`get_q_values` for a model that puts out one value per action itself."""

    def get_q_values(self, underlying_output: Tensor) -> Tensor:
        """Return the Q-values `[B, n]`: the model's output `[B, n]`, unchanged."""
        return underlying_output


class TorchDuelingQModel(TorchModelV2):
    """A dueling head (Wang et al. 2016) on a trunk: one value per state, one advantage
    per action.
    """

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: Any,
        name: str,
    ):
        # With None, the model ends with its features, and sets their number in
        # self.num_outputs.
        super().__init__(obs_space, action_space, None, model_config, name)
        self.A = nn.Linear(self.num_outputs, int(action_space.n))
        self.V = nn.Linear(self.num_outputs, 1)

    def get_q_values(self, underlying_output: Tensor) -> Tensor:
        """Map features `[B, width]` to Q-values `[B, n]`."""
        advantages = self.A(underlying_output)
        value = self.V(underlying_output)
        # A constant could move between V and A; taking the mean out of A pins it down.
        return value + advantages - advantages.mean(dim=1, keepdim=True)


class TorchContActionQModel(TorchModelV2):
    """The value of one continuous action, as SAC needs it: the action joins the trunk's
    features in a second net.
    """

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: Any,
        name: str,
    ):
        super().__init__(obs_space, action_space, None, model_config, name)
        width = self.num_outputs + math.prod(action_space.shape)
        # A trunk and one linear layer. A whole model would add a value layer that is
        # never trained.
        combined = Box(-np.inf, np.inf, (width,), np.float32)
        self.q_hidden = FullyConnectedNetwork(
            combined,
            action_space,
            num_outputs=None,
            model_config=model_config,
            name=f"{name}_q",
        )
        self.q_value = nn.Linear(self.q_hidden.num_outputs, 1)

    def get_single_q_value(self, underlying_output: Tensor, action: Tensor) -> Tensor:
        """Map features `[B, width]` and actions `[B, ...]` to Q-values `[B, 1]`."""
        joined = torch.cat([underlying_output, action.flatten(1)], dim=1)
        hidden, _ = self.q_hidden({"obs": joined})
        return self.q_value(hidden)
