"""Parsing of model configs, with one table of all keys from the kernel and the installed packages.

NumPy scalars become Python numbers, and the values of a config are copied, so that nothing is
shared with the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from rlcatalog import public_index
from rlcatalog.config.flat import FlatConfig
from rlcatalog.config.kernel_keys import KernelConfig
from rlcatalog.config.key_table import Key, convert, default_of, keys_of
from rlcatalog.config.other_libraries import advice_for
from rlcatalog.config.rllib_keys import IGNORED, REFUSED, RENAMED, asks_nothing, translate
from rlcatalog.config.values import plain, plain_values, same
from rlcatalog.errors import (
    CatalogError,
    ConfigError,
    ConfigTypeError,
    UnknownConfigKeyError,
    nearest,
    raised_as,
    shown,
)
from rlcatalog.plugins.names import ways_to_say
from rlcatalog.plugins.registry import Registry
from rlcatalog.reporting import warn_deprecated


class _CurrentKeys(NamedTuple):
    """What an entry of a user's config means today.

    Attributes:
        keys: The current keys that the entry sets; none if it has no effect.
        value: Their value.
    """

    keys: tuple[str, ...]
    value: Any


class Schema:
    """Table of all config keys in one catalog."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        owners: dict[type, str] = {KernelConfig: "rlcatalog", **registry.config_classes}
        #: Struct class → a struct with the default values.
        self._default_structs = {struct: default_of(struct) for struct in owners}
        self._names = registry.key_names
        self.keys: dict[str, Key] = {}
        #: Key → the structs it is a field of.
        self._structs_of: dict[str, list[type]] = {}
        for struct, owner in owners.items():
            key_names = self._key_names(struct)
            for row in keys_of(struct):
                name = key_names[row.name]
                self.keys[name] = replace(row, name=name, owner=owner)
                self._structs_of.setdefault(name, []).append(struct)
        self._default_values = {key.name: key.default for key in self.keys.values()}

    def defaults(self) -> dict[str, Any]:
        """Return a new `MODEL_DEFAULTS`: every key of the installed packages with its default."""
        return plain_values(self._default_values)

    def parse(
        self, config: Mapping[str, Any] | None, defaults: Mapping[str, Any] | None = None
    ) -> FlatConfig:
        """Check and complete a user's config; the user's object is neither changed nor stored.

        Args:
            config: The config.
            defaults: The caller's defaults for keys that the config does not set.

        Raises:
            UnknownConfigKeyError: No package declares the key; the message suggests the nearest key
                or names the missing package.
            ConfigTypeError: A value has the wrong type.
            ConfigError: A value is out of range, or a key is rejected.
        """
        if config is not None and not isinstance(config, Mapping):
            raise ConfigTypeError(
                f"model config: expected a dict, found {shown(config)} ({type(config).__name__})."
            )
        explicit = self._explicit_values(config)
        # An engine's default for a key of a package that is not installed is left out.
        values = {name: value for name, value in (defaults or {}).items() if name in self.keys}
        values.update(explicit)
        differing = {}
        for name, value in values.items():
            if not same(value, self.keys[name].default):
                differing[name] = value
        flat = FlatConfig({**self.defaults(), **differing})
        flat.given = differing
        flat.explicit = explicit
        flat.names = self._names
        flat.structs = {**self._default_structs}
        # Only structs with a differing value are created anew.
        differing_structs: list[type] = []
        for name in differing:
            differing_structs += self._structs_of[name]
        for struct in dict.fromkeys(differing_structs):  # each once
            flat.structs[struct] = self._make_struct(struct, flat)
        return flat

    def _explicit_values(self, config: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the values that a user's config sets, by current key.

        Raises:
            ConfigError: The config sets one key under two names, or has a key or a value that
                `parse` refuses.
        """
        # A user's mapping may be of any class, so that even `len` and `items` can raise an error.
        unreadable = f"model config: {type(config).__name__} cannot be read"
        with raised_as(lambda why: ConfigError(f"{unreadable}: {why}."), CatalogError):
            entries = list((config or {}).items())
        explicit: dict[str, Any] = {}
        users_keys: dict[str, str] = {}  # current key → the user's name for it
        for key, value in entries:
            copy = plain(value, f"model config key {shown(key)}")
            current = self._translate(key, copy)
            for name in current.keys:
                other_key = users_keys.setdefault(name, key)
                if other_key != key:
                    alias = other_key if key == name else key
                    raise ConfigError(
                        f"model config: {alias!r} is another name for {name!r}, and both are given."
                    )
                explicit[name] = convert(current.value, self.keys[name])
        return explicit

    def _key_names(self, struct: type) -> dict[str, str]:
        """Return the key of each field of a struct."""
        other_names = self._names.get(struct, {})
        return {row.name: other_names.get(row.name, row.name) for row in keys_of(struct)}

    def _make_struct(self, struct: type, flat: FlatConfig) -> Any:
        """Create a struct with a config's values.

        Raises:
            ConfigError: Its package refuses a value.
        """
        key_names = self._key_names(struct)

        def refusal(why: str) -> ConfigError:
            owner = self._registry.config_classes.get(struct, "rlcatalog")
            settings = [
                f"{key}={shown(flat.given[key])}" for key in key_names.values() if key in flat.given
            ]
            return ConfigError(
                f"model config: {struct.__name__} of {owner} rejects"
                f" {', '.join(settings) or 'its defaults'}: {why}."
            )

        # The struct's class may be a plugin's, and its __post_init__ can raise any error.
        with raised_as(refusal, CatalogError):
            return struct(**{field: plain(flat[key]) for field, key in key_names.items()})

    def _translate(self, key: str, value: Any) -> _CurrentKeys:
        """Return what an entry of a user's config means today, with a warning for an old key.

        Raises:
            UnknownConfigKeyError: No package declares the key.
            ConfigError: The key is rejected.
        """
        if not isinstance(key, str):
            raise UnknownConfigKeyError(
                f"Unknown model config key {shown(key)}: keys must be strings, found"
                f" {type(key).__name__}."
            )
        if key in self.keys:
            return _CurrentKeys((key,), value)
        # Several packages have a key with this name, and only `package/key` says which is meant.
        if key in self._registry.homeless_keys:
            owners = self._registry.homeless_keys[key]
            raise ConfigError(ways_to_say("model config key", key, owners))
        # RLlib passes its whole model config, so a key with RLlib's default asks for nothing, even
        # if the package that has the key is not installed.
        if asks_nothing(key, value):
            return _CurrentKeys(keys=(), value=value)
        new_names = tuple(RENAMED.get(key, ()))
        are_all_installed = self.keys.keys() >= set(new_names)
        if new_names and are_all_installed:
            what = "called" if len(new_names) == 1 else "split into"
            warn_deprecated(
                f"model config key {key!r} is now {what} {' and '.join(map(repr, new_names))}."
            )
            return _CurrentKeys(new_names, translate(key, value))
        if key in IGNORED:
            warn_deprecated(f"model config key {key!r} has no effect: {IGNORED[key]}")
            return _CurrentKeys(keys=(), value=value)
        if key in REFUSED:
            raise ConfigError(f"model config key {key!r} is not supported: {REFUSED[key]}")
        current_key = new_names[0] if new_names else key
        provider = public_index.provider_of("config", current_key)
        try:
            self._registry.explain_missing(f"model config key {shown(key)}", provider)
        except CatalogError as error:
            raise UnknownConfigKeyError(str(error)) from error
        # What another library calls it helps more than a key with similar letters.
        hint = advice_for(key) or nearest(key, self.keys)
        raise UnknownConfigKeyError(
            f"Unknown model config key {shown(key)}.{hint}"
            " `rlcatalog.MODEL_DEFAULTS` lists the keys of the installed packages."
        )
