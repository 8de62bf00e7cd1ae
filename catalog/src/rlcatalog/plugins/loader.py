"""Plugin loader: registers each plugin with pluggy so that one that fails harms no other.

The hooks are historic: they are called once, before there are plugins, so that registering a plugin
calls the hooks of this plugin alone.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec
import pluggy

from rlcatalog import public_index
from rlcatalog._version import __version__
from rlcatalog.errors import CatalogError, DeclarationError, PluginError, nearest, reason, shown
from rlcatalog.plugins import hookspecs
from rlcatalog.plugins.assignment import assign
from rlcatalog.plugins.declarations import Declaration
from rlcatalog.plugins.discovery import (
    PluginRecord,
    disabled_reason,
    find_plugins,
    incompatible_reason,
    name_of,
    scan,
)
from rlcatalog.plugins.part import Part
from rlcatalog.plugins.registry import Registry
from rlcatalog.reporting import tell


def _hook_returns() -> dict[str, type[Declaration]]:
    hooks = {}
    for name, value in vars(hookspecs).items():
        if name.startswith("rlcatalog_"):
            returned = get_type_hints(value)["return"]
            hooks[name] = get_args(returned)[0]
    return hooks


#: Hook name → the type of the declarations it returns.
HOOK_RETURNS = _hook_returns()

#: The attribute by which pluggy marks a hook's implementation.
_HOOK_MARK = f"{hookspecs.PROJECT}_impl"
#: Name of the plugin that is being loaded.
_LOADING: ContextVar[str | None] = ContextVar("rlcatalog_loading", default=None)


class _Contents(NamedTuple):
    """What a registered plugin declares.

    Attributes:
        name_and_version: The name of its entry point, and its distribution's version.
        declarations: The declarations of all its hooks.
        config_classes: Import path → config struct.
    """

    name_and_version: tuple[str, str]
    declarations: list[Declaration]
    config_classes: dict[str, type]


class _PluginManager(pluggy.PluginManager):
    """pluggy's manager, which here finds the hooks of a module without asking all its names."""

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> pluggy.HookimplOpts | None:
        if isinstance(plugin, ModuleType):
            # Any object of the plugin's module; pluggy marks its hooks with this attribute.
            is_hook = hasattr(vars(plugin).get(name), _HOOK_MARK)
            if not is_hook:
                return None
        return super().parse_hookimpl_opts(plugin, name)


def _create_struct(struct: type) -> Any:
    return struct()


