"""Plugin loader, which reports a failing plugin without affecting the others.

pluggy's entry-point loader stops at the first plugin that raises, and its `register` is not
transactional. Here, each plugin manager holds only one plugin at a time.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from types import ModuleType, SimpleNamespace
from typing import Any, get_args, get_type_hints

import msgspec
import pluggy

from rlcatalog._version import __version__
from rlcatalog.errors import CatalogError, DeclarationError, PluginError, nearest, reason, shown
from rlcatalog.plugins import hookspecs, public_index
from rlcatalog.plugins.assignment import assign
from rlcatalog.plugins.component import Component
from rlcatalog.plugins.declarations import Declaration
from rlcatalog.plugins.discovery import (
    PluginRecord,
    disabled_reason,
    find_plugins,
    incompatible_reason,
    name_of,
    scan,
)
from rlcatalog.plugins.registry import Registry
from rlcatalog.reporting import tell

#: A namespace with only the hooks, because pluggy inspects every name of it for each plugin.
_HOOKS: Any = SimpleNamespace(
    **{name: hook for name, hook in vars(hookspecs).items() if name.startswith("rlcatalog_")}
)
#: Hook name → the type of the declarations it returns.
HOOK_RETURNS: dict[str, type[Declaration]] = {
    name: get_args(get_type_hints(hook)["return"])[0] for name, hook in vars(_HOOKS).items()
}

#: Name of the plugin that is being loaded.
_LOADING: ContextVar[str | None] = ContextVar("rlcatalog_loading", default=None)


def load_plugins(
    entry_points: Iterable[Any], environ: Mapping[str, str], default_of: Callable[[type], Any]
) -> Registry:
    """Load the plugins of entry points; return the registry of their components, with each plugin's
    status.

    Args:
        entry_points: The entry points.
        environ: Environment variables that disable or allow plugins.
        default_of: A function that returns a config struct with its defaults, or raises an error if
            its keys cannot be read.

    Raises:
        PluginError: A plugin that is being loaded calls this function.
        CatalogError: A plugin fails to load and `RLCATALOG_STRICT_PLUGINS=1`.
    """
    refuse_while_loading()
    records = _load_all(entry_points, environ, default_of)
    registry = assign(records)
    # An error is raised instead of a warning.
    strict = environ.get("RLCATALOG_STRICT_PLUGINS", "") not in ("", "0")
    for record in records:
        for problem in [record.exception] if record.exception is not None else record.problems:
            _report(record, problem, strict)
    return registry


def load_indexed(kind: str) -> list[Any]:
    """Return the declarations for a process-wide table, from the packages in the public index.

    Args:
        kind: The kind of declaration, `"framework"` or `"action_codec"`.

    Returns:
        The declarations: frameworks in the index's order, then their extensions.
    """
    packages = set(public_index.distributions(f"{kind}/"))
    records = _load_all(
        (point for point in scan() if name_of(point.dist) in packages),
        os.environ,
        lambda cls: cls(),
    )
    specs = [part.declaration for record in records for part in record.parts if part.kind == kind]
    order = {name: place for place, name in enumerate(public_index.frameworks())}
    return sorted(
        specs, key=lambda spec: (spec.extends is not None, order.get(spec.name, len(order)))
    )


def condition_of(distribution: str) -> str | None:
    """Return what keeps this process from using an installed distribution, as a predicate such as
    `"is disabled: …"`; None if it is not installed, or can be used.
    """
    points = (point for point in scan() if name_of(point.dist) == distribution)
    records = _load_all(points, os.environ, lambda cls: cls())
    return next((record.condition for record in records if record.status != "loaded"), None)


def refuse_while_loading() -> None:
    """Check that no plugin is being loaded.

    Raises:
        PluginError: A plugin requests a catalog while it is being loaded.
    """
    if (name := _LOADING.get()) is not None:
        raise PluginError(
            f"plugin {name!r} requests a catalog while it is being loaded, but there is none until"
            " all plugins are loaded. Request it later: as request.catalog in a match function,"
            " or when a component is used. `from rlcatalog import *` needs a catalog for"
            " MODEL_DEFAULTS; import the names that you need."
        )


def _report(record: PluginRecord, problem: BaseException, strict: bool) -> None:
    what = record.condition if record.exception is not None else f"is loaded, but {reason(problem)}"
    text = (
        f"plugin {record.name!r} of {record.distribution} {record.version} {what.rstrip('.')}."
        f" Disable it with RLCATALOG_DISABLE_PLUGINS={record.distribution}, or remove it: pip"
        f" uninstall {record.distribution}"
    )
    if strict:
        raise (type(problem) if isinstance(problem, CatalogError) else CatalogError)(
            text
        ) from problem
    tell(text, stacklevel=5)


def _load_all(
    entry_points: Iterable[Any], environ: Mapping[str, str], default_of: Callable[[type], Any]
) -> list[PluginRecord]:
    manager = pluggy.PluginManager("rlcatalog")
    manager.add_hookspecs(_HOOKS)
    records = find_plugins(entry_points)
    for record in records:
        _load(record, environ, default_of, manager)
    return records


def _load(
    record: PluginRecord,
    environ: Mapping[str, str],
    default_of: Callable[[type], Any],
    manager: pluggy.PluginManager,
) -> None:
    """Load one plugin, and store its components, or its error, in its record."""
    if why := disabled_reason(record, environ):
        record.status, record.error = "disabled", why
        return
    if why := incompatible_reason(record, __version__):
        record.refuse(why)
        return
    here = _LOADING.set(record.name)
    try:
        plugin = record.entry_point.load()
        _read_declarations(_hooks_of(plugin, record.name, manager), record, default_of)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # any error belongs to this plugin only
        record.fail(error)
    finally:
        _LOADING.reset(here)


def _read_declarations(
    hooks: Mapping[str, Callable[[], Any]], record: PluginRecord, default_of: Callable[[type], Any]
) -> None:
    """Call all of a plugin's hooks, check the results, and store the components in the plugin's
    record.

    Raises:
        DeclarationError: A hook did not return a list of its kind of declaration, or a field of a
            declaration has the wrong form.
    """
    name, declarations = record.name, list[Declaration]()
    for hook_name, hook in hooks.items():
        returned, expected = hook(), HOOK_RETURNS[hook_name]
        items: list[Any] = [*returned] if type(returned) in (list, tuple) else [None]
        if not all(type(item) is expected for item in items):
            raise DeclarationError(
                f"plugin {name!r}: {hook_name}() must return a list of {expected.__name__}, found"
                f" {shown(returned)}."
            )
        for declaration in items:
            declaration.check_fields()  # a plugin may have changed it since it was created
        declarations += items
    for path in dict.fromkeys(d.config for d in declarations if d.config is not None):
        module, _, attribute = path.partition(":")
        struct = getattr(importlib.import_module(module), attribute, None)
        where = f"plugin {name!r}: config={path!r}"
        if not (isinstance(struct, type) and issubclass(struct, msgspec.Struct)):
            raise DeclarationError(f"{where} must name a msgspec.Struct, found {shown(struct)}.")
        try:
            default_of(struct)
        except DeclarationError as error:
            raise DeclarationError(f"{where}: {error}") from error
        record.config_classes[path] = struct
    record.parts = [
        Component(declaration, record.distribution, record.version) for declaration in declarations
    ]
    if not hooks:
        text = (
            f"plugin {name!r}: it has no hooks, so it provides nothing. Hooks:"
            f" {', '.join(HOOK_RETURNS)}."
        )
        record.note(DeclarationError(text))


def _hooks_of(
    plugin: ModuleType | object, name: str, manager: pluggy.PluginManager
) -> dict[str, Callable[[], Any]]:
    """Return a plugin's hooks by name; raise an error for a function that only looks
    like a hook.
    """
    # Pluggy compares what it holds with ==, which a plugin may define as it likes.
    held = ModuleType(name)
    vars(held).update(
        (key, one) for key, one in inspect.getmembers(plugin, inspect.isroutine) if key[0] != "_"
    )
    try:
        manager.register(held, name)
        hooks = {
            hook.name: hook.get_hookimpls()[0].function
            for hook in manager.get_hookcallers(held) or ()
        }
    except pluggy.PluginValidationError as error:
        hook = next((hook for hook in HOOK_RETURNS if hook in str(error)), "hook")
        text = f"plugin {name!r}: {error} Hooks of rlcatalog take no arguments: def {hook}()."
        raise DeclarationError(text) from error
    finally:
        if manager.has_plugin(name):
            manager.unregister(name=name)
    alike = [key for key in vars(held) if key.startswith("rlcatalog_")]
    for key in dict.fromkeys([*hooks, *alike]):
        if key not in HOOK_RETURNS:
            raise DeclarationError(
                f"plugin {name!r}: {key!r} is not one of rlcatalog's"
                f" hooks.{nearest(key, HOOK_RETURNS)} Hooks: {', '.join(HOOK_RETURNS)}."
            )
        if key not in hooks:
            raise DeclarationError(
                f"plugin {name!r}: {key}() is not decorated with @rlcatalog.hookimpl."
            )
    return hooks
