"""Loading plugins, each in a `try` of its own: one that fails is reported and takes no other with it.

pluggy's own entry-point loader stops at the first plugin that raises, and its `register` is not transactional. Here
each plugin's hooks are registered alone and taken out again once they were called, so that none can disturb another.
"""

from __future__ import annotations

import importlib
import inspect
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import cache
from types import ModuleType
from typing import Any

import pluggy

from rlcatalog._version import __version__
from rlcatalog.errors import (
    CatalogError,
    DeclarationError,
    IncompatiblePluginError,
    PluginError,
    nearest,
    reason,
    shown,
)
from rlcatalog.plugins import hookspecs, public_index
from rlcatalog.plugins.assigning import assign
from rlcatalog.plugins.declarations import (
    ActionDistSpec,
    CheckSpec,
    CommandSpec,
    Declaration,
    EngineSpec,
    EnvWrapperSpec,
    ExporterSpec,
    FilterSpec,
    ModelSpec,
    PreprocessorSpec,
)
from rlcatalog.plugins.discovery import (
    Candidate,
    candidates,
    disabled_reason,
    incompatible_reason,
    name_of,
    scan,
)
from rlcatalog.plugins.process_wide import ActionCodecSpec, FrameworkSpec
from rlcatalog.plugins.registry import Loaded, PluginRecord, Registry
from rlcatalog.reporting import tell

#: Hook name → the declaration its list must hold.
HOOK_RETURNS: dict[str, type[Declaration]] = {
    "rlcatalog_preprocessors": PreprocessorSpec,
    "rlcatalog_filters": FilterSpec,
    "rlcatalog_env_wrappers": EnvWrapperSpec,
    "rlcatalog_models": ModelSpec,
    "rlcatalog_action_dists": ActionDistSpec,
    "rlcatalog_action_codecs": ActionCodecSpec,
    "rlcatalog_frameworks": FrameworkSpec,
    "rlcatalog_exporters": ExporterSpec,
    "rlcatalog_commands": CommandSpec,
    "rlcatalog_engines": EngineSpec,
    "rlcatalog_checks": CheckSpec,
}

#: Name of the plugin that is being loaded here.
_LOADING: ContextVar[str | None] = ContextVar("rlcatalog_loading", default=None)


def load_plugins(
    registry: Registry,
    entry_points: Iterable[Any],
    environ: Mapping[str, str],
    default_of: Callable[[type], Any],
) -> None:
    """Load the plugins behind entry points and note in the registry how each ended.

    Args:
        registry: Where the components and records go.
        entry_points: The entry points.
        environ: Environment variables that disable or allow plugins.
        default_of: Makes a config struct of its defaults, or raises where its keys cannot be read.

    Raises:
        PluginError: A plugin that is being loaded asks for it.
        CatalogError: A plugin fails to load and `RLCATALOG_STRICT_PLUGINS=1`.
    """
    refuse_while_loading()
    listed = candidates(entry_points)
    ended = [load(candidate, environ, __version__, default_of) for candidate in listed]
    registry.records += [record for record, _ in ended]
    assign(registry, [(record, found) for record, found in ended if found is not None])
    strict = environ.get("RLCATALOG_STRICT_PLUGINS", "") not in ("", "0")  # a fault is raised, not warned of
    for record in registry.records:
        for problem in [record.exception] if record.exception is not None else record.problems:
            _report(record, problem, strict)


def load_indexed(kind: str) -> list[Any]:
    """Return what the public index's packages declare for a table of the process, before any catalog is made.

    Args:
        kind: The kind of declaration, `"framework"` or `"action_codec"`.

    Returns:
        The declarations: frameworks in the index's order, and behind them what extends them.
    """
    packages = set(public_index.distributions(f"{kind}/"))
    listed = candidates(point for point in scan() if name_of(point.dist) in packages)
    ended = [load(candidate, os.environ, __version__, lambda struct: struct())[1] for candidate in listed]
    specs = [spec for one in ended if one is not None for spec in one.declarations if spec.kind == kind]
    order = {name: place for place, name in enumerate(public_index.frameworks())}
    return sorted(specs, key=lambda spec: (spec.extends is not None, order.get(spec.name, len(order))))


def refuse_while_loading() -> None:
    """Raise where a plugin that is being loaded is who asks.

    Raises:
        PluginError: So it is.
    """
    if (name := _LOADING.get()) is not None:
        raise PluginError(
            f"plugin {name!r} asks for a catalog while it is loaded, and there is none before all plugins are. Ask"
            " later: in a match function as request.catalog, in a part when it is used. `from rlcatalog import *` asks"
            " for MODEL_DEFAULTS, and so for a catalog: import names one by one."
        )


