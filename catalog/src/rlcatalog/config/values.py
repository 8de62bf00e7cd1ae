"""Copying and comparing config values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rlcatalog.errors import CatalogError, ConfigError, raised_as

#: Maximum nesting of a config value, and maximum number of entries of it and its parts; an array is
#: one entry.
MOST_LEVELS = 100
MOST_ENTRIES = 200_000

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
    # The commonest container, a list of numbers or texts, needs no `_Copier`.
    if kind is list and len(value) < MOST_ENTRIES and _ATOMS.issuperset(map(type, value)):
        return value.copy()
    # A custom mapping or sequence can raise.
    with raised_as(lambda why: ConfigError(f"{what}: it cannot be read: {why}."), CatalogError):
        return _Copier(what, keep_types=alike).copy(value, level=0)


class _Copier:
    """Copies one config value, and counts its entries; see `plain`."""

    def __init__(self, what: str, keep_types: bool) -> None:
        self._what = what
        self._keep_types = keep_types
        self._entries_left = MOST_ENTRIES

    def copy(self, value: Any, level: int) -> Any:
        """Copy a value that is nested in this number of containers."""
        if type(value) in _ATOMS:
            return value
        if _is_mapping(value):
            keys = self._entries(value, level)
            return {key: self.copy(value[key], level + 1) for key in keys}
        if isinstance(value, set):
            return set(self._entries(value, level))
        if isinstance(value, list | tuple):
            items = [self.copy(item, level + 1) for item in self._entries(value, level)]
            stays_tuple = self._keep_types and type(value) is tuple
            return tuple(items) if stays_tuple else items
        # Arrays and scalars; NumPy's other objects, such as generators, stay as they are.
        if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
            return self._copy_of_numpy(value, level)
        return value

    def _copy_of_numpy(self, value: Any, level: int) -> Any:
        if self._keep_types:
            return value.copy()
        values = value.tolist()
        if isinstance(values, list) and value.dtype.hasobject:
            return self.copy(values, level + 1)
        return values

    def _entries(self, container: Iterable[Any], level: int) -> Iterator[Any]:
        """Yield a container's items or keys, and count them.

        Raises:
            ConfigError: The value is nested too deeply, or has too many entries.
        """
        if level >= MOST_LEVELS:
            raise ConfigError(
                f"{self._what}: it contains itself, or is nested deeper than {MOST_LEVELS} levels."
            )
        for entry in container:
            self._entries_left -= 1
            if self._entries_left < 0:
                raise ConfigError(
                    f"{self._what}: it has, with everything in it, more than {MOST_ENTRIES}"
                    " entries."
                )
            yield entry


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a dictionary and each of its values with `plain`."""
    copies = {}
    for key, value in values.items():
        kind = type(value)
        if kind in _ATOMS:
            copies[key] = value
        elif kind in _CONTAINERS and not value:
            copies[key] = kind()  # faster than `plain`; most containers in a config are empty
        else:
            copies[key] = plain(value)
    return copies


def _is_mapping(value: Any) -> bool:
    """Return whether a value is copied as a dictionary."""
    if type(value) is dict:
        return True
    return isinstance(value, Mapping) and not _is_space(value)


def _is_space(value: Any) -> bool:
    """Return whether a value is a Gymnasium space; a Dict space must not be treated as an ordinary
    mapping.
    """
    packages = {base.__module__.partition(".")[0] for base in type(value).__mro__}
    return "gymnasium" in packages


def same(a: Any, b: Any) -> bool:
    """Return whether two config values are equal in value and in type (`True` is not `1`)."""
    if type(a) is not type(b):
        return False
    try:
        if isinstance(a, dict):
            values_of_b = map(b.get, a)  # in the order of a
            return a.keys() == b.keys() and all(map(same, a.values(), values_of_b))
        if isinstance(a, list | tuple):
            return len(a) == len(b) and all(map(same, a, b))
        return bool(a is b or a == b)
    # The == of an array, for example, is not a yes or no: such a value equals only itself.
    except Exception:
        return a is b
