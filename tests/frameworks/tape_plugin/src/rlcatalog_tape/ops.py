"""The tensor operations that rlcatalog asks for: those of policies, masks, PPO and the kit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tape
from tape import Array, data_of

from rlcatalog.frameworks import NumpyOps, TensorOps

#: Where an operation only moves or converts numbers, NumPy's own operation says how.
NUMPY = NumpyOps()


class Ops(TensorOps):
    """Operations on tape's arrays; each has a gradient where its result has floats."""

    framework = "tape"

    # --- required of every framework --------------------------------------------------------------

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Array:
        tensor = self.tensor(x)
        return tensor.reshape((*tensor.shape[:-1], *shape))

    def integers(self, x: Any) -> Array:
        return self.tensor(x).astype(np.int64)

    def side_by_side(self, pieces: Sequence[Any]) -> Array:
        joined = NUMPY.side_by_side([data_of(piece) for piece in pieces])
        return tape.concat([self.cast(piece, joined.dtype) for piece in pieces], axis=1)

    def fill_forbidden(self, inputs: Any, mask: Any) -> Array:
        return tape.where(mask, inputs, np.finfo(inputs.dtype).min)

    # --- from arrays, and to them -----------------------------------------------------------------

    def array(self, x: Any) -> Any:
        return np.asarray(data_of(x))

    def tensor(self, value: Any, like: Any = None) -> Array:
        return value if isinstance(value, Array) else Array(value)

    def booleans(self, value: Any, like: Any) -> Array:
        return Array(np.asarray(data_of(value), bool))

    def is_array(self, value: Any) -> bool:
        return isinstance(value, Array | np.ndarray)

    # --- types and shapes -------------------------------------------------------------------------

    def cast(self, x: Any, dtype: Any) -> Array:
        return self.tensor(x).astype(dtype)

    def as_type(self, x: Any, name: str) -> Array:
        return self.tensor(x).astype(name)

    def without_gradient(self, x: Any) -> Array:
        return self.tensor(x).constant()

    def flat(self, x: Any) -> Array:
        return self.tensor(x).reshape(len(x), math.prod(x.shape[1:]))

    def columns(self, values: Sequence[Any]) -> Array:
        return self.side_by_side([self.flat(value) for value in values])

    def concat(self, values: Sequence[Any], axis: int = 0) -> Array:
        return tape.concat(values, axis)

    # --- numbers ----------------------------------------------------------------------------------

    def total(self, values: Sequence[Any]) -> Array:
        first, *others = values
        return sum(others, start=self.tensor(first))

    def sum(self, x: Any, axis: Any = None, keepdims: bool = False) -> Array:
        return self.tensor(x).sum(axis, keepdims)

    def mean(self, x: Any, axis: Any = None, keepdims: bool = False) -> Array:
        return self.tensor(x).mean(axis, keepdims)

    def std(self, x: Any) -> Array:
        deviations = self.tensor(x) - self.mean(x)
        variance = (deviations**2).sum() / (deviations.data.size - 1)
        return variance**0.5

    def exp(self, x: Any) -> Array:
        return tape.exp(self.tensor(x))

    def minimum(self, x: Any, y: Any) -> Array:
        return tape.minimum(x, y)

    def clip(self, x: Any, low: Any, high: Any) -> Array:
        return tape.clip(self.tensor(x), low, high)


OPS = Ops()
