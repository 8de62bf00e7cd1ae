"""The weights of a model's parts in PyTorch, and which of them training has changed."""

from __future__ import annotations

import torch

from rlcatalog.internals import ModelParts


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
