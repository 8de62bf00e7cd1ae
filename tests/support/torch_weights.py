"""Weights of PyTorch modules before and after training."""

import torch


def copy_weights(module):
    """Return a module's weights by name, as they are now."""
    return {name: weight.detach().clone() for name, weight in module.named_parameters()}


def assert_every_weight_changed(module, before):
    """Check that training changed each weight, and that all of them are finite.

    Args:
        module: The module after training.
        before: Its weights before, from `copy_weights`.
    """
    assert before
    for name, weight in module.named_parameters():
        assert weight.isfinite().all(), name
        assert not torch.equal(weight, before[name]), name
