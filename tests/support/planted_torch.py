"""Sound parts in PyTorch, which planted faults are made of."""

from __future__ import annotations

import math

import torch
from planted_parts import Breakable, TwoKinds
from torch import nn

from rlcatalog_torch import TorchModelV2, steps_of


class Net(TorchModelV2):
    """A linear net; as a trunk it ends with its hidden layer."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.hidden = nn.Linear(obs_space.shape[0], 4)
        self.logits = None if num_outputs is None else nn.Linear(4, num_outputs)
        self.value = None if num_outputs is None else nn.Linear(4, 1)
        self.num_outputs = 4 if num_outputs is None else num_outputs

    def forward(self, input_dict, state, seq_lens):
        self.features = torch.tanh(self.hidden(input_dict["obs_flat"].to(self.hidden.weight.dtype)))
        return (self.features if self.logits is None else self.logits(self.features)), state

    def value_function(self):
        return self.value(self.features)[:, 0]

    @classmethod
    def with_hidden_weight(cls):
        class Hiding(cls):
            def __init__(self, *args):
                super().__init__(*args)
                self.layers = [nn.Linear(self.num_outputs, self.num_outputs)]

            def forward(self, *args):
                found, state = super().forward(*args)
                return self.layers[0](found), state

        return Hiding


class Memory(Breakable, TorchModelV2):
    """A recurrent layer around its trunk, which it calls its body."""

    is_memory = True

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, trunk):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.body, self.cell = trunk, nn.Linear(trunk.num_outputs + 3, 3)
        self.logits = None if num_outputs is None else nn.Linear(3, num_outputs)
        self.value = None if num_outputs is None else nn.Linear(3, 1)
        self.num_outputs = num_outputs or 3

    def forward(self, input_dict, state, seq_lens):
        features, _ = self.body(input_dict, [], seq_lens)
        h = self.begun(state[0])
        steps = steps_of(len(features), len(h))
        features = self.prepared(features.reshape(len(h), steps, features.shape[1]))
        states = [None] * steps
        for t in range(steps):
            h = states[t] = torch.tanh(self.cell(torch.cat([features[:, t], h], 1)))
        states = torch.stack(states, 1)
        self.features = states.reshape(-1, 3)
        outputs = self.features if self.logits is None else self.logits(self.features)
        last_steps = seq_lens.long() - 1
        return outputs, [states[torch.arange(len(states)), last_steps]]

    def value_function(self):
        return self.value(self.features)[:, 0]

    def get_initial_state(self):
        return [torch.zeros(3)]


class Head(TorchModelV2):
    """One more layer around its trunk, and a value."""

    def __init__(
        self,
        obs_space,
        action_space,
        num_outputs,
        model_config,
        name,
        *,
        trunk,
        value_trunk,
        action_dist,
    ):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.body, self.layer = trunk, nn.Linear(trunk.num_outputs, num_outputs)
        self.value = nn.Linear(trunk.num_outputs, 1)

    def forward(self, input_dict, state, seq_lens):
        self.features, state = self.body(input_dict, state, seq_lens)
        return self.layer(self.features), state

    def value_function(self):
        return self.value(self.features)[:, 0]

    def get_initial_state(self):
        return self.body.get_initial_state()


class Dist(TwoKinds):
    """Choices for a Discrete, normal numbers for a Box."""

    framework_of_class = "torch"

    def __init__(self, inputs, model=None, discrete=True):
        super().__init__(inputs, model)
        self.discrete = discrete
        if discrete:
            self.logs = inputs.log_softmax(1).clamp(min=torch.finfo(inputs.dtype).min)
        else:
            self.means, logs = inputs.chunk(2, dim=1)
            self.logs = logs.clamp(-self.limit, self.limit)

    def sample(self):
        self.last_sample = self.rsample().detach()
        return self.last_sample

    def rsample(self):
        if self.discrete:
            return torch.multinomial(self.logs.exp(), 1)[:, 0]
        return self.means + self.logs.exp() * torch.randn_like(self.means)

    def deterministic_sample(self):
        self.last_sample = self.logs.argmax(1) if self.discrete else self.means
        return self.last_sample

    def logp(self, actions):
        if self.discrete:
            return self.logs.gather(1, actions.long().reshape(-1, 1))[:, 0]
        z = (actions - self.means) / self.logs.exp()
        return -(0.5 * z**2 + self.logs + 0.5 * math.log(2 * math.pi)).sum(1)

    def entropy(self):
        if self.discrete:
            return -(self.logs.exp() * self.logs).sum(1)
        return (self.logs + 0.5 * math.log(2 * math.pi * math.e)).sum(1)

    def kl(self, other):
        if self.discrete:
            return (self.logs.exp() * (self.logs - other.logs)).sum(1)
        ratio = ((2 * self.logs).exp() + (self.means - other.means) ** 2) / (
            2 * (2 * other.logs).exp()
        )
        return (other.logs - self.logs + ratio - 0.5).sum(1)


model, memory, head, action_dist = Net, Memory, Head, Dist
