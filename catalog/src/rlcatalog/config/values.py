"""Config values: copied, compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Copy dicts, lists and tuples and turn NumPy scalars and arrays into Python's own; keep everything else."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set):
        return set(value)
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    return value


def same(a: Any, b: Any) -> bool:
    """Whether two config values are equal in value and in type (`True` is not `1`)."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    try:
        return bool(a is b or a == b)
    except Exception:  # an object whose == is not a yes or no (an array) is not the same unless it is itself
        return False
