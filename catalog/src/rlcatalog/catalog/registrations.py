"""Registering: parts of the running program, and plugins that were installed since the catalog was made."""

from __future__ import annotations

import importlib
import os
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rlcatalog.catalog.lookups import LookupCache
from rlcatalog.choice.in_process import (
    in_process_dist,
    in_process_filter,
    in_process_model,
    in_process_preprocessor,
    path_of,
)
from rlcatalog.choice.slots import Slots
from rlcatalog.config.key_table import default_of
from rlcatalog.config.schema import Schema
from rlcatalog.errors import DuplicateNameError
from rlcatalog.plugins import Component
from rlcatalog.plugins.declarations import Declaration
from rlcatalog.plugins.discovery import PluginRecord, normalize, scan
from rlcatalog.plugins.loader import load_plugins
from rlcatalog.plugins.registry import Registry
from rlcatalog.reporting import tell


class Registrations:
    """What a catalog holds, and how it comes in; see `Catalog`.

    Args:
        entry_points: Entry points to load plugins from; those of the process when None.
        environ: Environment variables that disable or allow plugins; the process's when None.
        prefer: Distributions whose parts count as listed and win ties.
    """

    def __init__(
        self,
        entry_points: Iterable[Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        prefer: Sequence[str] = (),
    ) -> None:
        self._given = None if entry_points is None else tuple(entry_points)
        self._environ, self._preferred = environ, tuple(prefer)
        named = self.environ.get("RLCATALOG_PREFER_PLUGINS", "").split(",")
        self.prefer = tuple(normalize(name) for name in (*prefer, *named) if name.strip())
        #: Held while the catalog changes; lookups go on beside it, with what was there before or after.
        self._changing = threading.RLock()
        self.registry = load_plugins(self.entry_points, self.environ, default_of)
        self.slots = Slots(self.registry, self.prefer)
        self._schema: Schema | None = None
        self._cache = LookupCache()

    @property
    def entry_points(self) -> tuple[Any, ...]:
        """The entry points that its plugins are loaded from."""
        return tuple(scan() if self._given is None else self._given)

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment variables that disable or allow plugins."""
        return os.environ if self._environ is None else self._environ

    def refresh(self) -> list[PluginRecord]:
        """Find plugins that were installed since the catalog was made, and forget those that were removed.

        What the program registered stays. A module that was imported
        before is not imported anew: a plugin of another version than before needs another process. Parts that were
        built stay as they are.

        Returns:
            How the plugins ended that were not there before.

        Raises:
            CatalogError: A plugin fails to load and `RLCATALOG_STRICT_PLUGINS=1`; the catalog is then as it was.
        """
        with self._changing:
            if self._given is None:
                importlib.invalidate_caches()  # a package that came since is to be found
                scan.cache_clear()
            registry, old = load_plugins(self.entry_points, self.environ, default_of), self.registry
            for component in old:
                if component.in_process:
                    self._keep(component, registry, old)
            schema = Schema(registry)
            # The keys before the parts that read them: a lookup that is under way may see one and not yet the other.
            self.registry, self._schema = registry, schema
            self.slots = Slots(registry, self.prefer)
            self._cache = LookupCache()
        known = {(record.distribution, record.name, record.version) for record in old.records}
        return [r for r in registry.records if (r.distribution, r.name, r.version) not in known]

    def _keep(self, component: Component, registry: Registry, old: Registry) -> None:
        """Register a component of the program once more, beside the plugins that are there now."""
        struct = old.config_paths.get(component.declaration.config or "")
        try:
            registry.add_in_process(component, struct)
        except DuplicateNameError as error:  # one of its config keys is a plugin's now
            tell(f"{component.kind} {component.name!r}, which this program registered, is left out: {error}")

    # --- parts of the program --------------------------------------------------------------------------------------

    def register(self, component: Component | Declaration, *, config: type | None = None) -> None:
        """Register a component of this program; it stands before a plugin's, and replaces an earlier one.

        Args:
            component: A declaration, or what `in_process_model`, `in_process_dist` or `in_process_preprocessor` made.
            config: The struct that its declaration's `config` names, where no plugin brings it.

        Raises:
            DuplicateNameError: A config key is another's.
            DeclarationError: The struct's keys cannot be read, or the component names a key that nobody declares.
        """
        if isinstance(component, Declaration):
            component = Component(component, "", "")
        if config is not None:
            default_of(config)  # its keys can be read
        with self._changing:
            self.registry.add_in_process(component, config)
            self._schema = None
            self.slots = Slots(self.registry, self.prefer)
            # Last, and a new one: a lookup that began before this keeps what it finds in the old one.
            self._cache = LookupCache()

    def register_model(
        self,
        name: str,
        cls: Any = None,
        *,
        slot: str | None = None,
        match: Callable[..., Any] | None = None,
        switch: str | None = None,
        describe: Callable[..., Any] | None = None,
        config: type | None = None,
        reads: tuple[str, ...] = (),
    ) -> Any:
        """Register a model class under a name for `custom_model`; without a class, return a decorator that does.

        Args:
            name: The name.
            cls: The class; None to decorate it.
            slot: `"trunk"`, `"memory"` or `"head"`; what the class says when missing.
            match: Says whether, how well and why it fits a request; None: only chosen by name, or by its switch.
            switch: The config key that turns it on.
            describe: Returns its stages with their shapes for a request.
            config: A msgspec struct with config keys of its own.
            reads: Other config keys it reads. Without these and `config` it counts as reading every key.

        Returns:
            The class, or the decorator, which returns it.

        Example:
            >>> @catalog.register_model("mine")
            ... class Mine(TorchModelV2, nn.Module): ...
        """
        fields = {"slot": slot, "match": match, "switch": switch, "describe": describe}
        return self._register_class(in_process_model, name, cls, config, reads, fields)

    def register_action_dist(
        self,
        name: str,
        cls: Any = None,
        *,
        match: Callable[..., Any] | None = None,
        config: type | None = None,
        reads: tuple[str, ...] = (),
    ) -> Any:
        """Register a distribution class for `custom_action_dist`, or return a decorator; see `register_model`."""
        return self._register_class(in_process_dist, name, cls, config, reads, {"match": match})

    def register_preprocessor(
        self,
        name: str,
        cls: Any = None,
        *,
        match: Callable[..., Any] | None = None,
        kinds: tuple[str, ...] = (),
        config: type | None = None,
        reads: tuple[str, ...] = (),
    ) -> Any:
        """Register a preprocessor class for `custom_preprocessor`, or return a decorator; see `register_model`.

        With `match`, or the `kinds` of space it takes, it is chosen for spaces inside a Dict or Tuple as well.
        """
        fields = {"match": match, "kinds": kinds or None}
        return self._register_class(in_process_preprocessor, name, cls, config, reads, fields)

    def register_filter(
        self,
        name: str,
        cls: Any = None,
        *,
        config: type | None = None,
        reads: tuple[str, ...] = (),
    ) -> Any:
        """Register a filter class for `observation_filter`, or return a decorator; see `register_model`."""
        return self._register_class(in_process_filter, name, cls, config, reads, {})

    def _register_class(
        self, describe: Callable[..., Component], name: str, cls: type | None, config: type | None,
        reads: tuple[str, ...], fields: Mapping[str, Any],
    ) -> Any:  # fmt: skip
        def register(cls: type) -> type:
            path = None if config is None else path_of(config)
            self.register(describe(cls, name, config=path, reads=reads, **fields), config=config)
            return cls

        return register if cls is None else register(cls)

    # --- in other processes ----------------------------------------------------------------------------------------

    def __reduce__(self) -> Any:
        """Pickle what the catalog is made from, and what the program registered, for processes of an engine.

        In a process that has the catalog it is the same object.
        """
        return self.pickled()

    def pickled(self, used: Sequence[str] | None = None) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return what makes the catalog again, and its arguments.

        Args:
            used: Names of the parts of the running program to take along; all of them when None.
        """
        with self._changing:
            name = _NAMES.setdefault(self, uuid.uuid4().hex)
            _ALIVE[name] = self
            registered = [
                (c, self.registry.config_paths.get(c.declaration.config or ""))
                for c in self.registry
                if c.in_process and (used is None or c.address in used)
            ]
        return _restored, (type(self), name, self._given, self._environ, self._preferred, registered)


#: The name of each catalog that was pickled, the same in all processes, and the catalog of each name.
_NAMES: weakref.WeakKeyDictionary[Registrations, str] = weakref.WeakKeyDictionary()
_ALIVE: weakref.WeakValueDictionary[str, Registrations] = weakref.WeakValueDictionary()
_RESTORING = threading.RLock()


def _restored(
    cls: Any,
    name: str,
    entry_points: tuple[Any, ...] | None,
    environ: Mapping[str, str] | None,
    prefer: Sequence[str],
    registered: Sequence[tuple[Component, type | None]],
) -> Any:
    with _RESTORING:
        catalog = _ALIVE.get(name)
        if catalog is None:
            catalog = cls(entry_points, environ=environ, prefer=prefer)
            _NAMES[catalog], _ALIVE[name] = name, catalog
        there = {(c.kind, c.name) for c in catalog.registry if c.in_process}
        for component, struct in registered:  # which may be more than came with an earlier pickle
            if (component.kind, component.name) not in there:
                catalog.register(component, config=struct)
    return catalog
