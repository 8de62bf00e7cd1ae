"""Noise that replaces random generators as the source of randomness, which makes a policy a pure
function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Tensor

#: Number of proposals in Marsaglia and Tsang's method for a Gamma distribution; each is rejected
#: with a probability below 1/20.
_GAMMA_TRIES = 8
#: Smallest distance of noise from 0 and 1, where logarithms are infinite.
LEAST = 2.0**-25
MOST = 1 - 2.0**-24


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
        self, rows: Any, uniforms: Tensor | None = None, widths: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        self.rows = rows
        self.uniforms = uniforms
        self.known_widths = widths
        self.widths: list[int] = []
        self._generator = np.random.default_rng(0)  # keep the framework's generator

    def sizes(self, shape: Any) -> Sequence[Any]:
        """Return a shape as a tuple of integers."""
        return tuple(shape)

    def numbers(self, columns: Tensor, shape: Sequence[Any] | Tensor, dtype: Any) -> Any:
        """Return the next columns of the noise, excluding 0 and 1, with the given
        shape and dtype.
        """
        raise NotImplementedError

    def uniform(self, shape: Sequence[Any] | Tensor, dtype: Any) -> Any:
        """Return new uniform numbers from the open interval (0, 1)."""
        if self.known_widths is None:
            width = self._width_of(shape)
        else:
            # Draws happen in the same order as when their widths were counted.
            draw = len(self.widths)
            width = self.known_widths[draw]
        start = sum(self.widths)
        self.widths.append(width)
        if self.uniforms is None:
            columns: Any = self._generator.random((self.rows, width), np.float32)
        else:
            columns = self.uniforms[:, start : start + width]
        return self.numbers(columns, shape, dtype)

    def _width_of(self, shape: Any) -> int:
        """Return how many numbers of a draw belong to each row."""
        sizes = tuple(int(n) for n in shape)
        count = math.prod(sizes)
        if not self.rows or count % self.rows:
            raise NotServedError(
                f"export: random numbers of shape {sizes} are drawn for a batch of {self.rows}"
                " rows, but the first axis must index the rows."
            )
        width: int = count // self.rows
        return width

    def normal(self, shape: Sequence[Any] | Tensor, dtype: Any) -> Any:
        """Return standard normal numbers by the Box-Muller method, two for each pair of uniform
        numbers.
        """
        m = self.math
        sizes = self.sizes(shape)
        if len(sizes) > 1:
            *rows, last = sizes
        else:  # one number for each row
            rows = [*sizes]
            last = 1
        pairs = (last + 1) // 2
        uniform = self.uniform((*rows, 2 * pairs), dtype)
        radius = m.sqrt(-2 * m.log(uniform[..., :pairs]))
        angle = uniform[..., pairs:] * (2 * math.pi)
        numbers = m.concat([radius * m.cos(angle), radius * m.sin(angle)], -1)
        # For an odd count, the last pair has one number too many.
        return m.reshape(numbers[..., :last], shape)

    def gamma(self, concentration: Tensor) -> Any:
        """Return Gamma-distributed numbers by Marsaglia and Tsang's method, as the first accepted
        proposal of a few.
        """
        m = self.math
        shape = self.sizes(m.shape(concentration))
        dtype = concentration.dtype
        # The method needs a concentration of at least 1; a smaller one is raised by 1, and the
        # result is scaled at the end (section 6 of the paper). d, x, u and v are the paper's.
        is_small = concentration < 1
        d = m.where(is_small, concentration + 1, concentration) - 1 / 3
        proposals = (*shape, _GAMMA_TRIES)
        x = self.normal(proposals, dtype)
        u = self.uniform(proposals, dtype)
        v = (1 + m.rsqrt(9 * d)[..., None] * x) ** 3
        d_of_proposal = d[..., None]
        positive_v = m.at_least(v, 1e-30)
        bound = 0.5 * x * x + d_of_proposal - d_of_proposal * v + d_of_proposal * m.log(positive_v)
        is_accepted = (v > 0) & (m.log(u) < bound)
        # If all are rejected (probability below 10^-10), use the first.
        gamma = m.first(is_accepted, d_of_proposal * positive_v)
        scale = self.uniform(shape, dtype) ** (1 / m.at_least(concentration, 1e-30))
        return m.where(is_small, gamma * scale, gamma)
