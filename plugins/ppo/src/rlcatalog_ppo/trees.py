"""Structures of numbers, strings and arrays: conversion to JSON with named arrays and back, and
stacking.
"""

from __future__ import annotations

import base64
import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_ARRAY, _TUPLE, _DEQUE, _BYTES, _FLOAT = "$array", "$tuple", "$deque", "$bytes", "$float"
_RESERVED = (_ARRAY, _TUPLE, _DEQUE, _BYTES, _FLOAT)


def take_apart(tree: Any, arrays: dict[str, Array], place: str = "") -> Any:
    """Convert a structure to JSON data, and add its arrays to `arrays` under their paths.

    Args:
        tree: Dicts with string keys, lists, tuples, deques, arrays, numbers, strings, bytes, None.
        arrays: Dict to which the arrays are added.
        place: Path of the structure, such as `collector/encoded`.

    Raises:
        TypeError: A value has a different type. The message names its path.
    """
    if isinstance(tree, np.ndarray | np.generic) and tree.dtype.kind in "biuf":
        name = place or "value"
        arrays[name] = np.asarray(tree)
        return {_ARRAY: name}
    kind = type(tree)
    if isinstance(tree, Mapping):
        for key in tree:
            if type(key) is not str or key in _RESERVED:
                raise TypeError(f"{place or 'the state'}: the key {key!r} cannot be saved.")
        return {
            key: take_apart(part, arrays, f"{place}/{key}" if place else key)
            for key, part in tree.items()
        }
    if kind in (list, tuple, deque):
        parts = [
            take_apart(part, arrays, f"{place}/{i}" if place else str(i))
            for i, part in enumerate(tree)
        ]
        return parts if kind is list else {_TUPLE if kind is tuple else _DEQUE: parts}
    if kind is bytes:
        return {_BYTES: base64.b64encode(tree).decode()}
    if kind is float and not math.isfinite(tree):
        return {_FLOAT: repr(tree)}
    if tree is None or kind in (bool, int, float, str):
        return tree
    raise TypeError(f"{place or 'the state'}: {kind.__qualname__} cannot be saved.")


def put_together(data: Any, arrays: Mapping[str, Array]) -> Any:
    """Rebuild a structure from the output of `take_apart`.

    Raises:
        ValueError: The data does not come from `take_apart`.
    """
    if isinstance(data, list):
        return [put_together(part, arrays) for part in data]
    if not isinstance(data, dict):
        return data
    if len(data) != 1 or (mark := next(iter(data))) not in _RESERVED:
        return {key: put_together(part, arrays) for key, part in data.items()}
    held = data[mark]
    try:
        if mark in (_TUPLE, _DEQUE):
            return (tuple if mark == _TUPLE else deque)(put_together(part, arrays) for part in held)
        if mark == _ARRAY:
            return arrays[held]
        return float(held) if mark == _FLOAT else base64.b64decode(held, validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{mark}: {error}") from error


def stack_steps(steps: list[Any]) -> Any:
    """Stack the structures from several steps into one structure of arrays `[T, N, ...]`."""
    first = steps[0]
    if isinstance(first, Mapping):
        return {name: stack_steps([step[name] for step in steps]) for name in first}
    if isinstance(first, tuple):
        return tuple(stack_steps(list(parts)) for parts in zip(*steps, strict=True))
    return np.stack(steps)
