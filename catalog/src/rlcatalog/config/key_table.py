"""A config struct's keys: types, defaults, meanings, and conversion of values."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec import Meta

from rlcatalog.config.values import plain
from rlcatalog.errors import (
    ConfigError,
    ConfigTypeError,
    DeclarationError,
    one_line,
    raised_as,
    reason,
    shown,
)


@dataclass(frozen=True)
class Key:
    """One row of the key table."""

    name: str
    type: Any
    default: Any
    meaning: str
    #: The distribution that declares it, in the table of a catalog.
    owner: str = ""


@cache
def keys_of(struct: type) -> tuple[Key, ...]:
    """Read a config struct's keys once, with types, defaults and meanings; default factories run
    plugin code.
    """
    rows = []
    for field in msgspec.structs.fields(struct):
        default = (
            field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        )
        metas = [m for m in typing.get_args(field.type)[1:] if isinstance(m, Meta)]
        meaning = next((m.description for m in metas if m.description), "")
        rows.append(Key(field.name, field.type, default, meaning))
    return tuple(rows)


@cache
def default_of(struct: type) -> Any:
    """Return a config struct with its defaults; its keys are read and checked once.

    Raises:
        DeclarationError: A key has no default or an invalid default, or the struct cannot be
            created from its defaults.
    """
    where, what = f"config struct {struct.__name__}", "its keys cannot be read"

    def unusable(why: str) -> DeclarationError:
        hint = (
            " Types of its keys must be imported at run time."
            if why.startswith("NameError")
            else ""
        )
        return DeclarationError(f"{where}: {what}: {why}.{hint}")

    with raised_as(unusable, DeclarationError):
        rows = keys_of(struct)
        for row in rows:
            if row.default is msgspec.NODEFAULT:
                raise DeclarationError(f"{where}: key {row.name!r} has no default.")
            what = f"key {row.name!r} does not allow its own default"
            convert(plain(row.default), row)
        what = "it cannot be created from its defaults"
        return struct(**{row.name: plain(row.default) for row in rows})


def convert(value: Any, row: Key, what: str = "model config key") -> Any:
    """Convert a value to the key's type.

    Args:
        value: The value, already `plain`.
        row: The key.
        what: Description of the key, for error messages.

    Raises:
        ConfigTypeError: The value has the wrong type.
        ConfigError: The value is out of range.
    """
    try:
        return msgspec.convert(value, row.type)
    except msgspec.ValidationError as error:
        wrong_type = str(error).startswith("Expected `") and ", got" in str(error)
        kind = ConfigTypeError if wrong_type else ConfigError
        text = (
            one_line(str(error)).replace("`", "'").replace("at '$", f"at '{row.name}").rstrip(".")
        )
        known = (
            ", ".join(map(repr, _choices(row.type)))
            if text.startswith("Invalid enum value")
            else ""
        )
        raise kind(
            f"{what} {row.name!r} ({row.meaning}): {text[0].lower()}{text[1:]}; found"
            f" {shown(value)}.{f' Known: {known}.' if known else ''} Default:"
            f" {shown(row.default)}."
        ) from None
    except Exception as error:  # text with half a surrogate pair, numbers that compare with nothing
        raise ConfigError(
            f"{what} {row.name!r} ({row.meaning}): {shown(value)} cannot be used: {reason(error)}."
        ) from error


def _choices(kind: type) -> list[Any]:
    """Return the values allowed by a type that contains a Literal."""
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        return list(arguments)
    return [choice for a in arguments for choice in ([None] if a is type(None) else _choices(a))]
