"""Keys of a config struct: their types, defaults and meanings, and values converted to them."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec import Meta

from rlcatalog.errors import ConfigError, ConfigTypeError, one_line, reason, shown


@dataclass(frozen=True)
class Key:
    """One row of the key table."""

    name: str
    owner: str
    type: Any
    default: Any
    meaning: str


@cache
def keys_of(struct: type, owner: str) -> tuple[Key, ...]:
    """Read the keys, types, defaults and meanings of a config struct."""
    rows = []
    for field in msgspec.structs.fields(struct):
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        metas = [m for m in typing.get_args(field.type)[1:] if isinstance(m, Meta)]
        meaning = next((m.description for m in metas if m.description), "")
        rows.append(Key(field.name, owner, field.type, default, meaning))
    return tuple(rows)


def convert(value: Any, row: Key, what: str = "model config key") -> Any:
    """Convert a value to the key's type.

    Args:
        value: The value, already `plain`.
        row: The key.
        what: What the key is called in messages.

    Raises:
        ConfigTypeError: It is of another type.
        ConfigError: It is of the right type and out of range.
    """
    try:
        return msgspec.convert(value, row.type)
    except msgspec.ValidationError as error:
        wrong_type = str(error).startswith("Expected `") and ", got" in str(error)
        kind = ConfigTypeError if wrong_type else ConfigError
        text = one_line(str(error)).replace("`", "'").replace("at '$", f"at '{row.name}").rstrip(".")
        known = ", ".join(map(repr, _choices(row.type))) if text.startswith("Invalid enum value") else ""
        raise kind(
            f"{what} {row.name!r} ({row.meaning}): {text[0].lower()}{text[1:]}; found {shown(value)}."
            f"{f' Known: {known}.' if known else ''} Default: {shown(row.default)}."
        ) from None
    except Exception as error:  # text with half a surrogate pair, numbers that compare with nothing
        raise ConfigError(
            f"{what} {row.name!r} ({row.meaning}): {shown(value)} cannot be used: {reason(error)}."
        ) from error


def _choices(kind: Any) -> list[Any]:
    """Return the values a type with a Literal in it allows."""
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        return list(arguments)
    return [choice for a in arguments for choice in ([None] if a is type(None) else _choices(a))]