class PluginLoader:
    """Loads plugins, and remembers what they declare.

    Args:
        environ: Environment variables that disable or allow plugins.
        default_of: A function that returns a config struct with its defaults, or raises an error if
            its keys cannot be read.

    Attributes:
        manager: pluggy's manager, which has each loaded plugin under its distribution's name.
    """

    def __init__(
        self, environ: Mapping[str, str], default_of: Callable[[type], Any] = _create_struct
    ) -> None:
        self._environ = environ
        self._default_of = default_of
        self._contents: dict[str, _Contents] = {}
        #: Hook name → what the hook of the plugin that is being registered returned. pluggy calls
        #: the hooks inside `register`, and hands their results to this loader's callbacks alone.
        self._returned: dict[str, Any] = {}
        self.manager = _PluginManager(hookspecs.PROJECT)
        self.manager.add_hookspecs(hookspecs)
        for hook_name in HOOK_RETURNS:
            hook = getattr(self.manager.hook, hook_name)  # pluggy's table of hooks
            # A historic hook is called for each plugin when it is registered.
            hook.call_historic(result_callback=partial(self._receive, hook_name))

    def _receive(self, hook_name: str, returned: Any) -> None:
        self._returned[hook_name] = returned

    def load(self, entry_points: Iterable[Any]) -> Registry:
        """Load the plugins of entry points, and forget all others; return the registry of their
        parts, with each plugin's status.

        Raises:
            PluginError: A plugin that is being loaded calls this function.
            CatalogError: A plugin fails to load and `RLCATALOG_STRICT_PLUGINS=1`. No plugin is
                then forgotten, and none is new.
        """
        refuse_while_loading()
        names_before = set(self._contents)
        records = self.load_records(entry_points)
        registry = assign(records)
        is_strict = self._environ.get("RLCATALOG_STRICT_PLUGINS", "") not in ("", "0")
        try:
            for record in records:
                problems = record.problems if record.exception is None else [record.exception]
                for problem in problems:
                    _report(record, problem, is_strict)
        except CatalogError:
            self._forget(set(self._contents) - names_before)
            raise
        loaded_names = {record.plugin_name for record in records if record.status == "loaded"}
        self._forget(set(self._contents) - loaded_names)
        return registry

    def load_records(self, entry_points: Iterable[Any]) -> list[PluginRecord]:
        """Load the plugins of entry points; return a record of each."""
        records = find_plugins(entry_points)
        for record in records:
            self._load(record)
        return records

    def _load(self, record: PluginRecord) -> None:
        """Load one plugin unless it is loaded, and store its parts, or its error, in its
        record.
        """
        name = record.plugin_name
        why = disabled_reason(record, self._environ)
        if why is None and self.manager.is_blocked(name):
            why = "blocked in the catalog's plugin_manager"
        if why is not None:
            record.status = "disabled"
            record.error = why
            self._forget([name])
            return
        why = incompatible_reason(record, __version__)
        if why is not None:
            record.refuse(why)
            return
        token = _LOADING.set(record.name)  # `refuse_while_loading` reads it
        try:
            if not self._is_registered(record):
                self._forget([name])  # another version of it, if there is one
                self._register(record.entry_point.load(), record)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # any error belongs to this plugin only
            record.fail(error)
            return
        finally:
            _LOADING.reset(token)
        contents = self._contents[name]
        record.config_classes = dict(contents.config_classes)
        record.parts = [
            Part(declaration, record.distribution, record.version)
            for declaration in contents.declarations
        ]
        if not self.manager.get_hookcallers(self.manager.get_plugin(name)):
            record.note(
                DeclarationError(
                    f"plugin {record.name!r}: it has no hooks, so it provides nothing. Hooks:"
                    f" {', '.join(HOOK_RETURNS)}."
                )
            )

    def _is_registered(self, record: PluginRecord) -> bool:
        contents = self._contents.get(record.plugin_name)
        if contents is None:
            return False
        return contents.name_and_version == (record.name, record.version)

    def _register(self, plugin: object, record: PluginRecord) -> None:
        """Register a plugin, which calls its hooks, and keep what it declares.

        Raises:
            DeclarationError: The plugin cannot be compared with others, it has a function that only
                looks like a hook, a hook did not return a list of its kind of declaration, or a
                declaration has the wrong form.
        """
        name = record.plugin_name
        self._returned = {}
        _check_equality(plugin, record.name)
        try:
            self.manager.register(plugin, name)
            hooks = [caller.name for caller in self.manager.get_hookcallers(plugin) or ()]
            _check_hooks(plugin, hooks, record.name)
            declarations: list[Declaration] = []
            for hook in hooks:
                # pluggy does not pass None to the callback, so a hook's None is missing here.
                returned = self._returned.get(hook)
                declarations += _check_returned(hook, returned, record.name)
            structs = _config_classes(declarations, record.name, self._default_of)
        except BaseException as error:
            if self.manager.has_plugin(name):
                self.manager.unregister(name=name)
            if isinstance(error, pluggy.PluginValidationError):
                raise _wrong_hook(error, record.name) from error
            raise
        name_and_version = (record.name, record.version)
        self._contents[name] = _Contents(name_and_version, declarations, structs)

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            if self._contents.pop(name, None) is not None and self.manager.has_plugin(name):
                self.manager.unregister(name=name)


def _check_equality(plugin: object, name: str) -> None:
    """Raise an error if a plugin cannot be compared with other plugins, or equals any of them.

    pluggy compares each new plugin with the plugins that it has. One that cannot be compared, such
    as an array, would therefore stop every plugin after it.

    Raises:
        DeclarationError: It cannot be compared, or equals an object that is not a plugin.
    """
    try:
        equals_all = bool(plugin == object())
    except Exception as error:
        raise DeclarationError(
            f"plugin {name!r}: its entry point is a {type(plugin).__name__} that cannot be"
            f" compared: {reason(error)}. Let the entry point name a module with hooks."
        ) from error
    if equals_all:
        raise DeclarationError(
            f"plugin {name!r}: its entry point is a {type(plugin).__name__} that equals every other"
            " object. Let the entry point name a module with hooks."
        )


def load_indexed(kind: str) -> list[Any]:
    """Return the declarations for a process-wide table, from the packages in the public index.

    Args:
        kind: The kind of declaration, `"framework"`, `"action_codec"` or `"env_adapter"`.

    Returns:
        The declarations: frameworks in the index's order, then their extensions.
    """
    packages = set(public_index.distributions(f"{kind}/"))
    entry_points = [point for point in scan() if name_of(point.dist) in packages]
    declarations = []
    for record in PluginLoader(os.environ).load_records(entry_points):
        for part in record.parts:
            if part.kind == kind:
                declarations.append(part.declaration)
    framework_names = public_index.frameworks()

    def place(declaration: Declaration) -> tuple[bool, int]:
        is_extension = declaration.extends is not None
        if declaration.name not in framework_names:  # after the ones in the index
            return is_extension, len(framework_names)
        return is_extension, framework_names.index(declaration.name)

    return sorted(declarations, key=place)


