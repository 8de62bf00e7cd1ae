"""The weights of a model's parts in PyTorch, which of them training has changed, and a module that
also has batch statistics.
"""

from __future__ import annotations

import torch
from torch import nn

from rlcatalog.internals import ModelParts


class Normalized(nn.Module):
    """Module with batch statistics and dropout."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))

    def forward(self, x):
        return self.layers(x)


def copy_tensors(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def names_of(model, *parts):
    """Return the names of the weights in parts of a catalog model."""
    all_parts = ModelParts(model)
    names = set()
    for part in parts:
        names |= set(all_parts.select(part, "test").names.values())
    return names


def find_changes(model, before):
    """Return the names of the weights and buffers that differ from earlier copies."""
    after = model.state_dict()
    return {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}
