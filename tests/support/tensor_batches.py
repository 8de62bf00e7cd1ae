"""Batches of random values as arrays and as tensors, and a mode that refuses transfers between
devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch.utils._pytree import tree_leaves

from rlcatalog.observations import stack
from rlcatalog.spaces import SpaceInfo, map_tensors
from rlcatalog_torch.private_api import OperationMode


def sample_batch(space: spaces.Space[Any], *, rows: int, seed: int = 0) -> Any:
    """Return random values of a space in the form that a vector environment returns."""
    space.seed(seed)
    samples = [space.sample() for _ in range(rows)]
    return stack(SpaceInfo.read(space), samples)


def to_tensors(values: Any, device: str = "cpu") -> Any:
    """Return a structure of arrays as tensors that share no memory with them."""

    def to_tensor(array: Any) -> torch.Tensor:
        return torch.from_numpy(np.array(array)).to(device)

    return map_tensors(values, to_tensor)


def assert_same_as_tensors(tensors: Any, arrays: Any, *, atol: float = 0.0) -> None:
    """Check that tensors have the structure, shapes, dtypes and numbers of arrays."""
    if arrays is None:
        assert tensors is None
    elif isinstance(arrays, dict):
        assert tensors.keys() == arrays.keys()
        for key in arrays:
            assert_same_as_tensors(tensors[key], arrays[key], atol=atol)
    elif isinstance(arrays, tuple):
        assert len(tensors) == len(arrays)
        for tensor, array in zip(tensors, arrays, strict=True):
            assert_same_as_tensors(tensor, array, atol=atol)
    else:
        assert isinstance(tensors, torch.Tensor)
        numbers = tensors.detach().numpy()
        # PyTorch has few operations for wider unsigned integers, so these are int64.
        wide = {"uint16": "int64", "uint32": "int64", "uint64": "int64"}
        assert numbers.dtype.name == wide.get(arrays.dtype.name, arrays.dtype.name)
        np.testing.assert_allclose(numbers, arrays.astype(numbers.dtype), rtol=0, atol=atol)


class NoTransfers(OperationMode):
    """Context in which each operation must stay on one device.

    On "meta", which has no numbers, reading a number raises an error by itself. An operation on a
    tensor of the CPU beside tensors of "meta", such as an upload, raises an AssertionError here.
    """

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        devices = set()
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, torch.Tensor):
                devices.add(leaf.device.type)
        assert devices <= {"meta"}, f"{operation} on {sorted(devices)}"
        return result