def _report(record: PluginRecord, problem: BaseException, strict: bool) -> None:
    failed = record.exception is not None
    what = f"is {record.status}: {record.error}" if failed else f"is loaded, but {reason(problem)}"
    text = (
        f"plugin {record.name!r} of {record.distribution} {record.version} {what}"
        f" (leave it out with RLCATALOG_DISABLE_PLUGINS={record.distribution},"
        f" or remove it: pip uninstall {record.distribution})"
    )
    if strict:
        raise (type(problem) if isinstance(problem, CatalogError) else CatalogError)(text) from problem
    tell(text, stacklevel=6)


def load(
    candidate: Candidate, environ: Mapping[str, str], kernel_version: str, default_of: Callable[[type], Any]
) -> tuple[PluginRecord, Loaded | None]:
    """Load one plugin in a `try` of its own.

    Returns:
        The record, and what the plugin declared, or None when it is disabled, incompatible or failed.
    """
    record = PluginRecord(candidate.name, candidate.distribution, candidate.version)
    if why := disabled_reason(candidate, environ):
        record.status, record.error = "disabled", why
        return record, None
    if why := incompatible_reason(candidate, kernel_version):
        fix = f"Install a version of {candidate.distribution} made for it, or change rlcatalog's."
        record.fail(IncompatiblePluginError(f"{candidate.distribution} {candidate.version}: {why}. {fix}"),
                    "incompatible")  # fmt: skip
        return record, None
    here = _LOADING.set(candidate.name)
    try:
        found = declared_by(candidate.entry_point.load(), candidate.name, default_of)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever it is, it is this plugin's alone
        record.fail(error)
        return record, None
    finally:
        _LOADING.reset(here)
    if found.hooks == 0:
        text = f"plugin {candidate.name!r}: it has no hook, and so brings nothing. Hooks: {', '.join(HOOK_RETURNS)}."
        record.note(DeclarationError(text))
    return record, found


def declared_by(plugin: ModuleType | object, name: str, default_of: Callable[[type], Any]) -> Loaded:
    """Call every hook of a plugin and check what it returns.

    Args:
        plugin: The plugin's module, or any object with hook methods.
        name: Name for messages.
        default_of: Makes a config struct of its defaults, or raises where its keys cannot be read.

    Raises:
        DeclarationError: A hook is misspelt, lacks `@hookimpl`, takes arguments or returns something else.
    """
    declarations: list[Declaration] = []
    hooks = _hooks_of(plugin, name)
    for hook_name, hook in hooks.items():
        returned, expected = hook(), HOOK_RETURNS[hook_name]
        items: list[Any] = [*returned] if type(returned) in (list, tuple) else [None]
        if not all(type(item) is expected for item in items):
            raise DeclarationError(
                f"plugin {name!r}: {hook_name}() must return a list of {expected.__name__}, found {shown(returned)}."
            )
        declarations.extend(items)
    paths = dict.fromkeys(d.config for d in declarations if d.config is not None)
    structs = {path: _config_class(path, name) for path in paths}
    defaults = {}
    for path, struct in structs.items():
        try:
            defaults[struct] = default_of(struct)
        except DeclarationError as error:
            raise DeclarationError(f"plugin {name!r}: config={path!r}: {error}") from error
    return Loaded(tuple(declarations), structs, defaults, len(hooks))


_LOCK = threading.Lock()


@cache
def _manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager("rlcatalog")
    manager.add_hookspecs(hookspecs)
    return manager


def _hooks_of(plugin: Any, name: str) -> dict[str, Any]:
    if type(plugin) is ModuleType:
        everything = vars(plugin)
    else:
        everything = {key: getattr(plugin, key) for key in dir(plugin) if not key.startswith("__")}
    functions = {key: value for key, value in everything.items() if inspect.isroutine(value)}
    marked = ModuleType(name)  # of ours: nothing else of a plugin reaches the manager
    vars(marked).clear()
    vars(marked).update({key: value for key, value in functions.items() if hasattr(value, "rlcatalog_impl")})
    manager = _manager()
    with _LOCK:  # two threads may make a catalog at once, of the same plugins
        try:
            manager.register(marked, name)
            callers = manager.get_hookcallers(marked) or []
        except pluggy.PluginValidationError as error:
            raise DeclarationError(
                f"plugin {name!r}: {error} Hooks of rlcatalog take no arguments: def {_hook_in(str(error))}()."
            ) from error
        finally:
            if manager.is_registered(marked):
                manager.unregister(marked)
    hooks = {}
    for caller in callers:
        if not caller.has_spec():
            raise DeclarationError(
                f"plugin {name!r}: {caller.name!r} is not a hook of rlcatalog.{nearest(caller.name, HOOK_RETURNS)}"
                f" Hooks: {', '.join(HOOK_RETURNS)}."
            )
        hooks[caller.name] = getattr(marked, caller.name)
    for attribute in functions:
        if attribute.startswith("rlcatalog_") and attribute not in hooks:
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
        raise DeclarationError(f"plugin {name!r}: config={path!r} must name a msgspec.Struct, found {shown(found)}.")
    return found
