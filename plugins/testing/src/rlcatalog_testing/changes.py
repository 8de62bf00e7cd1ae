"""Changes of a config: one key gets a different value that is valid."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from rlcatalog.catalog import Catalog
from rlcatalog.config import ACTIVATIONS, INITIALIZERS, convert, same
from rlcatalog.errors import CatalogError
from rlcatalog.internals import Key

#: Values tried for keys of any type: names of an activation and an initialiser.
_NAMES = ("relu", "tanh", "normc", "uniform", "constant")


def changes(key: Key, catalog: Catalog, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield configs in which one key has a different valid value.

    The arguments of an initialiser, under `…_config`, are set together with the initialiser.

    Args:
        key: The key.
        catalog: The catalog whose schema the configs must satisfy.
        given: The original config.
    """
    present_value = given.get(key.name, key.default)
    configs = list(_initializer_changes(key, catalog))
    for value in _values_of(key.type, present_value):
        configs.append({key.name: value})
    for config in configs:
        value = config[key.name]
        if same(value, present_value):
            continue
        try:
            convert(value, key)
            catalog.parse_config({**given, **config})
        except CatalogError:
            continue
        yield config


def _initializer_changes(key: Key, catalog: Catalog) -> Iterator[dict[str, Any]]:
    """Yield configs with an initialiser and a different value of its last argument, for a key that
    holds the arguments of an initialiser.
    """
    initializer_key = key.name.removesuffix("_config")
    if initializer_key == key.name or initializer_key not in catalog.schema.keys:
        return
    for initializer in ("normc", "constant", "uniform"):
        arguments = list(INITIALIZERS[initializer].items())
        for argument, number in arguments[-1:]:
            yield {initializer_key: initializer, key.name: {argument: number + 0.25}}


def _values_of(kind: Any, present_value: Any) -> Iterator[Any]:
    """Yield values of a type, beginning with the values most likely to have an effect."""
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin is typing.Annotated:
        yield from _values_of(arguments[0], present_value)
    elif origin in (typing.Union, types.UnionType):
        for member in arguments:
            yield from _values_of(member, present_value)
    elif origin is Literal:
        yield from arguments
    else:
        yield from _values_of_class(origin or kind, present_value)


def _values_of_class(kind: Any, present_value: Any) -> Sequence[Any]:
    """Return values of a class other than a union; none for a class that no key has."""
    if kind is Any:
        return (*_NAMES, *ACTIVATIONS)
    if kind is bool:
        return (True, False)
    if kind is int:
        if type(present_value) is int:
            return (present_value + 1, present_value - 1)
        return (3, 1)
    if kind is float:
        if type(present_value) in (int, float):
            return (present_value + 0.5, present_value / 2, present_value - 0.5)
        return (0.5,)
    if kind is str:
        return (f"{present_value}_other" if present_value else "other",)
    if kind is list:
        return ([7, 5], [7], [0.5, 0.25], [0.5], ["other"])
    if kind is type(None):
        return (None,)
    return ()
