"""The flat config that parts receive, and its typed structs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rlcatalog.config.key_table import convert, keys_of
from rlcatalog.config.rllib_keys import OLD_NAMES
from rlcatalog.config.values import plain, plain_values, same

if TYPE_CHECKING:
    from rlcatalog.plugins.request import PartsCatalog

S = TypeVar("S", bound=msgspec.Struct)


class FlatConfig(dict[str, Any]):
    """Model config: an ordinary dictionary, except that it caches its typed structs.

    Each struct is created once, and again whenever a value has changed. Models written for RLlib
    can also read a key under its old names (`OLD_NAMES`).

    Args:
        values: The keys with their values; a copy of another FlatConfig shares its structs.

    Attributes:
        given: In a parsed config, the keys whose values differ from the catalog's defaults.
        explicit: In a parsed config, the keys that the caller gave, under their current names.
        structs: Cached structs of these values.
        names: Struct → field → key, for keys that differ from their field's name.
        catalog: The catalog of the lookup that parsed this config, for models that contain others;
            None if your code builds the model, and after unpickling.
    """

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        super().__init__(values or {})
        self.given: dict[str, Any] = {}
        self.explicit: dict[str, Any] = {}
        self.structs: dict[type, Any] = {}
        self.names: Mapping[type, Mapping[str, str]] = {}
        self.catalog: PartsCatalog | None = None
        if isinstance(values, FlatConfig):
            self.structs = {**values.structs}  # a copy, because `read_config` adds to it
            self.names = values.names
            self.catalog = values.catalog

    def fresh(self) -> FlatConfig:
        """Return a config that shares no mutable state with this one, so that a model may keep and
        modify it.
        """
        config = FlatConfig(self)
        config.update(plain_values(self))
        return config

    def __missing__(self, key: str) -> Any:
        return self[OLD_NAMES[key]]  # raises a KeyError if there is none

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key under its current or an old name, or the default."""
        if key not in self:
            key = OLD_NAMES.get(key, key)
        return super().get(key, default)

    def read_only(self) -> ReadOnlyConfig:
        """Return a view of this config that cannot change it."""
        return ReadOnlyConfig(self)

    def __getstate__(self) -> dict[str, Any]:
        # The structs are recreated when needed, and a model does not contain its catalog.
        return {**vars(self), "structs": {}, "catalog": None}


class ReadOnlyConfig(Mapping[str, Any]):
    """Read-only view of a config, for plugin functions. It returns copies of mutable values.

    Args:
        config: The config that this is a view of.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    @property
    def catalog(self) -> PartsCatalog | None:
        """The catalog of the lookup that parsed the config, or None."""
        return self._config.catalog if isinstance(self._config, FlatConfig) else None

    def fresh(self) -> dict[str, Any]:
        """Return a copy that shares no mutable state with the config; see `FlatConfig.fresh`."""
        if isinstance(self._config, FlatConfig):
            return self._config.fresh()
        return plain_values(self._config)

    def __getitem__(self, key: str) -> Any:
        value = self._config[key]
        if isinstance(value, list | dict | set):
            return plain(value)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._config)

    def __len__(self) -> int:
        return len(self._config)


def read_config(config: Mapping[str, Any], struct: type[S]) -> S:
    """Return one part's typed config, taken from a flat model config.

    Args:
        config: A `model_config` as models receive it; missing keys get their defaults, and other
            keys are ignored.
        struct: The part's config struct, such as `FcnetConfig`, or `KernelConfig`.

    Raises:
        ConfigError: A value has the wrong type or is out of range.
    """
    flat = config._config if isinstance(config, ReadOnlyConfig) else config
    if not isinstance(flat, FlatConfig):  # a user's dictionary, which keeps no structs
        return _make_struct(flat, struct, key_names={})
    key_names = flat.names.get(struct, {})
    cached = flat.structs.get(struct)
    if cached is None or not _is_up_to_date(cached, flat, key_names):
        cached = _make_struct(flat, struct, key_names)
        flat.structs[struct] = cached
    assert isinstance(cached, struct)
    return cached


def _is_up_to_date(
    cached: msgspec.Struct, config: FlatConfig, key_names: Mapping[str, str]
) -> bool:
    """Return whether a config still has the values from which a struct was created.

    Args:
        cached: The struct.
        config: The config, which a model may have changed since then.
        key_names: Field → key, for keys that differ from their field's name.
    """
    for field in cached.__struct_fields__:
        key = key_names.get(field, field)
        if key not in config:
            return False
        value = config[key]
        cached_value = getattr(cached, field)  # one of the struct's fields, whichever they are
        if value is not cached_value and not same(value, cached_value):
            return False
    return True


def _make_struct(config: Mapping[str, Any], struct: type[S], key_names: Mapping[str, str]) -> S:
    """Create a struct from a config; `key_names` maps fields to keys with other names."""
    values = {}
    for row in keys_of(struct):
        key = key_names.get(row.name, row.name)
        if key in config:
            values[row.name] = convert(plain(config[key], f"model config key {key!r}"), row)
    return struct(**values)
