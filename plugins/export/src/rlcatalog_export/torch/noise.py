"""Drawing from given noise: while the mode below is on, what PyTorch would draw is computed from uniform numbers.

So a policy becomes a pure function of its inputs and the noise, whatever draws in it, and a graph of it can be
exported. `torch` has no such switch; the mode replaces the functions that draw, one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from rlcatalog.errors import NotServedError
from rlcatalog_export.torch.export_error import Suspects, here

#: Tries of Marsaglia's and Tsang's way to draw from a Gamma distribution; each is rejected less than once in 20.
_GAMMA_TRIES = 8
#: Noise is kept off 0 and 1, where logs are no numbers.
LEAST, MOST = 2.0**-25, 1 - 2.0**-24


class Drawing(TorchFunctionMode):
    """Draws from noise; without any, draws it and counts how much of it a row takes.

    Args:
        rows: B, the number of rows of the batch.
        noise: Uniform numbers `[B, k]`, or None.
        widths: How many numbers a row each draw takes, from a former count; where the number of rows is not known.
        replaced: More functions to replace, by what.
    """

    def __init__(
        self,
        rows: Any,
        noise: Tensor | None = None,
        widths: list[int] | None = None,
        replaced: Mapping[Any, Callable[..., Any]] | None = None,
    ) -> None:
        super().__init__()
        self.rows, self.noise, self.known = rows, noise, widths
        self.widths: list[int] = []
        self._replaced = replaced or {}
        self._generator = torch.Generator().manual_seed(0)  # PyTorch's own is left as it is
        #: Lines that made a number of the size of the batch.
        self.suspects = Suspects()

    @property
    def width(self) -> int:
        """How many numbers a row has taken so far."""
        return sum(self.widths)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of PyTorch's, or what stands in its place here."""
        kwargs = kwargs or {}
        if func in self._replaced:
            return self._replaced[func](*args, **kwargs)
        if func is Tensor.__len__ and self.known is not None and isinstance(args[0].shape[0], torch.SymInt):
            self.suspects.lines.append(here() or "len(x)")
        draw = _DRAWS.get(func)
        if draw is None:
            if func in _REFUSED:
                raise NotServedError(f"export: nothing here can draw as {func.__name__}() does from given noise.")
            return func(*args, **kwargs)
        return draw(self, *args, **kwargs)

    # --- noise -----------------------------------------------------------------------------------------------------

    def uniform(self, shape: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return uniform numbers from the open interval (0, 1), fresh ones at each call."""
        count = math.prod(shape)
        if self.known is None:
            if not self.rows or count % self.rows:
                raise NotServedError(
                    f"export: numbers of shape {tuple(shape)} are drawn for a batch of {self.rows} rows; each row must"
                    " draw its own."
                )
            own = count // self.rows
        else:
            own = self.known[len(self.widths)]
        at = self.width
        self.widths.append(own)
        if self.noise is None:
            numbers = torch.rand(self.rows, own, generator=self._generator).clamp(LEAST, MOST)
        else:
            numbers = self.noise[:, at : at + own].clamp(LEAST, MOST)
        return numbers.reshape(tuple(shape)).to(dtype)

    def normal(self, shape: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return standard normal numbers, by Box's and Muller's way: two uniform ones for two, side by side."""
        shape = tuple(shape)
        last = shape[-1] if len(shape) > 1 else 1
        half = (last + 1) // 2
        one = shape[:-1] if len(shape) > 1 else shape
        uniform = self.uniform((*one, 2 * half), dtype)
        radius = (-2 * uniform[..., :half].log()).sqrt()
        angle = uniform[..., half:] * (2 * math.pi)
        return torch.cat([radius * angle.cos(), radius * angle.sin()], -1)[..., :last].reshape(shape)

    def exponential(self, shape: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return exponential numbers of rate 1."""
        return -self.uniform(shape, dtype).log()

    def gamma(self, concentration: Tensor) -> Tensor:
        """Return Gamma numbers by Marsaglia's and Tsang's way, the first of a few tries that is not rejected."""
        small = concentration < 1
        a = torch.where(small, concentration + 1, concentration)
        shape, dtype = concentration.shape, concentration.dtype
        d = a - 1 / 3
        c = (9 * d).rsqrt()
        tries = (*shape, _GAMMA_TRIES)
        x, u = self.normal(tries, dtype), self.uniform(tries, dtype)
        v = (1 + c[..., None] * x) ** 3
        wide = d[..., None]
        fits = u.log() < 0.5 * x * x + wide - wide * v + wide * v.clamp(min=1e-30).log()
        taken = (v > 0) & fits
        # Where all are rejected, less than once in 10^10, the first one stands.
        first = taken.to(dtype).argmax(dim=-1, keepdim=True)
        drawn = (wide * v.clamp(min=1e-30)).gather(-1, first).squeeze(-1)
        boost = self.uniform(shape, dtype) ** (1 / concentration.clamp(min=1e-30))
        return torch.where(small, drawn * boost, drawn)


# --- what stands in place of PyTorch's functions ---------------------------------------------------------------------


def _sized(args: tuple[Any, ...], size: Any) -> tuple[Any, ...]:
    if size is not None:
        args = (size,)
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], tuple | list) else args


def _dtype(dtype: torch.dtype | None) -> torch.dtype:
    return dtype or torch.get_default_dtype()


def _uniform_(d: Drawing, x: Tensor, a: Any = 0.0, b: Any = 1.0, *, generator: Any = None, **kwargs: Any) -> Tensor:
    a, b = kwargs.get("from", a), kwargs.get("to", b)
    drawn = d.uniform(x.shape, x.dtype)
    return x.copy_(drawn if (a, b) == (0.0, 1.0) else drawn * (b - a) + a)


def _bernoulli(d: Drawing, x: Tensor, p: Any = None, *, generator: Any = None) -> Tensor:
    return (d.uniform(x.shape, x.dtype) < (x if p is None else p)).to(x.dtype)


def _normal(d: Drawing, mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None, **_: Any) -> Tensor:
    given: list[Tensor] = [x for x in (mean, std) if isinstance(x, Tensor)]
    if size is not None or not given:
        drawn = d.normal(tuple(size or ()), torch.get_default_dtype())
    else:
        drawn = d.normal((given[0] + given[-1]).shape, given[0].dtype)
    scaled: Tensor = drawn * std + mean
    return scaled


def _multinomial(d: Drawing, probs: Tensor, count: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
    if count > 1 and not replacement:
        raise NotServedError("export: torch.multinomial() of several values without replacement cannot be exported.")
    shape = (*probs.shape[:-1], count, probs.shape[-1])
    clocks = d.exponential(shape, probs.dtype) / probs.unsqueeze(-2)  # of rates `probs`: the first to ring is drawn
    return clocks.argmin(dim=-1)


def _dirichlet(d: Drawing, concentration: Tensor, generator: Any = None) -> Tensor:
    drawn = d.gamma(concentration)
    return drawn / drawn.sum(-1, keepdim=True)


#: A function of PyTorch's → what stands in its place. Where it takes a generator, that is left as it is.
_DRAWS: dict[Any, Callable[..., Tensor]] = {
    torch.rand: lambda d, *args, size=None, dtype=None, **_: d.uniform(_sized(args, size), _dtype(dtype)),
    torch.randn: lambda d, *args, size=None, dtype=None, **_: d.normal(_sized(args, size), _dtype(dtype)),
    torch.rand_like: lambda d, x, *, dtype=None, **_: d.uniform(x.shape, dtype or x.dtype),
    torch.randn_like: lambda d, x, *, dtype=None, **_: d.normal(x.shape, dtype or x.dtype),
    Tensor.uniform_: _uniform_,
    Tensor.normal_: lambda d, x, mean=0.0, std=1.0, **_: x.copy_(d.normal(x.shape, x.dtype) * std + mean),
    Tensor.exponential_: lambda d, x, lambd=1.0, **_: x.copy_(d.exponential(x.shape, x.dtype) / lambd),
    Tensor.bernoulli_: lambda d, x, p=0.5, **_: x.copy_((d.uniform(x.shape, torch.float32) < p).to(x.dtype)),
    Tensor.bernoulli: _bernoulli,
    torch.bernoulli: _bernoulli,
    torch.normal: _normal,
    Tensor.multinomial: _multinomial,
    torch.multinomial: _multinomial,
    torch._standard_gamma: lambda d, concentration, generator=None: d.gamma(concentration),
    torch._sample_dirichlet: _dirichlet,
}

_REFUSED = {
    torch.randint, torch.randint_like, torch.randperm, torch.poisson, torch.binomial, Tensor.random_, Tensor.cauchy_,
    Tensor.geometric_, Tensor.log_normal_,
}  # fmt: skip
