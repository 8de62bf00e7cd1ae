"""Flattening of structured observations into the vector that their preprocessor would return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlcatalog.frameworks import TensorOps
from rlcatalog.frameworks.ops import Tensor
from rlcatalog.observations import Preprocessor


class _NoLayout(Exception):
    """An entry of the structure cannot become a row of numbers, or the codec does not encode entry
    by entry.
    """


def flatten_structured(preprocessor: Preprocessor, obs: Any, ops: TensorOps) -> Any:
    """Flatten Dict or Tuple observations into `[B, size]`, with one-hot vectors for Discrete and
    MultiDiscrete.

    Args:
        preprocessor: Their preprocessor.
        obs: A structure of tensors `[B, ...]`.
        ops: The framework's operations.

    Returns:
        The vectors, or the unchanged structure if some entry cannot be flattened.
    """
    try:
        return ops.columns(list(_parts(preprocessor, obs, ops)))
    except _NoLayout:
        return obs


def _parts(codec: Preprocessor, obs: Any, ops: TensorOps) -> Iterator[Any]:
    if isinstance(obs, Mapping | tuple | list):
        keys: Any = codec.info.keys if isinstance(obs, Mapping) else range(len(obs))
        if len(codec.children) != len(obs) or len(keys) != len(obs):
            raise _NoLayout
        for key, child in zip(keys, codec.children, strict=True):
            yield from _parts(child, obs[key], ops)
        return
    shape = getattr(obs, "shape", None)
    if (
        shape is None
        or getattr(shape, "rank", 1) is None
        or None in tuple(shape)[1:]
        or codec.info.children
    ):
        raise _NoLayout
    if int(np.prod(tuple(shape)[1:])) == codec.size and (
        len(shape) > 1 or codec.info.kind != "discrete"
    ):
        yield ops.rows(obs, (codec.size,))
    else:
        yield from _one_hots(codec, obs, ops)


def _one_hots(codec: Preprocessor, obs: Tensor, ops: TensorOps) -> Iterator[Any]:
    """Yield one-hot vectors `[B, n]` for each integer of a Discrete or MultiDiscrete."""
    info = codec.info
    if info.kind not in ("discrete", "multi_discrete"):
        raise _NoLayout
    sizes: Any = info.n if info.nvec is None else info.nvec
    counts, starts = np.ravel(sizes).tolist(), np.ravel(info.start).tolist()
    whole = ops.rows(ops.integers(ops.whole(obs)), (len(counts),))
    for place, (count, start) in enumerate(zip(counts, starts, strict=True)):
        values = ops.tensor(np.arange(start, start + count, dtype=np.int64), whole)
        yield ops.only(
            whole[:, place : place + 1] == values,
            ops.tensor(np.ones((1, count), np.float32), whole),
        )
