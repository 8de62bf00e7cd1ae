"""Loading plugins, each in a `try` of its own: one that fails is reported and takes no other with it.

pluggy's own entry-point loader stops at the first plugin that raises, and its `register` is not transactional. Here
each plugin's hooks are called alone, so that none can disturb another.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from types import ModuleType
from typing import Any, get_args, get_type_hints

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
from rlcatalog.plugins.assignment import assign
from rlcatalog.plugins.declarations import Declaration
from rlcatalog.plugins.discovery import (
    Candidate,
    candidates,
    disabled_reason,
    incompatible_reason,
    name_of,
    scan,
)
from rlcatalog.plugins.registry import PluginRecord, Registry
from rlcatalog.reporting import tell

#: Hook name → the declaration its list must hold.
HOOK_RETURNS: dict[str, type[Declaration]] = {
    name: get_args(get_type_hints(hook)["return"])[0]
    for name, hook in vars(hookspecs).items()
    if name.startswith("rlcatalog_")
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
    registry.records += [load(candidate, environ, __version__, default_of) for candidate in listed]
    assign(registry)
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
    records = [load(candidate, os.environ, __version__, lambda struct: struct()) for candidate in listed]
    specs = [spec for record in records for spec in record.declarations if spec.kind == kind]
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
) -> PluginRecord:
    """Load one plugin in a `try` of its own, and return how it ended and what it declared."""
    record = PluginRecord(candidate.name, candidate.distribution, candidate.version)
    if why := disabled_reason(candidate, environ):
        record.status, record.error = "disabled", why
        return record
    if why := incompatible_reason(candidate, kernel_version):
        fix = f"Install a version of {candidate.distribution} made for it, or change rlcatalog's."
        record.fail(IncompatiblePluginError(f"{candidate.distribution} {candidate.version}: {why}. {fix}"),
                    "incompatible")  # fmt: skip
        return record
    here = _LOADING.set(candidate.name)
    try:
        hooks = read_declarations(candidate.entry_point.load(), record, default_of)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever it is, it is this plugin's alone
        record.fail(error)
        return record
    finally:
        _LOADING.reset(here)
    if not hooks:
        text = f"plugin {candidate.name!r}: it has no hook, and so brings nothing. Hooks: {', '.join(HOOK_RETURNS)}."
        record.note(DeclarationError(text))
    return record


def read_declarations(plugin: ModuleType | object, record: PluginRecord, default_of: Callable[[type], Any]) -> int:
    """Call every hook of a plugin, check what it returns, and note it in the plugin's record.

    Args:
        plugin: The plugin's module, or any object with hook methods.
        record: The record.
        default_of: Makes a config struct of its defaults, or raises where its keys cannot be read.

    Returns:
        How many hooks it has.

    Raises:
        DeclarationError: A hook is misspelt, lacks `@hookimpl`, takes arguments or returns something else.
    """
    name, declarations = record.name, list[Declaration]()
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
    for path, struct in structs.items():
        try:
            record.config_defaults[struct] = default_of(struct)
        except DeclarationError as error:
            raise DeclarationError(f"plugin {name!r}: config={path!r}: {error}") from error
    record.declarations, record.config_classes = tuple(declarations), structs
    return len(hooks)


def _hooks_of(plugin: ModuleType | object, name: str) -> dict[str, Callable[[], Any]]:
    known = vars(plugin) if type(plugin) is ModuleType else [key for key in dir(plugin) if not key.startswith("__")]
    hooks: dict[str, Callable[[], Any]] = {}
    for key in known:
        function, is_named = getattr(plugin, key), key.startswith("rlcatalog_")
        is_marked = inspect.isroutine(function) and hasattr(function, "rlcatalog_impl")
        if is_marked and key not in HOOK_RETURNS:
            raise DeclarationError(
                f"plugin {name!r}: {key!r} is not a hook of rlcatalog.{nearest(key, HOOK_RETURNS)}"
                f" Hooks: {', '.join(HOOK_RETURNS)}."
            )
        if is_named and inspect.isroutine(function) and not is_marked:
            what = "lacks @rlcatalog.hookimpl" if key in HOOK_RETURNS else "is not a hook of rlcatalog"
            raise DeclarationError(f"plugin {name!r}: {key}() {what}.{nearest(key, HOOK_RETURNS)}")
        if is_marked:
            hooks[key] = function
            parameters = inspect.signature(function).parameters.values()
            needed = [
                p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
            ]
            if needed:
                raise DeclarationError(
                    f"plugin {name!r}: {key}() declares the arguments {set(needed)}. Hooks of rlcatalog take no"
                    f" arguments: def {key}()."
                )
    return hooks


def _config_class(path: str, name: str) -> type:
    import msgspec

    module, _, attribute = path.partition(":")
    struct = getattr(importlib.import_module(module), attribute, None)
    if not (isinstance(struct, type) and issubclass(struct, msgspec.Struct)):
        raise DeclarationError(f"plugin {name!r}: config={path!r} must name a msgspec.Struct, found {shown(struct)}.")
    return struct
