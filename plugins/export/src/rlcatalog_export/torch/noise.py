"""Noise in PyTorch: a context in which PyTorch's random functions use given uniform numbers.

In this context, a policy is a pure function of its inputs and the noise, which can be exported as a
graph. PyTorch has no switch for this, so the mode replaces each function that samples.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import rlcatalog_torch
from rlcatalog.errors import NotServedError
from rlcatalog_export.export_error import line_of
from rlcatalog_export.noise import LEAST, MOST, Noise
from rlcatalog_torch.private_api import sample_dirichlet, standard_gamma


def _shape(x: Tensor) -> torch.Size:
    return x.shape


def _at_least(x: Tensor, least: float) -> Tensor:
    return x.clamp(min=least)


def _first(is_chosen: Tensor, x: Tensor) -> Tensor:
    """Return the first chosen value along the last axis, or the first value if none is chosen."""
    place = is_chosen.to(x.dtype).argmax(dim=-1, keepdim=True)
    return x.gather(-1, place).squeeze(-1)


class TorchNoise(Noise, TorchFunctionMode):
    """Noise for PyTorch, and a context in which PyTorch's functions sample from it.

    Args:
        rows: See `Noise`.
        uniforms: See `Noise`.
        widths: See `Noise`.
        suspects: List that collects the lines that turn the batch size, which must stay variable,
            into a constant.
    """

    math = SimpleNamespace(
        log=torch.log,
        sqrt=torch.sqrt,
        rsqrt=torch.rsqrt,
        cos=torch.cos,
        sin=torch.sin,
        where=torch.where,
        concat=torch.cat,
        reshape=torch.reshape,
        shape=_shape,
        at_least=_at_least,
        first=_first,
    )

    def __init__(
        self,
        rows: Any,
        uniforms: Any = None,
        widths: Sequence[int] | None = None,
        suspects: list[str] | None = None,
    ) -> None:
        super().__init__(rows, uniforms, widths)
        self._suspects = suspects

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a PyTorch function or its replacement."""
        kwargs = kwargs or {}
        if func is Tensor.__len__ and self._suspects is not None:
            # len() must return a number, so it fixes a batch size that should stay variable.
            if isinstance(args[0].shape[0], torch.SymInt):
                line = line_of(traceback.extract_stack(), torch, rlcatalog_torch)
                self._suspects.append(line or "len(x)")
        draw = _DRAWS.get(func)
        if draw is not None:
            return draw(self, *args, **kwargs)
        if func in _REFUSED:
            raise NotServedError(f"export: {func.__name__}() cannot sample from given noise.")
        return func(*args, **kwargs)

    def numbers(self, columns: Any, shape: Any, dtype: torch.dtype) -> Tensor:
        """Return the next columns of the noise, excluding 0 and 1, with the given
        shape and dtype.
        """
        return torch.as_tensor(columns).clamp(LEAST, MOST).reshape(tuple(shape)).to(dtype)


# --- replacements of PyTorch's functions ----------------------------------------------------------


def _size_of(args: tuple[Any, ...], size: Any) -> tuple[Any, ...]:
    """Return the shape that a function like `torch.rand` was called with: separate numbers, one
    tuple, or `size=`.
    """
    if size is not None:
        args = (size,)
    if len(args) == 1 and isinstance(args[0], tuple | list):
        return tuple(args[0])
    return args


def _rand(
    noise: TorchNoise,
    *args: Any,
    size: Any = None,
    dtype: torch.dtype | None = None,
    **_ignored: Any,
) -> Any:
    """Replace `torch.rand`."""
    return noise.uniform(_size_of(args, size), dtype or torch.get_default_dtype())


def _randn(
    noise: TorchNoise,
    *args: Any,
    size: Any = None,
    dtype: torch.dtype | None = None,
    **_ignored: Any,
) -> Any:
    """Replace `torch.randn`."""
    return noise.normal(_size_of(args, size), dtype or torch.get_default_dtype())


def _rand_like(
    noise: TorchNoise, x: Tensor, *, dtype: torch.dtype | None = None, **_ignored: Any
) -> Any:
    return noise.uniform(x.shape, dtype or x.dtype)


def _randn_like(
    noise: TorchNoise, x: Tensor, *, dtype: torch.dtype | None = None, **_ignored: Any
) -> Any:
    return noise.normal(x.shape, dtype or x.dtype)


