"""A user's model with a loss of its own, which some engines refuse."""

from __future__ import annotations

import torch
from torch import nn

from rlcatalog_torch import TorchModelV2


class WithCustomLoss(TorchModelV2, nn.Module):
    """A model with a loss of its own."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.layer = nn.Linear(3, num_outputs)

    def forward(self, input_dict, state, seq_lens):
        self.rows = len(input_dict["obs"])
        return self.layer(input_dict["obs"]), state

    def value_function(self):
        return torch.zeros(self.rows)

    def custom_loss(self, policy_loss, loss_inputs):
        return policy_loss
