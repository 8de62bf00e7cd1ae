"""Loads one plugin and keeps a record of how it went.

pluggy's own entry-point loader stops at the first plugin that raises, and its `register` is not transactional. Here
each plugin is registered alone and taken out again once its hooks were called, so that none can disturb another.
"""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

import pluggy

from rlcatalog import hookspecs
from rlcatalog.declarations import HOOK_RETURNS, Declaration
from rlcatalog.discovery import Candidate, disabled_reason, incompatible_reason
from rlcatalog.errors import DeclarationError, IncompatiblePluginError, nearest

#: What a plugin may raise without taking the process with it (an import that calls sys.exit included).
_CAUGHT = (Exception, SystemExit)


@dataclass
class PluginRecord:
    """How a plugin ended.

    Attributes:
        name: Entry-point name.
        distribution: Distribution that provides it.
        version: That distribution's version.
        status: `"loaded"`, `"disabled"`, `"incompatible"`, `"failed"` or `"shadowed"` (all it provides is overridden).
        error: Why it is not loaded, as text; None when it is.
        exception: The exception behind `error`, if there is one.
    """

    name: str
    distribution: str
    version: str
    status: str = "loaded"
    error: str | None = None
    exception: BaseException | None = field(default=None, repr=False)

    def fail(self, exception: BaseException, status: str = "failed") -> None:
        """Note that the plugin is not usable, and why."""
        self.status, self.exception = status, exception
        text = str(exception) or repr(exception)
        named = isinstance(exception, DeclarationError | IncompatiblePluginError)
        self.error = text if named else f"{type(exception).__name__}: {text}"


@dataclass(frozen=True)
class Loaded:
    """What a plugin declared: its components and, by import path, the structs that hold its config keys."""

    declarations: tuple[Declaration, ...]
    config_classes: dict[str, type]


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
