"""The few tensor operations that framework-neutral code needs, of NumPy and of each framework."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from rlcatalog.errors import ModelContractError
from rlcatalog.frameworks.table import framework_name, framework_of, frameworks


class TensorOps(NamedTuple):
    """The operations of a tensor library that framework-neutral code needs.

    Attributes:
        reshape: `reshape(x, shape)` gives the last axis of x the given shape, as a view where the library can.
        integers: `integers(x)` returns x as int64.
        side_by_side: `side_by_side(list)` joins `[B, n]` arrays along their columns.
        fill_forbidden: `fill_forbidden(inputs, mask)` gives inputs where the mask is False their dtype's lowest
            finite value.
        array: `array(x)` returns the values of x as an array, or None where they are not known, as while tracing.
    """

    reshape: Callable[[Any, tuple[int, ...]], Any]
    integers: Callable[[Any], Any]
    side_by_side: Callable[[list[Any]], Any]
    fill_forbidden: Callable[[Any, Any], Any]
    array: Callable[[Any], Any] = lambda x: None


def tensor_ops(tensorlib: Any) -> TensorOps:
    """Return the operations of a tensor library: `"numpy"`, or a framework's name.

    Raises:
        ModelContractError: The library is not known.
    """
    if tensorlib == "numpy":
        return NUMPY_OPS
    if isinstance(tensorlib, str) and any(tensorlib in (spec.name, *spec.aliases) for spec in frameworks().values()):
        ops: TensorOps = frameworks()[framework_name(tensorlib)].load("ops")
        return ops
    *known, last = map(repr, ("numpy", *frameworks()))
    raise ModelContractError(f"tensorlib must be {', '.join(known)} or {last}, found {tensorlib!r}.")


def ops_of(tensor: Any) -> TensorOps:
    """Return the operations for a tensor, or an array."""
    return _ops_of_class(type(tensor))  # type: ignore[arg-type]


@cache
def _ops_of_class(cls: type[object]) -> TensorOps:
    spec = framework_of(cls)
    return NUMPY_OPS if spec is None else tensor_ops(spec.name)


def _reshape_last(x: Any, shape: tuple[int, ...]) -> Any:
    return x if len(shape) == 1 else x.reshape(x.shape[:-1] + shape)


def _integers(x: Any) -> Any:
    with np.errstate(invalid="ignore"):  # in a branch of a OneOf that was not taken any values may stand
        return x.astype(np.int64)


def _fill_forbidden(inputs: Any, mask: Any) -> Any:
    return np.where(np.asarray(mask, bool), inputs, np.finfo(inputs.dtype).min)


NUMPY_OPS = TensorOps(
    _reshape_last, _integers, lambda pieces: np.concatenate(pieces, axis=1), _fill_forbidden, np.asarray
)
