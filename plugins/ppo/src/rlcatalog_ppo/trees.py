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

#: JSON has no arrays, tuples, deques, bytes, and no NaN or infinity. Each is stored as an object
#: with one of these keys.
_ARRAY = "$array"
_TUPLE = "$tuple"
_DEQUE = "$deque"
_BYTES = "$bytes"
_FLOAT = "$float"
_RESERVED = (_ARRAY, _TUPLE, _DEQUE, _BYTES, _FLOAT)


def take_apart(tree: Any, arrays: dict[str, Array], path: str = "") -> Any:
    """Convert a structure to JSON data, and add its arrays to `arrays` under their paths.

    Args:
        tree: Dicts with string keys, lists, tuples, deques, arrays, numbers, strings, bytes, None.
        arrays: Dict to which the arrays are added.
        path: Path of the structure, such as `collector/encoded`.

    Raises:
        TypeError: A value has a different type. The message names its path.
    """
    kind = type(tree)
    is_array = isinstance(tree, np.ndarray | np.generic)
    if is_array and tree.dtype.kind in "biuf":  # booleans, integers and floats
        name = path or "value"
        arrays[name] = np.asarray(tree)
        return {_ARRAY: name}
    if isinstance(tree, Mapping):
        for key in tree:
            if type(key) is not str or key in _RESERVED:
                raise TypeError(f"{path or 'the state'}: the key {key!r} cannot be saved.")
        return {key: take_apart(part, arrays, _join(path, key)) for key, part in tree.items()}
    if kind in (list, tuple, deque):
        parts = [take_apart(part, arrays, _join(path, str(i))) for i, part in enumerate(tree)]
        if kind is tuple:
            return {_TUPLE: parts}
        if kind is deque:
            return {_DEQUE: parts}
        return parts
    if kind is bytes:
        return {_BYTES: base64.b64encode(tree).decode()}
    if kind is float and not math.isfinite(tree):
        return {_FLOAT: repr(tree)}
    if tree is None or kind in (bool, int, float, str):
        return tree
    raise TypeError(f"{path or 'the state'}: {kind.__qualname__} cannot be saved.")


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def put_together(data: Any, arrays: Mapping[str, Array]) -> Any:
    """Rebuild a structure from the output of `take_apart`.

    Args:
        data: JSON data, from a file that is not trusted.
        arrays: The arrays under their paths.

    Raises:
        ValueError: The data does not come from `take_apart`.
    """
    if isinstance(data, list):
        return [put_together(part, arrays) for part in data]
    if not isinstance(data, dict):
        return data
    first_key = next(iter(data), None)
    # An object with a single reserved key stands for a value that JSON does not have.
    if len(data) != 1 or first_key not in _RESERVED:
        return {key: put_together(part, arrays) for key, part in data.items()}
    try:
        return _rebuild(first_key, data[first_key], arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{first_key}: {error}") from error


def _rebuild(kind: str, content: Any, arrays: Mapping[str, Array]) -> Any:
    """Return a value that JSON does not have.

    Args:
        kind: One of the reserved keys.
        content: What was stored under it.
        arrays: The arrays under their paths.
    """
    if kind == _TUPLE:
        return tuple(put_together(part, arrays) for part in content)
    if kind == _DEQUE:
        return deque(put_together(part, arrays) for part in content)
    if kind == _ARRAY:
        return arrays[content]
    if kind == _FLOAT:
        return float(content)
    # Only `_BYTES` is left.
    return base64.b64decode(content, validate=True)


def stack_steps(steps: list[Any]) -> Any:
    """Stack the structures from several steps into one structure of arrays `[T, N, ...]`."""
    first = steps[0]
    if isinstance(first, Mapping):
        return {name: stack_steps([step[name] for step in steps]) for name in first}
    if isinstance(first, tuple):
        return tuple(stack_steps(list(parts)) for parts in zip(*steps, strict=True))
    return np.stack(steps)