def condition_of(distribution: str) -> str | None:
    """Return what keeps this process from using an installed distribution, as a predicate such as
    `"is disabled: …"`; None if it is not installed, or can be used.
    """
    entry_points = [point for point in scan() if name_of(point.dist) == distribution]
    for record in PluginLoader(os.environ).load_records(entry_points):
        if record.status != "loaded":
            return record.condition
    return None


def refuse_while_loading() -> None:
    """Check that no plugin is being loaded.

    Raises:
        PluginError: A plugin requests a catalog while it is being loaded.
    """
    name = _LOADING.get()
    if name is not None:
        raise PluginError(
            f"plugin {name!r} requests a catalog while it is being loaded, but there is none until"
            " all plugins are loaded. Request it later: as request.catalog in a match function,"
            " or when a part is used. `from rlcatalog import *` needs a catalog for"
            " MODEL_DEFAULTS; import the names that you need."
        )


def _report(record: PluginRecord, problem: BaseException, is_strict: bool) -> None:
    """Warn of a plugin's problem, or raise it as an error."""
    if record.exception is not None:
        condition = record.condition
    else:
        condition = f"is loaded, but {reason(problem)}"
    condition = condition.rstrip(".")
    text = (
        f"plugin {record.name!r} of {record.distribution} {record.version} {condition}."
        f" Disable it with RLCATALOG_DISABLE_PLUGINS={record.distribution}, or remove it: pip"
        f" uninstall {record.distribution}"
    )
    if not is_strict:
        tell(text, stacklevel=5)  # for the caller of `Catalog()` or `refresh()`
        return
    error_type = CatalogError
    if isinstance(problem, CatalogError):
        error_type = type(problem)
    raise error_type(text) from problem


def _check_hooks(plugin: object, hooks: Sequence[str], plugin_name: str) -> None:
    """Check that a plugin's functions named like hooks are hooks.

    Args:
        plugin: The plugin.
        hooks: The names of its functions that are marked as hooks.
        plugin_name: Its name, for messages.

    Raises:
        DeclarationError: A hook's name is unknown, or a function is not marked as a hook.
    """
    functions = []
    for name in dir(plugin):
        # A plugin is a module, or any object in its place.
        if name.startswith("rlcatalog_") and inspect.isroutine(getattr(plugin, name)):
            functions.append(name)
    for name in dict.fromkeys([*hooks, *functions]):
        if name not in HOOK_RETURNS:
            raise DeclarationError(
                f"plugin {plugin_name!r}: {name!r} is not one of rlcatalog's"
                f" hooks.{nearest(name, HOOK_RETURNS)} Hooks: {', '.join(HOOK_RETURNS)}."
            )
        if name not in hooks:
            raise DeclarationError(
                f"plugin {plugin_name!r}: {name}() is not decorated with @rlcatalog.hookimpl."
            )


def _wrong_hook(error: pluggy.PluginValidationError, plugin_name: str) -> DeclarationError:
    """Return the error for a hook whose arguments pluggy refuses."""
    named_hooks = [name for name in HOOK_RETURNS if name in str(error)]
    hook = named_hooks[0] if named_hooks else "hook"
    return DeclarationError(
        f"plugin {plugin_name!r}: {error} Hooks of rlcatalog take no arguments: def {hook}()."
    )


def _check_returned(hook: str, returned: Any, plugin_name: str) -> list[Declaration]:
    """Return the declarations that a hook returned.

    Raises:
        DeclarationError: It did not return a list of its kind of declaration, or a field of a
            declaration has the wrong form.
    """
    declaration_type = HOOK_RETURNS[hook]
    is_list = type(returned) in (list, tuple)
    if not is_list or not all(type(item) is declaration_type for item in returned):
        raise DeclarationError(
            f"plugin {plugin_name!r}: {hook}() must return a list of {declaration_type.__name__},"
            f" found {shown(returned)}."
        )
    for declaration in returned:
        declaration.check_fields()  # a plugin may have changed it since it was created
    return list(returned)


def _config_classes(
    declarations: Iterable[Declaration], plugin_name: str, default_of: Callable[[type], Any]
) -> dict[str, type]:
    """Import the config structs that declarations name; return them by import path.

    Raises:
        DeclarationError: A path does not name a struct, or the struct's keys cannot be read.
    """
    structs: dict[str, type] = {}
    for declaration in declarations:
        path = declaration.config
        if path is None or path in structs:
            continue
        module_name, _, attribute = path.partition(":")
        module = importlib.import_module(module_name)
        struct = getattr(module, attribute, None)  # the plugin's module
        where = f"plugin {plugin_name!r}: config={path!r}"
        if not (isinstance(struct, type) and issubclass(struct, msgspec.Struct)):
            raise DeclarationError(f"{where} must name a msgspec.Struct, found {shown(struct)}.")
        try:
            default_of(struct)  # only to check that its keys can be read
        except DeclarationError as error:
            raise DeclarationError(f"{where}: {error}") from error
        structs[path] = struct
    return structs
