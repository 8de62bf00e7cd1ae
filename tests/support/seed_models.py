"""Models of RLlib's page that several files of the contract's tests use, imports changed."""

from __future__ import annotations

import torch
from torch import nn

from rlcatalog_torch import RecurrentNetwork, TorchModelV2


class TorchRNN(RecurrentNetwork, nn.Module):
    """RLlib's example of a recurrent model in PyTorch."""

    def __init__(
        self, obs_space, action_space, num_outputs, model_config, name, fc_size=8, lstm_state_size=6
    ):
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.lstm_state_size = lstm_state_size
        self.fc1 = nn.Linear(obs_space.shape[0], fc_size)
        self.lstm = nn.LSTM(fc_size, lstm_state_size, batch_first=True)
        self.action_branch = nn.Linear(lstm_state_size, num_outputs)
        self.value_branch = nn.Linear(lstm_state_size, 1)
        self._features = None

    def get_initial_state(self):
        return [self.fc1.weight.new_zeros(self.lstm_state_size) for _ in range(2)]

    def value_function(self):
        return torch.reshape(self.value_branch(self._features), [-1])

    def forward_rnn(self, inputs, state, seq_lens):
        x = torch.relu(self.fc1(inputs))
        self._features, [h, c] = self.lstm(x, [state[0].unsqueeze(0), state[1].unsqueeze(0)])
        return self.action_branch(self._features), [h.squeeze(0), c.squeeze(0)]


class DuelingQModel(TorchModelV2):
    """The page's example of an API on top of a default model: a dueling head."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        # A trunk: its width is what the heads below read.
        super(DuelingQModel, self).__init__(obs_space, action_space, None, model_config, name)  # noqa: UP008
        self.A = nn.Linear(self.num_outputs, action_space.n)
        self.V = nn.Linear(self.num_outputs, 1)

    def get_q_values(self, underlying_output):
        v, a = self.V(underlying_output), self.A(underlying_output)
        return v + (a - a.mean(dim=1, keepdim=True))
