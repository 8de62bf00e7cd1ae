"""Tensor operations in PyTorch; see `rlcatalog.frameworks.TensorOps` for their documentation."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional as F

from rlcatalog.actions import Interval, interval
from rlcatalog.frameworks import TensorOps, TensorTree
from rlcatalog.spaces import parts_of
from rlcatalog_torch.dtypes import FLOATS, HALF, limits_of
from rlcatalog_torch.private_api import cached_constant, many_cached_constants

#: Highest finite numbers by dtype, because `torch.finfo` takes longer than an operation on one row.
_HIGHEST = {dtype: torch.finfo(dtype).max for dtype in FLOATS}


def flatten_rows(x: Tensor) -> Tensor:
    """Reshape `[B]` or `[B, ...]` to `[B, n]`; B can be 0, in which case `reshape` cannot infer a
    `-1`.
    """
    if x.ndim == 1:
        return x[:, None]
    return x.flatten(1)


def flat_sample(sample: TensorTree) -> Tensor:
    """Return a sample in its stored form: a structure's parts as `[B, width]`, or a single tensor
    unchanged.
    """
    if isinstance(sample, Tensor):
        return sample
    parts = [flatten_rows(part) for part in parts_of(sample) or []]
    has_several_dtypes = len({part.dtype for part in parts}) > 1
    if has_several_dtypes:
        # Half precision does not represent all choices, float32 does.
        parts = [part if part.dtype is torch.float64 else part.float() for part in parts]
    return torch.cat(parts, dim=1)


@cached_constant
def _order(order: tuple[int, ...], device: torch.device) -> Tensor:
    # Cached, so it must not be an inference tensor, which training cannot use.
    with torch.inference_mode(False):
        return torch.tensor(order, dtype=torch.int64, device=device)


@many_cached_constants
def _constant(data: bytes, dtype: str, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Return an array, given by its bytes, as a tensor on a device."""
    array = np.frombuffer(data, dtype).reshape(shape).copy()
    # Cached, so it must not be an inference tensor, which training cannot use.
    with torch.inference_mode(False):
        tensor = torch.from_numpy(array)
        return tensor.to(device, _dtype_on(device, tensor.dtype))


#: Dtype and device → zeros; the longest vector that was needed so far.
_ZEROS: dict[tuple[torch.dtype, torch.device], Tensor] = {}


def _zeros(like: Tensor) -> Tensor:
    """Return zeros in the form of a vector; do not write to them."""
    key = (like.dtype, like.device)
    size = like.shape[0]
    zeros = _ZEROS.get(key)
    if zeros is None or zeros.shape[0] < size:
        # Kept, so it must not be an inference tensor, which training cannot use.
        with torch.inference_mode(False):
            zeros = torch.zeros(size, dtype=like.dtype, device=like.device)
        _ZEROS[key] = zeros
    return zeros[:size]


