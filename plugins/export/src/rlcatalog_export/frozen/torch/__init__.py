"""Policies of PyTorch's, frozen: what one does in a step, recorded, and the engine that repeats it."""

from rlcatalog_export.frozen.torch.engine import FrozenTorch

__all__ = ["FrozenTorch"]
