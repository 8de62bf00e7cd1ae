"""Copying and comparing config values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcatalog.errors import CatalogError, ConfigError, raised_as

#: Maximum nesting of a config value, and maximum number of entries of it and its parts; an array is
#: one entry.
MOST_LEVELS, MOST_ENTRIES = 100, 200_000

_ATOMS = frozenset({type(None), bool, int, float, str, bytes})
_CONTAINERS = frozenset({list, dict, set})


def plain(value: Any, what: str = "config value", alike: bool = False) -> Any:
    """Copy dicts, lists and tuples, and convert NumPy scalars and arrays into Python values; keep
    everything else.

    Args:
        value: The value.
        what: Description of the value, for error messages.
        alike: Whether tuples and NumPy values keep their types, so that `same` can compare the copy
            with later values.

    Raises:
        ConfigError: The value contains itself, is nested too deeply, is too large, or cannot be
            read.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is list and len(value) < MOST_ENTRIES and _ATOMS.issuperset(map(type, value)):
        return value.copy()
    left = MOST_ENTRIES

    def walk(value: Any, level: int) -> Any:
        nonlocal left
        if type(value) in _ATOMS:
            return value
        is_mapping = isinstance(value, Mapping) and (type(value) is dict or not _is_space(value))
        if is_mapping or isinstance(value, list | tuple | set):
            if level >= MOST_LEVELS:
                raise ConfigError(
                    f"{what}: it contains itself, or is nested deeper than {MOST_LEVELS} levels."
                )
            items = []
            for item in value:
                left -= 1
                if left < 0:
                    raise ConfigError(
                        f"{what}: it has, with everything in it, more than {MOST_ENTRIES} entries."
                    )
                if is_mapping:
                    items.append((item, walk(value[item], level + 1)))
                else:
                    items.append(item if isinstance(value, set) else walk(item, level + 1))
            if is_mapping:
                return dict(items)
            return (
                set(items)
                if isinstance(value, set)
                else tuple(items)
                if alike and type(value) is tuple
                else items
            )
        if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
            if alike:
                return value.copy()
            values = value.tolist()
            return (
                walk(values, level + 1)
                if isinstance(values, list) and value.dtype.hasobject
                else values
            )
        return value

    # A custom mapping or sequence can raise.
    with raised_as(lambda why: ConfigError(f"{what}: it cannot be read: {why}."), CatalogError):
        return walk(value, 0)


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a dictionary and each of its values with `plain`."""
    return {
        key: value
        if (kind := type(value)) in _ATOMS
        else kind()
        if kind in _CONTAINERS and not value
        else plain(value)
        for key, value in values.items()
    }


def _is_space(value: Any) -> bool:
    """Return whether a value is a Gymnasium space; a Dict space must not be treated as an ordinary
    mapping.
    """
    return any(cls.__module__.partition(".")[0] == "gymnasium" for cls in type(value).__mro__)


def same(a: Any, b: Any) -> bool:
    """Return whether two config values are equal in value and in type (`True` is not `1`)."""
    if type(a) is not type(b):
        return False
    try:
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(map(same, a.values(), map(b.get, a)))
        if isinstance(a, list | tuple):
            return len(a) == len(b) and all(map(same, a, b))
        return bool(a is b or a == b)
    # An object whose == is not a yes or no (an array) is not the same unless it is itself.
    except Exception:
        return a is b