def _dtype_on(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """Return a dtype that a device has: Apple's GPUs have no float64, so it is float32 there."""
    if dtype is torch.float64 and device.type == "mps":
        return torch.float32
    return dtype


@cached_constant
def tensor_interval(
    low: Hashable, high: Hashable, size: int, dtype: torch.dtype, device: torch.device
) -> Interval:
    """Return the result of `rlcatalog.actions.interval` as tensors on a device."""
    dtype_name = str(dtype).removeprefix("torch.")
    bounds = interval(low, high, size, dtype_name)
    # Cached, so they must not be inference tensors, which training cannot use.
    with torch.inference_mode(False):
        tensors = {
            name: torch.tensor(array, device=device)
            for name, array in bounds._asdict().items()
            if name != "log_volume"  # a Python number
        }
    return bounds._replace(**tensors)


class TorchOps(TensorOps):
    """The operations in PyTorch."""

    framework = "torch"

    def reshape(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        if len(shape) == 1:
            return x
        return x.reshape(x.shape[:-1] + shape)

    def integers(self, x: Tensor) -> Tensor:
        return x.long()

    def side_by_side(self, pieces: Sequence[Tensor]) -> Tensor:
        if len({piece.dtype for piece in pieces}) > 1:
            # Half precision does not represent all integers.
            pieces = [piece.float() if piece.dtype in HALF else piece for piece in pieces]
        return torch.cat(tuple(pieces), 1)

    def fill_forbidden(self, inputs: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask.bool(), inputs, limits_of(inputs).lowest)

    def array(self, x: Tensor) -> Any:
        """Return a tensor as an array, or None if it has no values yet."""
        if torch.compiler.is_compiling():
            return None
        try:
            x = x.detach().cpu()
            if x.dtype is torch.bfloat16:
                x = x.float()
            return x.numpy()
        except RuntimeError:
            # Inside the transforms of torch.func, a tensor has no values.
            return None

    def tensor(self, value: Any, like: Tensor | None = None) -> Tensor:
        device = None if like is None else like.device
        return torch.as_tensor(value, device=device)

    def booleans(self, value: Any, like: Tensor) -> Tensor:
        return torch.as_tensor(value, device=like.device).bool()

    def constant(self, value: ArrayLike, like: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return torch.as_tensor(value, device=like.device)  # compiled code keeps it
        array = np.asarray(value)
        return _constant(array.tobytes(), array.dtype.str, array.shape, like.device)

    def copy(self, x: Tensor) -> Tensor:
        return x.clone()

    def is_array(self, value: Any) -> bool:
        return isinstance(value, (Tensor, np.ndarray))

    def dtype_name(self, x: Tensor) -> str:
        return str(x.dtype).removeprefix("torch.")

    def is_float(self, x: Tensor) -> bool:
        return x.is_floating_point()

    def is_half(self, x: Tensor) -> bool:
        return x.dtype in HALF

    def cast(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return x.to(dtype)

    def as_type(self, x: Tensor, name: str) -> Tensor:
        # PyTorch's dtypes are attributes of its module, by name.
        return x.to(_dtype_on(x.device, getattr(torch, name)))

    def whole(self, x: Tensor) -> Tensor:
        if x.is_floating_point():
            return x.round().long()
        return x

    def finite(self, x: Tensor) -> Tensor:
        return x.clamp(-_HIGHEST[x.dtype], _HIGHEST[x.dtype])

    def flat(self, x: Tensor) -> Tensor:
        return flatten_rows(x)

    def rows(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return x.reshape(-1, *shape)

    def in_rows(self, value: Any, like: Tensor, width: int) -> Tensor | None:
        tensor = torch.as_tensor(value, device=like.device)
        if tensor.numel() != like.shape[0] * width:
            return None
        return tensor.reshape(like.shape[0], width)

    def columns(self, values: Sequence[Tensor]) -> Tensor:
        first = values[0].dtype
        if all(value.ndim == 1 and value.dtype is first for value in values):
            return torch.stack(tuple(values), dim=1)
        return self.side_by_side([flatten_rows(value) for value in values])

    def columns_at(self, x: Tensor, places: Any) -> Tensor:
        if not isinstance(places, Tensor):
            places = self.constant(np.asarray(places, np.int64), x)
        return x.index_select(1, places)

    def entries_at(self, x: Tensor, places: Tensor) -> Tensor:
        return x.gather(1, places)

    def cut(self, x: Tensor, how: Any) -> tuple[Tensor, ...]:
        if how.order is not None:
            x = x.index_select(1, _order(how.order, x.device))
        return x.split_with_sizes(how.widths, 1)

    def each_row(self, x: Tensor, count: int) -> Tensor:
        return x.repeat_interleave(count, dim=0)

    def all_rows(self, x: Tensor, like: Tensor) -> Tensor:
        return x.repeat(like.shape[0], 1)

    def padded(self, x: Tensor, width: int) -> Tensor:
        return F.pad(x, (0, width - x.shape[1]))

    def taken(self, lengths: Tensor, places: int) -> Tensor:
        return torch.arange(places, device=lengths.device) < lengths[:, None]

    def only(self, taken: Tensor, x: Tensor) -> Tensor:
        missing_axes = [1] * (x.ndim - taken.ndim)
        return torch.where(taken.reshape(*taken.shape, *missing_axes), x, 0)

    def concat(self, values: Sequence[Tensor], axis: int = 0) -> Tensor:
        return torch.cat(tuple(values), axis)

    def any(self, x: Tensor) -> Tensor:
        return x.any(dim=1)

    def all(self, x: Tensor) -> Tensor:
        return x.all()

    def all_finite(self, values: Sequence[Tensor]) -> Tensor:
        # Zero times a finite number is 0, and NaN otherwise. This sum of products takes a fraction
        # of the time of `isfinite`, and unlike a sum of squares, it never overflows.
        total = None
        for x in values:
            if not x.is_floating_point():
                continue
            if x.requires_grad:
                x = x.detach()
            flat = x.reshape(-1)
            if flat.dtype in HALF:
                flat = flat.float()
            products = flat.dot(_zeros(flat))
            total = products if total is None else total + products
        if total is None:
            return _constant(b"\1", "bool", (), values[0].device)
        return total == 0

    def where(self, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return torch.where(condition, x, y)

    def expand(self, x: Tensor, rows: int) -> Tensor:
        return x.expand(rows, *x.shape)

    def one_hot(self, x: Tensor, n: int) -> Tensor:
        return (x[:, None] == torch.arange(n, device=x.device)).float()

    def argmax(self, x: Tensor) -> Tensor:
        return x.argmax(dim=1)

    def total(self, values: Sequence[Tensor]) -> Tensor:
        return reduce(operator.add, values)

    def sum(
        self, x: Tensor, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
    ) -> Tensor:
        return torch.sum(x, axis, keepdim=keepdims)

    def mean(
        self, x: Tensor, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
    ) -> Tensor:
        return torch.mean(x, axis, keepdim=keepdims)

    def std(self, x: Tensor) -> Tensor:
        return torch.std(x)

    def exp(self, x: Tensor) -> Tensor:
        return torch.exp(x)

    def minimum(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.minimum(x, y)

    def maximum(self, x: Tensor, y: Any) -> Tensor:
        if isinstance(y, Tensor):
            return torch.maximum(x, y)
        return x.clamp(min=y)

    def clip(self, x: Tensor, low: Any, high: Any) -> Tensor:
        return torch.clamp(x, low, high)

    def scaled(self, x: Tensor, offset: Tensor, factor: Tensor, low: Any, high: Any) -> Tensor:
        # In place, after a conversion of its own: both together save three quarters of the time.
        values = x.to(offset.dtype, copy=True)
        values.sub_(offset).mul_(factor)
        if low is not None:
            values.clamp_(low, high)
        return values.float()

    def without_gradient(self, x: Tensor) -> Tensor:
        return x.detach()


OPS: TensorOps = TorchOps()
