"""Batches of a reader as TensorFlow tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlcatalog.errors import NotServedError, SavedPolicyError
from rlcatalog_tf import tf


def input_ops(read: Callable[[], Any]) -> dict[str, Any]:
    """Return a batch as tensors that are read anew at each run of the traced function they stand in.

    Args:
        read: Returns the next batch; its number of rows may change, the shape of a row may not.
    """
    first = read()
    if not isinstance(first, dict):
        raise NotServedError("tf_input_ops: batches of several agents; read them with next(), one policy's at a time.")
    flat = _flat(first)
    names, types = list(flat), [tf.as_dtype(array.dtype) for array in flat.values()]
    waiting = [flat]  # the first is not lost

    def following() -> list[Any]:
        found = waiting.pop() if waiting else _flat(read())
        if missing := set(names) - set(found):
            raise SavedPolicyError(f"a batch lacks {sorted(map(str, missing))}, which the first one has.")
        return [found[name].astype(flat[name].dtype, copy=False) for name in names]

    tensors = tf.numpy_function(following, [], types, stateful=True)
    for tensor, name in zip(tensors, names, strict=True):
        tensor.set_shape((None, *flat[name].shape[1:]))
    made: dict[str, Any] = {}
    for path, tensor in zip(names, tensors, strict=True):
        place = made
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = tensor
    return made


def _flat(batch: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], np.ndarray[Any, Any]]:
    """Return the columns of numbers by the path of their keys."""
    found: dict[tuple[str, ...], np.ndarray[Any, Any]] = {}
    for name, column in batch.items():
        if isinstance(column, dict):
            found |= _flat(column, (*path, name))
        elif isinstance(column, np.ndarray) and column.dtype.kind in "biuf" and column.ndim:
            found[(*path, name)] = column
    return found
