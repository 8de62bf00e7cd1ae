"""Batches of observations as returned by Gymnasium's vector environments, read using the tree of
their space.

A batch of a Dict or Tuple space is a dict or tuple of columns. A batch of arrays is an array with a
leading axis. For every other kind (Text, Sequence, Graph, OneOf, plugins' spaces), a batch is a
tuple with one entry per environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from contextlib import suppress
from copy import deepcopy
from typing import Any, TypeVar, cast

import numpy as np

from rlcatalog.errors import shown
from rlcatalog.spaces import SpaceInfo

T = TypeVar("T")


def first_size(info: SpaceInfo, batch: Sized) -> int:
    """Return the length of a batch's first leaf; writers check the lengths of the other leaves.

    Raises:
        ValueError: There is no leaf.
    """
    node, column = info, cast("Any", batch)
    while node.children and node.kind in ("tuple", "dict"):
        node, column = node.children[0], column[node.keys[0] if node.keys else 0]
    # The first may be an empty one.
    return batch_size(info, batch) if node.kind in ("tuple", "dict") else len(column)


def batch_size(info: SpaceInfo, batch: Any) -> int:
    """Return the number of observations in a batch.

    Raises:
        ValueError: The leaves have different numbers of observations, or there is no leaf.
    """
    sizes = sorted({len(column) for column in _columns(info, batch)})
    if len(sizes) != 1:
        raise ValueError(f"its leaves contain {' and '.join(map(str, sizes)) or 'no'} observations")
    return sizes[0]


def _columns(info: SpaceInfo, batch: Any) -> Iterator[Any]:
    if info.is_composite:
        for child, column in zip(info.children, info.split(batch), strict=True):
            yield from _columns(child, column)
    else:
        yield batch


def rows(info: SpaceInfo, batch: Any) -> Iterator[Any]:
    """Yield the observations of a batch one by one."""
    for i in range(batch_size(info, batch)):
        yield _row(info, batch, i)


def _row(info: SpaceInfo, batch: Any, i: int) -> Any:
    if not info.is_composite:
        return batch[i]
    row = info.join(
        [
            _row(child, column, i)
            for child, column in zip(info.children, info.split(batch), strict=True)
        ]
    )
    if isinstance(batch, Mapping) and len(batch) > len(row):
        # Keep keys that the space does not have, so that the check of the row finds them.
        return {**{key: value for key, value in batch.items() if key not in row}, **row}
    return row


def stack(info: SpaceInfo, observations: list[Any]) -> Any:
    """Stack single observations into a batch: dicts by key, tuples by position.

    Raises:
        ValueError: The observations' structures or shapes differ from the space's.
        KeyError: A key is missing.
        TypeError: An observation has no length.
    """
    if info.kind == "dict":
        if observations:
            # Together with the look-up of each key below: equal keys.
            _same_lengths(observations, len(info.keys))
        parts = zip(info.keys, info.children, strict=True)
        return {key: stack(child, [obs[key] for obs in observations]) for key, child in parts}
    if info.kind == "tuple":
        for obs in observations:
            if not isinstance(obs, tuple | list):  # the keys of a dict would pass for its values
                raise TypeError(f"{type(obs).__name__} instead of a tuple")
        columns = zip(*observations, strict=True) if observations else [()] * len(info.children)
        return tuple(
            stack(child, list(column)) for child, column in zip(info.children, columns, strict=True)
        )
    if info.shape is None:
        return tuple(observations)
    if not observations:
        return np.zeros((0, *info.shape), info.dtype)
    if info.shape == ():
        stacked = np.array(observations)
    else:  # several times as fast as np.stack, which looks at each array's shape in Python
        _same_lengths(observations, info.shape[0])
        stacked = np.concatenate(observations)
    if stacked.shape[1:] != info.shape[1:]:
        raise ValueError(f"observations with a shape other than {info.shape}")
    return stacked.reshape(len(observations), *info.shape)


def _same_lengths(observations: list[Any], length: int) -> None:
    if (lengths := set(map(len, observations))) != {length}:
        raise ValueError(
            f"{' and '.join(map(str, sorted(lengths))) or 'no'} entries instead of {length}"
        )


def copy_batch(batch: T) -> T | None:
    """Return a batch that shares no memory with this one, or None if it cannot be copied."""
    with suppress(Exception):
        return deepcopy(batch)
    return None


def is_unchanged(a: Any, b: Any) -> bool:
    """Return whether a batch, or an entry of it, still equals its copy; True if this cannot be
    determined.
    """
    try:
        if isinstance(a, Mapping):
            return a.keys() == b.keys() and all(is_unchanged(a[key], b[key]) for key in a)
        if isinstance(a, tuple | list):
            return len(a) == len(b) and all(map(is_unchanged, a, b))
        if isinstance(a, np.ndarray):
            return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
        plain = type(a).__eq__ is object.__eq__  # type: ignore[comparison-overlap]  # a copy is never equal
        return plain or bool(a == b) or a != a
    except Exception:
        return True


def summary(value: Any) -> str:
    """Describe a value briefly: type, shape, dtype, and the value itself if it is short."""
    if isinstance(value, np.ndarray):
        text = f"an array of shape {value.shape}, dtype {value.dtype}"
        return f"{text}: {value.tolist()}" if value.size <= 8 else text
    if isinstance(value, np.generic):
        return f"{value.item()!r} ({value.dtype})"
    return f"{shown(value, 120)} ({type(value).__name__})"