def _uniform_(
    noise: TorchNoise, x: Tensor, low: float = 0.0, high: float = 1.0, **options: Any
) -> Any:
    """Replace `Tensor.uniform_`, which writes into x."""
    # PyTorch's names of the bounds; "from" is a keyword of Python.
    low = options.get("from", low)
    high = options.get("to", high)
    numbers = noise.uniform(x.shape, x.dtype)
    if (low, high) != (0.0, 1.0):
        numbers = numbers * (high - low) + low
    return x.copy_(numbers)


def _normal_(
    noise: TorchNoise, x: Tensor, mean: float = 0.0, std: float = 1.0, **_ignored: Any
) -> Any:
    return x.copy_(noise.normal(x.shape, x.dtype) * std + mean)


def _exponential_(noise: TorchNoise, x: Tensor, lambd: float = 1.0, **_ignored: Any) -> Any:
    return x.copy_(-noise.uniform(x.shape, x.dtype).log() / lambd)


def _bernoulli_(noise: TorchNoise, x: Tensor, p: Tensor | float = 0.5, **_ignored: Any) -> Any:
    is_one = noise.uniform(x.shape, torch.float32) < p
    return x.copy_(is_one.to(x.dtype))


def _bernoulli(
    noise: TorchNoise, x: Tensor, p: Tensor | float | None = None, **_ignored: Any
) -> Any:
    """Replace `torch.bernoulli`; x has the probabilities, unless p is given."""
    probability = x if p is None else p
    is_one = noise.uniform(x.shape, x.dtype) < probability
    return is_one.to(x.dtype)


def _normal(
    noise: TorchNoise,
    mean: Tensor | float,
    std: Tensor | float = 1.0,
    size: Sequence[int] | None = None,
    **_ignored: Any,
) -> Any:
    """Replace `torch.normal`; the numbers have the shape of the tensors, or else `size`."""
    tensors: list[Tensor] = [x for x in (mean, std) if isinstance(x, Tensor)]
    if size is not None or not tensors:
        numbers = noise.normal(tuple(size or ()), torch.get_default_dtype())
    else:
        shape = (tensors[0] + tensors[-1]).shape  # two tensors are broadcast
        numbers = noise.normal(shape, tensors[0].dtype)
    return numbers * std + mean


def _multinomial(
    noise: TorchNoise, probs: Tensor, count: int, replacement: bool = False, **_ignored: Any
) -> Any:
    """Replace `torch.multinomial`."""
    if count > 1 and not replacement:
        raise NotServedError(
            "export: torch.multinomial() of several values needs replacement=True to be exported."
        )
    shape = (*probs.shape[:-1], count, probs.shape[-1])
    # Exponential clocks with rates `probs`: the first to ring is the sample.
    clocks = -noise.uniform(shape, probs.dtype).log() / probs.unsqueeze(-2)
    return clocks.argmin(dim=-1)


def _standard_gamma(noise: TorchNoise, concentration: Tensor, generator: Any = None) -> Any:
    return noise.gamma(concentration)


def _dirichlet(noise: TorchNoise, concentration: Tensor, generator: Any = None) -> Any:
    numbers: Tensor = noise.gamma(concentration)
    return numbers / numbers.sum(-1, keepdim=True)


#: PyTorch function → its replacement, which ignores a generator.
_DRAWS: dict[Any, Callable[..., Any]] = {
    torch.rand: _rand,
    torch.randn: _randn,
    torch.rand_like: _rand_like,
    torch.randn_like: _randn_like,
    torch.normal: _normal,
    torch.bernoulli: _bernoulli,
    torch.multinomial: _multinomial,
    Tensor.uniform_: _uniform_,
    Tensor.normal_: _normal_,
    Tensor.exponential_: _exponential_,
    Tensor.bernoulli_: _bernoulli_,
    Tensor.bernoulli: _bernoulli,
    Tensor.multinomial: _multinomial,
    standard_gamma: _standard_gamma,
    sample_dirichlet: _dirichlet,
}

_REFUSED = {
    torch.randint, torch.randint_like, torch.randperm, torch.poisson, torch.binomial,
    Tensor.random_, Tensor.cauchy_, Tensor.geometric_, Tensor.log_normal_,
}  # fmt: skip
