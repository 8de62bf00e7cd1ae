"""Sound parts in PyTorch, which planted faults are made of."""

from __future__ import annotations

import torch
from torch import nn

from rlcatalog import ActionDistribution
from rlcatalog_torch import TorchModelV2


class Net(TorchModelV2):
    """A linear net; as a trunk it ends with its hidden layer."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.hidden = nn.Linear(obs_space.shape[0], 4)
        self.logits = None if num_outputs is None else nn.Linear(4, num_outputs)
        self.value = nn.Linear(4, 1)
        self.num_outputs = 4 if num_outputs is None else num_outputs

    def forward(self, input_dict, state, seq_lens):
        self.features = torch.tanh(self.hidden(input_dict["obs_flat"]))
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


class Memory(TorchModelV2):
    """A cell around its trunk, which it calls its body."""

    is_memory = True

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, trunk):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.body, self.cell = trunk, nn.GRUCell(trunk.num_outputs, 3)
        self.logits, self.value = nn.Linear(3, num_outputs or 3), nn.Linear(3, 1)
        self.num_outputs = num_outputs or 3

    def forward(self, input_dict, state, seq_lens):
        features, _ = self.body(input_dict, [], seq_lens)
        self.features = self.cell(features, state[0].repeat_interleave(len(features) // len(state[0]), 0))
        return self.logits(self.features), [self.features[: len(state[0])]]

    def value_function(self):
        return self.value(self.features)[:, 0]

    def get_initial_state(self):
        return [torch.zeros(3)]


class Head(TorchModelV2):
    """One more layer around its trunk."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, *, trunk, value_trunk, action_dist):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.body, self.layer = trunk, nn.Linear(trunk.num_outputs, num_outputs)

    def forward(self, input_dict, state, seq_lens):
        features, state = self.body(input_dict, state, seq_lens)
        return self.layer(features), state

    def get_initial_state(self):
        return self.body.get_initial_state()


class Dist(ActionDistribution):
    """Choices for a Discrete, normal numbers for a Box."""

    framework_of_class = "torch"

    def __init__(self, inputs, model=None, discrete=True):
        super().__init__(inputs, model)
        self.discrete = discrete
        if discrete:
            self.dist = torch.distributions.Categorical(logits=inputs)
        else:
            means, logs = inputs.chunk(2, dim=1)
            self.dist = torch.distributions.Independent(torch.distributions.Normal(means, logs.exp()), 1)

    @classmethod
    def options_for(cls, action, config, children=()):
        return {"discrete": action.kind == "discrete"}

    def sample(self):
        self.last_sample = self.dist.sample()
        return self.last_sample

    def rsample(self):
        return self.sample() if self.discrete else self.dist.rsample()

    def deterministic_sample(self):
        return self.inputs.argmax(1) if self.discrete else self.dist.mean

    def logp(self, actions):
        return self.dist.log_prob(actions)

    def entropy(self):
        return self.dist.entropy()

    def kl(self, other):
        return torch.distributions.kl_divergence(self.dist, other.dist)


model, memory, head, action_dist = Net, Memory, Head, Dist
