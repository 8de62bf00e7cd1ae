"""The model config: one flat dictionary for users, one typed struct per component inside.

It is parsed once, at the edge: NumPy scalars become Python's, values are copied so that nothing is shared with the
caller, every key is looked up in the one table made of the kernel's keys and those of the installed packages.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from rlcatalog.config.deprecation import warn_deprecated
from rlcatalog.config.kernel_keys import KernelConfig
from rlcatalog.config.legacy_keys import ALIASES, IGNORED, REFUSED, SPLIT
from rlcatalog.errors import CatalogError, ConfigError, ConfigTypeError, UnknownConfigKeyError, nearest
from rlcatalog.plugins import Registry, public_index

S = TypeVar("S", bound=msgspec.Struct)


@dataclass(frozen=True)
class Key:
    """One row of the key table."""

    name: str
    owner: str
    type: Any
    default: Any
    meaning: str


@dataclass(frozen=True)
class ModelConfig:
    """A parsed model config.

    Attributes:
        values: Every key with its value; belongs to this object alone.
        given: The keys whose value is not the default.
    """

    values: dict[str, Any]
    given: dict[str, Any]

    def fresh(self) -> dict[str, Any]:
        """Return a copy that a model may keep, and change, as its `model_config`."""
        copied = plain(self.values)
        assert isinstance(copied, dict)
        return copied


class Schema:
    """The table of all keys of one catalog."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        structs: dict[type, str] = {KernelConfig: "rlcatalog", **registry.config_classes}
        self._structs = tuple(structs)
        self.keys: dict[str, Key] = {k.name: k for struct, owner in structs.items() for k in keys_of(struct, owner)}

    def defaults(self) -> dict[str, Any]:
        """Return a fresh `MODEL_DEFAULTS`: every key of the installed packages with its default."""
        return {key.name: plain(key.default) for key in self.keys.values()}

    def parse(self, config: Mapping[str, Any] | None) -> ModelConfig:
        """Check and complete a user's config; the user's object is not changed and not kept.

        Raises:
            UnknownConfigKeyError: A key nobody declares; the message suggests the nearest or names the package.
            ConfigTypeError: A value of the wrong type.
            ConfigError: A value out of range, or a key that is refused.
        """
        if config is not None and not isinstance(config, Mapping):
            raise ConfigTypeError(f"model config: expected a dict, found {config!r} ({type(config).__name__}).")
        given: dict[str, Any] = {}
        asked: dict[str, str] = {}
        for key, value in (config or {}).items():
            names, value = self._canonical(key, plain(value))
            for name in names:
                if asked.setdefault(name, key) != key:
                    alias = key if key != name else asked[name]
                    raise ConfigError(f"model config: {alias!r} is another name of {name!r}, and both are given.")
                row = self.keys[name]
                converted = convert(value, row)
                if not same(converted, row.default):
                    given[name] = converted
        values = {**self.defaults(), **given}
        for struct in self._structs:
            struct(**{name: values[name] for name in struct.__struct_fields__})  # type: ignore[attr-defined]
        return ModelConfig(values, given)

    def _canonical(self, key: str, value: Any) -> tuple[tuple[str, ...], Any]:
        """Return today's keys for a key, none for one without effect, and the value they take."""
        if key in self.keys:
            return (key,), value
        if key in ALIASES:
            name, translate = ALIASES[key]
            warn_deprecated(f"model config key {key!r} is now called {name!r}.")
            return (name,), translate(value)
        if key in SPLIT and all(name in self.keys for name in SPLIT[key]):
            names = SPLIT[key]
            warn_deprecated(f"model config key {key!r} is now split into {' and '.join(map(repr, names))}.")
            return names, value
        if key in IGNORED:
            warn_deprecated(f"model config key {key!r} has no effect: {IGNORED[key]}")
            return (), value
        if key in REFUSED:
            raise ConfigError(f"model config key {key!r} is refused: {REFUSED[key]}")
        owned, *_ = SPLIT.get(key, (str(key),))
        try:
            self._registry.explain_missing(f"model config key {key!r}", public_index.provider_of("config", owned))
        except CatalogError as error:
            raise UnknownConfigKeyError(str(error)) from error
        raise UnknownConfigKeyError(
            f"Unknown model config key {key!r}.{nearest(str(key), self.keys)}"
            " `rlcatalog.MODEL_DEFAULTS` lists the keys of the installed packages."
        )


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
        text = str(error).replace("`", "'").replace("at '$", f"at '{row.name}").rstrip(".")
        known = ", ".join(map(repr, _choices(row.type))) if text.startswith("Invalid enum value") else ""
        raise kind(
            f"{what} {row.name!r} ({row.meaning}): {text[0].lower()}{text[1:]}; found {value!r}."
            f"{f' Known: {known}.' if known else ''} Default: {row.default!r}."
        ) from None


def _choices(kind: Any) -> list[Any]:
    """Return the values a type with a Literal in it allows."""
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        return list(arguments)
    return [choice for a in arguments for choice in ([None] if a is type(None) else _choices(a))]


def read_config(config: Mapping[str, Any], struct: type[S]) -> S:
    """Return one component's typed config, taken from a flat model config.

    Args:
        config: A `model_config` as models receive it; missing keys take their defaults, other keys are left alone.
        struct: The component's config struct, such as `FcnetConfig`, or `KernelConfig`.

    Raises:
        ConfigError: A value is of the wrong type or out of range.
    """
    rows = {row.name: row for row in keys_of(struct, "")}
    return struct(**{key: convert(plain(config[key]), rows[key]) for key in rows if key in config})


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
