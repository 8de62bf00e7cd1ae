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
        shape=lambda x: x.shape,
        at_least=lambda x, least: x.clamp(min=least),
        first=lambda taken, x: x.gather(-1, taken.to(x.dtype).argmax(dim=-1, keepdim=True)).squeeze(
            -1
        ),
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
        if (
            func is Tensor.__len__
            and self._suspects is not None
            and isinstance(args[0].shape[0], torch.SymInt)
        ):
            line = line_of(traceback.extract_stack(), torch, rlcatalog_torch)
            self._suspects.append(line or "len(x)")
        if (draw := _DRAWS.get(func)) is None:
            if func in _REFUSED:
                raise NotServedError(f"export: {func.__name__}() cannot sample from given noise.")
            return func(*args, **kwargs)
        return draw(self, *args, **kwargs)

    def numbers(self, columns: Any, shape: Any, dtype: Any) -> Tensor:
        """Return the next columns of the noise, excluding 0 and 1, with the given
        shape and dtype.
        """
        return torch.as_tensor(columns).clamp(LEAST, MOST).reshape(tuple(shape)).to(dtype)


# --- replacements of PyTorch's functions ----------------------------------------------------------


def _sized(args: tuple[Any, ...], size: Any) -> tuple[Any, ...]:
    if size is not None:
        args = (size,)
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], tuple | list) else args


def _dtype(dtype: torch.dtype | None) -> torch.dtype:
    return dtype or torch.get_default_dtype()


def _uniform_(
    d: TorchNoise, x: Tensor, a: Any = 0.0, b: Any = 1.0, *, generator: Any = None, **kwargs: Any
) -> Tensor:
    a, b = kwargs.get("from", a), kwargs.get("to", b)
    drawn = d.uniform(x.shape, x.dtype)
    return x.copy_(drawn if (a, b) == (0.0, 1.0) else drawn * (b - a) + a)


def _bernoulli(d: TorchNoise, x: Tensor, p: Any = None, *, generator: Any = None) -> Any:
    return (d.uniform(x.shape, x.dtype) < (x if p is None else p)).to(x.dtype)


def _normal(
    d: TorchNoise, mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None, **_: Any
) -> Any:
    given: list[Tensor] = [x for x in (mean, std) if isinstance(x, Tensor)]
    if size is not None or not given:
        drawn = d.normal(tuple(size or ()), torch.get_default_dtype())
    else:
        drawn = d.normal((given[0] + given[-1]).shape, given[0].dtype)
    return drawn * std + mean


def _multinomial(
    d: TorchNoise, probs: Tensor, count: int, replacement: bool = False, *, generator: Any = None
) -> Any:
    if count > 1 and not replacement:
        raise NotServedError(
            "export: torch.multinomial() of several values needs replacement=True to be exported."
        )
    shape = (*probs.shape[:-1], count, probs.shape[-1])
    # Exponential clocks with rates `probs`: the first to ring is the sample.
    clocks = -d.uniform(shape, probs.dtype).log() / probs.unsqueeze(-2)
    return clocks.argmin(dim=-1)


def _dirichlet(d: TorchNoise, concentration: Tensor, generator: Any = None) -> Any:
    drawn = d.gamma(concentration)
    return drawn / drawn.sum(-1, keepdim=True)


#: PyTorch function → its replacement. If it takes a generator, it is not replaced.
_DRAWS: dict[Any, Callable[..., Any]] = {
    torch.rand: lambda d, *args, size=None, dtype=None, **_: d.uniform(
        _sized(args, size), _dtype(dtype)
    ),
    torch.randn: lambda d, *args, size=None, dtype=None, **_: d.normal(
        _sized(args, size), _dtype(dtype)
    ),
    torch.rand_like: lambda d, x, *, dtype=None, **_: d.uniform(x.shape, dtype or x.dtype),
    torch.randn_like: lambda d, x, *, dtype=None, **_: d.normal(x.shape, dtype or x.dtype),
    Tensor.uniform_: _uniform_,
    Tensor.normal_: lambda d, x, mean=0.0, std=1.0, **_: x.copy_(
        d.normal(x.shape, x.dtype) * std + mean
    ),
    Tensor.exponential_: lambda d, x, lambd=1.0, **_: x.copy_(
        -d.uniform(x.shape, x.dtype).log() / lambd
    ),
    Tensor.bernoulli_: lambda d, x, p=0.5, **_: x.copy_(
        (d.uniform(x.shape, torch.float32) < p).to(x.dtype)
    ),
    **dict.fromkeys((Tensor.bernoulli, torch.bernoulli), _bernoulli),
    torch.normal: _normal,
    **dict.fromkeys((Tensor.multinomial, torch.multinomial), _multinomial),
    standard_gamma: lambda d, concentration, generator=None: d.gamma(concentration),
    sample_dirichlet: _dirichlet,
}

_REFUSED = {
    torch.randint, torch.randint_like, torch.randperm, torch.poisson, torch.binomial,
    Tensor.random_, Tensor.cauchy_, Tensor.geometric_, Tensor.log_normal_,
}  # fmt: skip
