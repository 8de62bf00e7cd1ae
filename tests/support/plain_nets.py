"""Plain modules of PyTorch, for spaces of every kind, and examples of them for the
conformance kit.
"""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from rlcatalog_testing import Example

VECTOR = spaces.Box(-1, 1, (4,), np.float32)


def width_of(space):
    """Return how many numbers `PlainNet` reads of a space: of an image the mean of each channel."""
    if isinstance(space, spaces.Box):
        return 3 if len(space.shape) == 3 else int(np.prod(space.shape))
    return sum(map(width_of, space.values() if isinstance(space, spaces.Dict) else space))


class PlainNet(nn.Module):
    """All that is observed side by side, of images the mean of each of three channels, and one
    layer.
    """

    def __init__(self, space, hidden=6):
        super().__init__()
        self.layer = nn.Linear(width_of(space), hidden)

    def forward(self, obs):
        return torch.tanh(self.layer(self.joined(obs)))

    def joined(self, obs):
        if isinstance(obs, torch.Tensor):
            return (obs.mean(dim=(2, 3)) if obs.ndim == 4 else obs.flatten(1)).to(
                self.layer.weight.dtype
            )
        return torch.cat(
            [self.joined(part) for part in (obs.values() if isinstance(obs, dict) else obs)], dim=1
        )


class PlainPair(nn.Module):
    """A plain module that gives logits and value itself."""

    def __init__(self, space, num_outputs):
        super().__init__()
        self.layer = nn.Linear(width_of(space), num_outputs + 1)

    def forward(self, obs):
        both = self.layer(obs)
        return both[:, :-1], both[:, -1:]


class PlainMemory(nn.Module):
    """A memory of one step, whose state is a dict."""

    def __init__(self, width, hidden=5):
        super().__init__()
        self.hidden = hidden
        self.layer = nn.Linear(width + hidden, hidden)

    def initial_state(self, batch_size):
        return {"h": self.layer.weight.new_zeros(batch_size, self.hidden)}

    def forward(self, x, state):
        h = torch.tanh(self.layer(torch.cat([x, state["h"]], dim=1)))
        return h, {"h": h}


def examples():
    image = spaces.Box(0, 255, (5, 7, 3), np.uint8)
    return [
        Example(VECTOR, spaces.Discrete(3, start=1)),
        Example(image, spaces.Box(-1, 1, (2,))),
        Example(
            spaces.Dict({"a": VECTOR, "b": spaces.Discrete(3), "c": image}), spaces.Discrete(2)
        ),
    ]


def pair_examples():
    return [Example(VECTOR, spaces.Discrete(3, start=1)), Example(VECTOR, spaces.Box(-1, 1, (2,)))]


# --- with one fault each --------------------------------------------------------------------------


class Centred(PlainNet):
    def forward(self, obs):
        features = super().forward(obs)
        return features - features.mean(dim=0)


class IdleLayer(PlainNet):
    def __init__(self, space):
        super().__init__(space)
        self.idle = nn.Linear(2, 2)


class LeaksBetweenRows(PlainMemory):
    def forward(self, x, state):
        y, state = super().forward(x, state)
        return y - y.mean(dim=0), state


class ForgetsItsState(PlainMemory):
    def forward(self, x, state):
        return super().forward(x, self.initial_state(len(x)))


class KeepsAState(PlainNet):
    def forward(self, obs):
        return super().forward(obs), [torch.zeros(2)]
