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
from rlcatalog.frameworks.ops import Array
from rlcatalog.spaces import SpaceInfo

T = TypeVar("T")


def first_size(info: SpaceInfo, batch: Sized) -> int:
    """Return the length of a batch's first leaf; writers check the lengths of the other leaves.

    Raises:
        ValueError: There is no leaf.
    """
    node = info
    column = cast("Any", batch)
    # Every batch passes here: the property is_composite would take longer.
    while node.children and node.kind in ("tuple", "dict"):
        first_key = node.keys[0] if node.keys else 0
        column = column[first_key]
        node = node.children[0]
    if node.kind in ("tuple", "dict"):
        # The first entry is an empty Dict or Tuple, which has no length: look at all leaves.
        return batch_size(info, batch)
    return len(column)


def batch_size(info: SpaceInfo, batch: Any) -> int:
    """Return the number of observations in a batch.

    Raises:
        ValueError: The leaves have different numbers of observations, or there is no leaf.
    """
    sizes = sorted({len(column) for column in _columns(info, batch)})
    if len(sizes) != 1:
        counts = " and ".join(map(str, sizes)) or "no"
        raise ValueError(f"its leaves contain {counts} observations")
    return sizes[0]


def _columns(info: SpaceInfo, batch: Any) -> Iterator[Any]:
    """Yield the batched values of each leaf."""
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
    """Return observation number `i` of a batch."""
    if not info.is_composite:
        return batch[i]
    columns = zip(info.children, info.split(batch), strict=True)
    row = info.join([_row(child, column, i) for child, column in columns])
    if isinstance(batch, Mapping) and len(batch) > len(row):
        # Keep keys that the space does not have, so that the check of the row finds them.
        unknown = {key: value for key, value in batch.items() if key not in row}
        return {**unknown, **row}
    return row


def stack(info: SpaceInfo, observations: list[Any]) -> Any:
    """Stack single observations into a batch: dicts by key, tuples by position.

    Raises:
        ValueError: The observations' structures or shapes differ from the space's.
        KeyError: A key is missing.
        TypeError: An observation has no length.
    """
    if info.kind == "dict":
        return _stack_dicts(info, observations)
    if info.kind == "tuple":
        return _stack_tuples(info, observations)
    if info.shape is None:
        return tuple(observations)
    return _stack_arrays(info, info.shape, observations)


def _stack_dicts(info: SpaceInfo, observations: list[Any]) -> dict[str, Any]:
    if observations:
        # Together with the look-up of each key below, equal lengths mean equal keys.
        _check_lengths(observations, len(info.keys))
    columns = {}
    for key, child in zip(info.keys, info.children, strict=True):
        columns[key] = stack(child, [obs[key] for obs in observations])
    return columns


def _stack_tuples(info: SpaceInfo, observations: list[Any]) -> tuple[Any, ...]:
    for obs in observations:
        # A dict must not pass: `zip` below would take its keys for values.
        if not isinstance(obs, tuple | list):
            raise TypeError(f"{type(obs).__name__} instead of a tuple")
    if not observations:
        # `zip` would yield no columns; each child still needs an empty batch.
        return tuple(stack(child, []) for child in info.children)
    columns = zip(*observations, strict=True)
    return tuple(
        stack(child, list(column)) for child, column in zip(info.children, columns, strict=True)
    )


def _stack_arrays(info: SpaceInfo, shape: tuple[int, ...], observations: list[Any]) -> Array:
    if not observations:
        return np.zeros((0, *shape), info.dtype)
    if shape == ():
        array = np.array(observations)
    else:
        # The first axes are joined here, and separated by the reshape below. This is several times
        # as fast as np.stack, which looks at each array's shape in Python.
        _check_lengths(observations, shape[0])
        array = np.concatenate(observations)
    if array.shape[1:] != shape[1:]:
        raise ValueError(f"observations with a shape other than {shape}")
    return array.reshape(len(observations), *shape)


def _check_lengths(observations: list[Any], length: int) -> None:
    lengths = set(map(len, observations))
    if lengths != {length}:
        entries = " and ".join(map(str, sorted(lengths))) or "no"
        raise ValueError(f"{entries} entries instead of {length}")


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
        compares_by_identity = type(a).__eq__ is object.__eq__  # type: ignore[comparison-overlap]
        if compares_by_identity:
            return True  # such an object never equals its copy
        is_nan = a != a  # only NaN differs from itself
        return is_nan or bool(a == b)
    # A user's object need not be comparable.
    except Exception:
        return True


def summary(value: Any) -> str:
    """Describe a value briefly: type, shape, dtype, and the value itself if it is short."""
    if isinstance(value, np.ndarray):
        text = f"an array of shape {value.shape}, dtype {value.dtype}"
        if value.size <= 8:
            text += f": {value.tolist()}"
        return text
    if isinstance(value, np.generic):
        return f"{value.item()!r} ({value.dtype})"
    return f"{shown(value, length=120)} ({type(value).__name__})"
