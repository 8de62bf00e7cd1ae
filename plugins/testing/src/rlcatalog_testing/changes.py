"""Changes: other values of config keys, found from their types, to see what a key does."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from rlcatalog.catalog import Catalog
from rlcatalog.config import ACTIVATIONS, INITIALIZERS, convert, same
from rlcatalog.errors import CatalogError
from rlcatalog.internals import Key

#: Tried for keys of any type: names of an activation or an initialiser.
_NAMES = ("relu", "tanh", "normc", "uniform", "constant")


def changes(key: Key, keys: Mapping[str, Key], catalog: Catalog, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield configs in which a key has another legal value than it has.

    Args:
        key: The key.
        keys: All keys by name: the arguments of an initialiser, under `…_config`, come with the initialiser.
        catalog: Whose schema they must pass.
        given: The config they are changes of.
    """
    now = given.get(key.name, key.default)
    whole, arguments = key.name.removesuffix("_config"), []
    if whole != key.name and whole in keys:
        arguments = [
            {whole: name, key.name: {argument: number + 0.25}}
            for name in ("normc", "constant", "uniform")
            for argument, number in list(INITIALIZERS[name].items())[-1:]
        ]
    candidates = [*arguments, *({key.name: value} for value in _values(key.type, now))]
    for config in candidates:
        if same(config[key.name], now):
            continue
        try:
            convert(config[key.name], key)
            catalog.parse_config({**given, **config})
        except CatalogError:
            continue
        yield config


def _values(kind: Any, now: Any) -> Iterator[Any]:
    """Yield values of a type, the likeliest to differ first."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        yield from _values(typing.get_args(kind)[0], now)
    elif origin in (typing.Union, types.UnionType):
        for one in typing.get_args(kind):
            yield from _values(one, now)
    elif origin is Literal:
        yield from typing.get_args(kind)
    elif kind is Any:
        yield from _NAMES
        yield from ACTIVATIONS
    elif kind is bool:
        yield from (True, False)
    elif kind is int:
        yield from (now + 1, now - 1) if type(now) is int else (3, 1)
    elif kind is float:
        yield from (now + 0.5, now / 2, now - 0.5) if type(now) in (int, float) else (0.5,)
    elif kind is str:
        yield from (f"{now}_other",) if now else ("other",)
    elif origin is list or kind is list:
        yield from ([7, 5], [7], [0.5, 0.25], [0.5], ["other"])
    elif kind is type(None):
        yield None
