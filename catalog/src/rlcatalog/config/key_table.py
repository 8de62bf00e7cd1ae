"""A config struct's keys: types, defaults, meanings, and conversion of values."""

from __future__ import annotations

import re
import typing
from contextlib import AbstractContextManager
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
        if field.default_factory is msgspec.NODEFAULT:
            default = field.default
        else:
            default = field.default_factory()
        rows.append(Key(field.name, field.type, default, _description(field.type)))
    return tuple(rows)


def _description(field_type: type) -> str:
    """Return the first description in the annotations of a field's type, or an empty text."""
    _, *annotations = typing.get_args(field_type) or (None,)
    for annotation in annotations:
        if isinstance(annotation, Meta) and annotation.description:
            return annotation.description
    return ""


@cache
def default_of(struct: type) -> Any:
    """Return a config struct with its defaults; its keys are read and checked once.

    Raises:
        DeclarationError: A key has no default or an invalid default, or the struct cannot be
            created from its defaults.
    """
    with _blame_struct(struct, "its keys cannot be read"):
        rows = keys_of(struct)
    for row in rows:
        if row.default is msgspec.NODEFAULT:
            raise DeclarationError(
                f"config struct {struct.__name__}: key {row.name!r} has no default."
            )
        with _blame_struct(struct, f"key {row.name!r} does not allow its own default"):
            convert(plain(row.default), row)
    with _blame_struct(struct, "it cannot be created from its defaults"):
        return struct(**{row.name: plain(row.default) for row in rows})


def _blame_struct(struct: type, problem: str) -> AbstractContextManager[None]:
    """Return a context in which an error says what is wrong with a config struct."""

    def declaration_error(why: str) -> DeclarationError:
        hint = ""
        if why.startswith("NameError"):
            hint = " Types of its keys must be imported at run time."
        return DeclarationError(f"config struct {struct.__name__}: {problem}: {why}.{hint}")

    return raised_as(declaration_error, DeclarationError)


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
        raise _invalid(str(error), value, row, what) from None
    except Exception as error:  # of other types for odd values, such as text that is not Unicode
        raise ConfigError(
            f"{what} {row.name!r} ({row.meaning}): {shown(value)} cannot be used: {reason(error)}."
        ) from error


def _invalid(problem: str, value: Any, row: Key, what: str) -> ConfigError:
    """Return the error for a value that msgspec refused.

    Args:
        problem: msgspec's message.
        value: The value.
        row: The key.
        what: Description of the key.
    """
    about = f"{what} {row.name!r} ({row.meaning})"
    # msgspec has one error class; only its text tells a wrong type from a value out of range.
    wrong_type = _WRONG_TYPE.fullmatch(problem)
    if wrong_type is not None:
        expected_types, found_type, place = wrong_type.groups()
        expected = " or ".join(_TYPES.get(name, name) for name in expected_types.split(" | "))
        found = f"{_TYPES.get(found_type, found_type)}: {shown(value)}"
        if place is not None:
            # msgspec writes `$` for the value itself.
            found = f"{_TYPES.get(found_type, found_type)} at {row.name}{place}, in {shown(value)}"
        elif found_type == "null":
            found = "None"
        return ConfigTypeError(
            f"{about}: expected {expected}, found {found}. Default: {shown(row.default)}."
        )
    text = one_line(problem).replace("`", "'").rstrip(".")
    text = text.replace("at '$", f"at '{row.name}")
    text = text[0].lower() + text[1:]
    known = ""
    if problem.startswith("Invalid enum value"):
        choices = ", ".join(map(repr, _choices(row.type)))
        if choices:
            known = f" Known: {choices}."
    return ConfigError(
        f"{about}: {text}; found {shown(value)}.{known} Default: {shown(row.default)}."
    )


#: msgspec's message for a wrong type: the expected types, the one that it found, and its place.
_WRONG_TYPE = re.compile(r"Expected `([^`]*)`, got `([^`]*)`(?: - at `\$(.*)`)?")
#: msgspec's names for types, in words.
_TYPES = {
    "array": "a list",
    "bool": "a bool",
    "float": "a float",
    "int": "an int",
    "null": "None",
    "object": "a dict",
    "str": "a string",
}


def _choices(kind: type) -> list[Any]:
    """Return the values allowed by a type that contains a Literal."""
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        return list(arguments)
    choices: list[Any] = []
    for argument in arguments:
        if argument is type(None):
            choices.append(None)
        else:
            choices.extend(_choices(argument))
    return choices
