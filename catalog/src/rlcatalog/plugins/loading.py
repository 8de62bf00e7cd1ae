"""Loading plugins, each in a `try` of its own: one that fails is reported and takes no other with it.

pluggy's own entry-point loader stops at the first plugin that raises, and its `register` is not transactional. Here
each plugin is registered alone and taken out again once its hooks were called, so that none can disturb another.
"""

from __future__ import annotations

import importlib
import inspect
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import pluggy

from rlcatalog._version import __version__
from rlcatalog.errors import (
    CatalogError,
    DeclarationError,
    DuplicateNameError,
    IncompatiblePluginError,
    PluginWarning,
    nearest,
)
from rlcatalog.plugins import hookspecs
from rlcatalog.plugins.declarations import HOOK_RETURNS, Declaration, ProcessWideSpec
from rlcatalog.plugins.discovery import Candidate, candidates, disabled_reason, incompatible_reason
from rlcatalog.plugins.record import Loaded, PluginRecord
from rlcatalog.plugins.registry import Registry

#: What a plugin may raise without taking the process with it (an import that calls sys.exit included).
_CAUGHT = (Exception, SystemExit)


def load_plugins(
    registry: Registry,
    entry_points: Iterable[Any],
    environ: Mapping[str, str],
    prefer: Sequence[str],
    reserved: Mapping[str, str],
) -> None:
    """Load the plugins behind entry points and note in the registry how each ended.

    Args:
        registry: Where the components and records go.
        entry_points: The entry points.
        environ: Environment variables that disable or allow plugins.
        prefer: Distributions whose plugins come first, and so keep a name that another one has too.
        reserved: Config keys that no plugin may own, with their owner.

    Raises:
        CatalogError: A plugin fails to load and `RLCATALOG_STRICT_PLUGINS=1`.
    """
    order = {name: i for i, name in enumerate(prefer)}
    listed = sorted(candidates(entry_points), key=lambda c: order.get(c.distribution, len(order)))
    ended = [load(candidate, environ, __version__) for candidate in listed]
    registry.records += [record for record, _ in ended]
    loaded = [(record, found) for record, found in ended if found is not None]
    entered: list[tuple[PluginRecord, ProcessWideSpec]] = []
    for record, found in loaded:  # first of all: parts of any plugin may be written in a framework of another
        for spec in found.declarations:
            if isinstance(spec, ProcessWideSpec):
                with _noted(record):
                    if spec.enter():
                        entered.append((record, spec))
    _check_extensions(loaded)
    for record, found in loaded:
        if record.exception is None:
            with _noted(record):
                registry.add_plugin(record, found, reserved)
    for record, spec in entered:
        if record.exception is not None:
            spec.leave()
    registry.extend()
    for record, _ in ended:
        if record.exception is not None:
            _report(record, environ)
    registry.mark_shadowed()


def _check_extensions(loaded: Sequence[tuple[PluginRecord, Loaded]]) -> None:
    """Note in the records of plugins that extend a part with code for a framework it has code for already."""
    owners = {
        (d.kind, f"{record.distribution}/{d.name}", framework): record
        for record, found in loaded
        for d in found.declarations
        if d.extends is None
        for framework in d.targets
    }
    for record, found in loaded:
        brought = [(d.kind, d.extends, framework) for d in found.declarations if d.extends for framework in d.targets]
        with _noted(record):
            for kind, victim, framework in brought:
                if (owner := owners.get((kind, str(victim), framework))) is not None:
                    raise DuplicateNameError(
                        f"{record.distribution} extends {kind} {victim}, which has code for framework {framework!r}"
                        f" already, of {owner.distribution} {owner.version}."
                    )
            owners |= {(kind, str(victim), framework): record for kind, victim, framework in brought}


@contextmanager
def _noted(record: PluginRecord) -> Iterator[None]:
    """Note in a plugin's record what goes wrong with it."""
    try:
        yield
    except CatalogError as error:
        record.fail(error)


