"""Config values: copied, compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rlcatalog.errors import CatalogError, ConfigError, raised_as

#: How deep a config value may be nested, and how many entries it and its parts may have; an array is one.
MOST_LEVELS, MOST_ENTRIES = 100, 200_000

_ATOMS = frozenset({type(None), bool, int, float, str, bytes})


def plain(value: Any, what: str = "config value") -> Any:
    """Copy dicts, lists and tuples and turn NumPy scalars and arrays into Python's own; keep all else, spaces too.

    Args:
        value: The value.
        what: What it is called in messages.

    Raises:
        ConfigError: It holds itself, is nested too deep or too large, or cannot be read.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if (kind is dict or kind is list) and not value:  # the default of most keys that hold one
        return kind()
    return _Copy(what, alike=False).whole(value)


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a dictionary with its values, each by `plain`."""
    return {key: value if type(value) in _ATOMS else plain(value) for key, value in values.items()}


def snapshot(value: Any) -> Any:
    """Copy a value that `plain` could read, its types as they are, to be compared with later ones by `same`."""
    return value if type(value) in _ATOMS else _Copy("config value", alike=True).whole(value)


class _Copy:
    """One walk over a value, with an end.

    Args:
        what: What the value is called in messages.
        alike: Whether tuples and NumPy's values stay what they are.
    """

    def __init__(self, what: str, alike: bool) -> None:
        self._what, self._alike, self._left = what, alike, MOST_ENTRIES

    def whole(self, value: Any) -> Any:
        # It may be a mapping or sequence of somebody else's.
        with raised_as(lambda why: ConfigError(f"{self._what}: it cannot be read: {why}."), CatalogError):
            return self._copy(value, 0)

    def _copy(self, value: Any, level: int) -> Any:
        if type(value) in _ATOMS:
            return value
        if isinstance(value, Mapping) and (type(value) is dict or not _is_space(value)):
            return {key: self._copy(value[key], level + 1) for key in self._counted(value, level)}
        if isinstance(value, list | tuple):
            items = [self._copy(item, level + 1) for item in self._counted(value, level)]
            return tuple(items) if self._alike and type(value) is tuple else items
        if isinstance(value, set):
            return set(self._counted(value, level))
        if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
            if self._alike:
                return value.copy()
            values = value.tolist()
            return self._copy(values, level + 1) if isinstance(values, list) and value.dtype.hasobject else values
        return value

    def _counted(self, values: Iterable[Any], level: int) -> Iterator[Any]:
        if level >= MOST_LEVELS:
            raise ConfigError(f"{self._what}: it holds itself, or is nested deeper than {MOST_LEVELS} levels.")
        for value in values:
            self._left -= 1
            if self._left < 0:
                raise ConfigError(f"{self._what}: it and its parts have more than {MOST_ENTRIES} entries.")
            yield value


def _is_space(value: Any) -> bool:
    """Whether a value is a Gymnasium space: one of a Dict is a mapping as well."""
    return any(cls.__module__.partition(".")[0] == "gymnasium" for cls in type(value).__mro__)


def same(a: Any, b: Any) -> bool:
    """Whether two config values are equal in value and in type (`True` is not `1`)."""
    if type(a) is not type(b):
        return False
    try:
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
        if isinstance(a, list | tuple):
            return len(a) == len(b) and all(map(same, a, b))
        return bool(a is b or a == b)
    except Exception:  # an object whose == is not a yes or no (an array) is not the same unless it is itself
        return a is b
