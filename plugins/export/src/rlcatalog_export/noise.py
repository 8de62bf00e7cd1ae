"""Noise that replaces random generators as the source of randomness, which makes a policy a pure
function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rlcatalog.errors import NotServedError

#: Number of proposals in Marsaglia and Tsang's method for a Gamma distribution; each is rejected
#: with a probability below 1/20.
_GAMMA_TRIES = 8
#: Smallest distance of noise from 0 and 1, where logarithms are infinite.
LEAST, MOST = 2.0**-25, 1 - 2.0**-24


class Noise:
    """Sampler that draws from given uniform numbers, or else generates and counts the numbers that
    a row needs.

    Args:
        rows: Number of rows B in the batch; None if unknown.
        uniforms: Uniform numbers `[B, k]`, or None.
        widths: Numbers per row for each draw, counted earlier; required if the number of rows is
            unknown.

    Attributes:
        widths: How many random numbers each row needed in each draw so far.
        math: The framework's functions under NumPy's names.
    """

    math: ClassVar[Any]

    def __init__(
        self, rows: Any, uniforms: Any = None, widths: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        self.rows, self.uniforms, self.known_widths = rows, uniforms, widths
        self.widths: list[int] = []
        self._generator = np.random.default_rng(0)  # keep the framework's generator

    def sizes(self, shape: Any) -> Sequence[Any]:
        """Return a shape as a tuple of integers."""
        return tuple(shape)

    def numbers(self, columns: Any, shape: Any, dtype: Any) -> Any:
        """Return the next columns of the noise, excluding 0 and 1, with the given
        shape and dtype.
        """
        raise NotImplementedError

    def uniform(self, shape: Any, dtype: Any) -> Any:
        """Return new uniform numbers from the open interval (0, 1)."""
        if self.known_widths is None:
            sizes = tuple(int(n) for n in shape)
            if not self.rows or math.prod(sizes) % self.rows:
                raise NotServedError(
                    f"export: random numbers of shape {sizes} are drawn for a batch of {self.rows}"
                    " rows, but the first axis must index the rows."
                )
            own = math.prod(sizes) // self.rows
        else:
            own = self.known_widths[len(self.widths)]
        start = sum(self.widths)
        self.widths.append(own)
        if self.uniforms is None:
            return self.numbers(self._generator.random((self.rows, own), np.float32), shape, dtype)
        return self.numbers(self.uniforms[:, start : start + own], shape, dtype)

    def normal(self, shape: Any, dtype: Any) -> Any:
        """Return standard normal numbers by the Box-Muller method, two for each pair of uniform
        numbers.
        """
        m, sizes = self.math, self.sizes(shape)
        *rows, last = sizes if len(sizes) > 1 else (*sizes, 1)
        half = (last + 1) // 2
        uniform = self.uniform((*rows, 2 * half), dtype)
        radius, angle = m.sqrt(-2 * m.log(uniform[..., :half])), uniform[..., half:] * (2 * math.pi)
        return m.reshape(
            m.concat([radius * m.cos(angle), radius * m.sin(angle)], -1)[..., :last], shape
        )

    def gamma(self, concentration: Any) -> Any:
        """Return Gamma-distributed numbers by Marsaglia and Tsang's method, as the first accepted
        proposal of a few.
        """
        m, shape, dtype = self.math, self.sizes(self.math.shape(concentration)), concentration.dtype
        small = concentration < 1
        d = m.where(small, concentration + 1, concentration) - 1 / 3
        tries = (*shape, _GAMMA_TRIES)
        x, u = self.normal(tries, dtype), self.uniform(tries, dtype)
        v = (1 + m.rsqrt(9 * d)[..., None] * x) ** 3
        wide, positive = d[..., None], m.at_least(v, 1e-30)
        taken = (v > 0) & (m.log(u) < 0.5 * x * x + wide - wide * v + wide * m.log(positive))
        # If all are rejected (probability below 10^-10), use the first.
        drawn = m.first(taken, wide * positive)
        boost = self.uniform(shape, dtype) ** (1 / m.at_least(concentration, 1e-30))
        return m.where(small, drawn * boost, drawn)