def _report(record: PluginRecord, environ: Mapping[str, str]) -> None:
    text = (
        f"plugin {record.name!r} of {record.distribution} {record.version} is {record.status}: {record.error}"
        f" (leave it out with RLCATALOG_DISABLE_PLUGINS={record.distribution},"
        f" or remove it: pip uninstall {record.distribution})"
    )
    if environ.get("RLCATALOG_STRICT_PLUGINS", "") not in ("", "0"):
        cause = record.exception
        raise (type(cause) if isinstance(cause, CatalogError) else CatalogError)(text) from cause
    warnings.warn(text, PluginWarning, stacklevel=5)


def load(candidate: Candidate, environ: Mapping[str, str], kernel_version: str) -> tuple[PluginRecord, Loaded | None]:
    """Load one plugin in a `try` of its own.

    Returns:
        The record, and what the plugin declared, or None when it is disabled, incompatible or failed.
    """
    record = PluginRecord(candidate.name, candidate.distribution, candidate.version)
    if reason := disabled_reason(candidate, environ):
        record.status, record.error = "disabled", reason
        return record, None
    if reason := incompatible_reason(candidate, kernel_version):
        fix = f"Install a version of {candidate.distribution} made for it, or change rlcatalog's."
        record.fail(IncompatiblePluginError(f"{candidate.distribution} {candidate.version}: {reason}. {fix}"),
                    "incompatible")  # fmt: skip
        return record, None
    try:
        return record, declared_by(candidate.entry_point.load(), candidate.name)
    except _CAUGHT as error:
        record.fail(error)
        return record, None


def declared_by(plugin: ModuleType | object, name: str) -> Loaded:
    """Call every hook of a plugin and check what it returns.

    Args:
        plugin: The plugin's module, or any object with hook methods.
        name: Name for messages.

    Raises:
        DeclarationError: A hook is misspelt, lacks `@hookimpl`, takes arguments or returns something else.
    """
    declarations: list[Declaration] = []
    for hook_name, hook in _hooks_of(plugin, name).items():
        returned, expected = hook(), HOOK_RETURNS[hook_name]
        if not isinstance(returned, list | tuple) or not all(isinstance(item, expected) for item in returned):
            raise DeclarationError(
                f"plugin {name!r}: {hook_name}() must return a list of {expected.__name__}, found {returned!r}."
            )
        declarations.extend(returned)
    paths = dict.fromkeys(d.config for d in declarations if d.config is not None)
    return Loaded(tuple(declarations), {path: _config_class(path, name) for path in paths})


_LOCK = threading.Lock()


@cache
def _manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager("rlcatalog")
    manager.add_hookspecs(hookspecs)
    return manager


def _hooks_of(plugin: Any, name: str) -> dict[str, Any]:
    manager = _manager()
    with _LOCK:  # two threads may make a catalog at once, of the same plugins
        try:
            manager.register(plugin, name)
            callers = manager.get_hookcallers(plugin) or []
        except pluggy.PluginValidationError as error:
            raise DeclarationError(
                f"plugin {name!r}: {error} Hooks of rlcatalog take no arguments: def {_hook_in(str(error))}()."
            ) from error
        finally:
            if manager.is_registered(plugin):
                manager.unregister(plugin)
    hooks = {}
    for caller in callers:
        if not caller.has_spec():
            raise DeclarationError(
                f"plugin {name!r}: {caller.name!r} is not a hook of rlcatalog.{nearest(caller.name, HOOK_RETURNS)}"
                f" Hooks: {', '.join(HOOK_RETURNS)}."
            )
        hooks[caller.name] = getattr(plugin, caller.name)
    for attribute, value in vars(plugin).items():
        if attribute.startswith("rlcatalog_") and attribute not in hooks and inspect.isfunction(value):
            known = "lacks @rlcatalog.hookimpl" if attribute in HOOK_RETURNS else "is not a hook of rlcatalog"
            raise DeclarationError(f"plugin {name!r}: {attribute}() {known}.{nearest(attribute, HOOK_RETURNS)}")
    return hooks


def _hook_in(text: str) -> str:
    return next((hook for hook in HOOK_RETURNS if hook in text), "hook")


def _config_class(path: str, name: str) -> type:
    import msgspec

    module, _, attribute = path.partition(":")
    found = getattr(importlib.import_module(module), attribute, None)
    if not (isinstance(found, type) and issubclass(found, msgspec.Struct)):
        raise DeclarationError(f"plugin {name!r}: config={path!r} must name a msgspec.Struct, found {found!r}.")
    return found
