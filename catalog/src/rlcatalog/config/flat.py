"""The flat config that parts are given, and the typed structs it was parsed into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from rlcatalog.config.keys import convert, keys_of
from rlcatalog.config.values import plain, same

S = TypeVar("S", bound=msgspec.Struct)


class FlatConfig(dict[str, Any]):
    """A model config, key → value, that remembers the structs made of it; in all else an ordinary dictionary.

    A struct is made once and handed on; it is made anew where a value has changed since.

    Args:
        values: The keys with their values.
        structs: Structs made of these values already.
    """

    def __init__(self, values: Mapping[str, Any], structs: Mapping[type, Any] | None = None) -> None:
        super().__init__(values)
        self._structs = dict(structs or {})

    @classmethod
    def of(cls, config: Mapping[str, Any] | None) -> FlatConfig:
        """Return a config with the same values, which may be given other ones without changing this one."""
        return cls(config or {}, config._structs if isinstance(config, FlatConfig) else None)

    def fresh(self) -> FlatConfig:
        """Return a config that shares no value with this one."""
        return FlatConfig({key: plain(value) for key, value in self.items()}, self._structs)

    def typed(self, struct: type[S]) -> S:
        """Return the values of a component's keys as its struct; see `read_config`."""
        known = self._structs.get(struct)
        if known is None or not all(
            name in self and same(self[name], getattr(known, name)) for name in struct.__struct_fields__
        ):
            known = self._structs[struct] = _converted(self, struct)
        return known

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return FlatConfig, (dict(self),)  # a struct is made anew where it is needed


def read_config(config: Mapping[str, Any], struct: type[S]) -> S:
    """Return one component's typed config, taken from a flat model config.

    Args:
        config: A `model_config` as models receive it; missing keys take their defaults, other keys are left alone.
        struct: The component's config struct, such as `FcnetConfig`, or `KernelConfig`.

    Raises:
        ConfigError: A value is of the wrong type or out of range.
    """
    return config.typed(struct) if isinstance(config, FlatConfig) else _converted(config, struct)


def _converted(config: Mapping[str, Any], struct: type[S]) -> S:
    rows = {row.name: row for row in keys_of(struct, "")}
    return struct(
        **{key: convert(plain(config[key], f"model config key {key!r}"), rows[key]) for key in rows if key in config}
    )
