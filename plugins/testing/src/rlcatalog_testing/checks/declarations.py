"""Checks for declarations, before a part is imported."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from rlcatalog import ActionDistSpec, Catalog, ExporterSpec, Match, SpaceInfo
from rlcatalog.config import keys_of
from rlcatalog.errors import CatalogError, reason, shown
from rlcatalog.frameworks import default_framework, frameworks
from rlcatalog.internals import PluginRecord, find_plugins, may_claim
from rlcatalog.plugins import Part, Request
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.examples import ACTIONS, OBSERVATIONS
from rlcatalog_testing.passes import framework_modules, run_apart
from rlcatalog_testing.plugins import PluginEntryPoint

EVERY = (
    "trunk", "memory", "head", "action_dist", "preprocessor", "action_codec", "filter",
    "env_wrapper", "env_adapter", "command", "engine", "framework",
)  # fmt: skip
#: Kinds of parts that a lookup chooses by rank.
CHOSEN = ("trunk", "memory", "head", "action_dist", "preprocessor")


def _has_functions_to_call(subject: Subject) -> bool:
    """Return whether a lookup calls the part's functions; it calls none of a wrapper's, which need
    an environment.
    """
    return bool(subject.part.declaration.functions) and subject.part.slot in CHOSEN


check_declarations = partial(check, *EVERY, every_framework=False)


@check_declarations(hint="write one line for `rlcatalog list`")
def has_a_summary(subject: Subject) -> None:
    """The summary is a single non-empty line."""
    summary = subject.part.declaration.summary
    require(bool(summary.strip()) and "\n" not in summary, f"its summary is {summary!r}")


@check_declarations(
    hint="import frameworks, and modules that import them, only in the targets' modules; match,"
    " describe and size read SpaceInfo and the config"
)
def imports_no_framework(subject: Subject) -> None:
    """Importing the plugin and calling its functions imports no framework."""
    plugin = _plugin_of(subject)
    if _import_no_framework_together(subject.catalog, plugin):
        return
    module = plugin.entry_point.value
    imported = _imported_by([plugin])
    if imported is None:
        raise NotApplicable(f"{module!r} is not a module that another process can import")
    names = ", ".join(imported)
    require(not imported, f"{module} imports {names} although only its declarations are needed")


def _import_no_framework_together(catalog: Catalog, plugin: PluginRecord) -> bool:
    """Return whether one process loads a plugin and all others without a framework.

    This is the usual case. `run_apart` keeps the result, so that one process is then enough for the
    parts of all packages.
    """
    plugins = find_plugins(catalog.entry_points)
    importable = [record for record in plugins if isinstance(record.entry_point.value, str)]
    if plugin not in importable:
        return False
    try:
        return _imported_by(importable) == []
    except AssertionError:
        return False  # another plugin may not be importable


#: Exit status of the probe for a module that it cannot find.
_NO_SUCH_MODULE = 77
#: Program that loads plugins, calls their functions and prints which modules were imported.
_PROBE = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
plugins = json.loads(sys.argv[1])
for module, _ in plugins:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module.partition(".")[0]:
            sys.exit(77)
from rlcatalog_testing import PluginEntryPoint, isolated_catalog
from rlcatalog_testing.checks.declarations import answers
catalog = isolated_catalog(*(PluginEntryPoint(*plugin) for plugin in plugins))
for part in catalog.parts():
    for _ in answers(part, catalog):
        pass
print("imported:", *(name for name in sys.argv[2:] if name in sys.modules))
"""


def _imported_by(plugins: Sequence[PluginRecord]) -> list[str] | None:
    """Return the frameworks that a process imports when it loads and calls plugins; None if it
    cannot find a plugin's module.
    """
    modules = [(plugin.entry_point.value, plugin.distribution) for plugin in plugins]
    process = run_apart(_PROBE, json.dumps(modules), *framework_modules(), "keras")
    if process.returncode == _NO_SUCH_MODULE:
        return None
    first_module = plugins[0].entry_point.value
    require(
        process.returncode == 0,
        f"{first_module} cannot be imported on its own: {process.stderr.strip()[-500:]}",
    )
    _, _, names = process.stdout.rpartition("imported:")
    return names.split()


def _config_struct(subject: Subject) -> type | None:
    """Return the struct with the part's config keys, or None if it has none."""
    path = subject.part.declaration.config
    if path is None:
        return None
    return subject.catalog.registry.config_paths.get(path)


def _has_config_struct(subject: Subject) -> bool:
    return _config_struct(subject) is not None


@check_declarations(
    hint="write Annotated[type, Meta(description='…')] for each key in the config struct",
    where=_has_config_struct,
)
def keys_are_described(subject: Subject) -> None:
    """Each config key has a one-line description."""
    struct = _config_struct(subject)
    assert struct is not None
    undescribed = []
    for key in keys_of(struct):
        is_line = bool(key.meaning.strip()) and "\n" not in key.meaning
        if not is_line:
            undescribed.append(key.name)
    names = ", ".join(undescribed)
    require(not undescribed, f"{struct.__name__}: {names} without a one-line description")


@check_declarations(
    "exporter",
    hint="begin names and keys with your distribution's name, words joined by '_' ('-' in"
    " commands), or add them to the public index",
)
def names_are_its_own(subject: Subject) -> None:
    """Names and config keys begin with the package's name, or the public index assigns them to the
    package.

    A framework may also have its library's name.
    """
    part = subject.part
    foreign = []
    for kind, name in _names_of(subject):
        if not may_claim(kind, name, part.distribution):
            foreign.append(name)
    verb = "does" if len(foreign) == 1 else "do"
    prefix = part.distribution
    if part.kind != "command":
        prefix = prefix.replace("-", "_")
    require(not foreign, f"{', '.join(foreign)} {verb} not begin with {prefix!r}")


def _names_of(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield the names that a part declares, each with its kind."""
    part = subject.part
    declaration = part.declaration
    has_name_of_library = part.kind == "framework" and part.name == frameworks()[part.name].module
    # An extension has the name of the part that it extends.
    if declaration.extends is None and not has_name_of_library:
        yield part.kind, part.name
    struct = _config_struct(subject)
    if struct is not None:
        for key in keys_of(struct):
            yield "config", key.name
    if isinstance(declaration, ExporterSpec) and declaration.suffix:
        yield "suffix", declaration.suffix


def _is_not_the_kernels(subject: Subject) -> bool:
    return subject.distribution != "rlcatalog"


@check_declarations(
    hint="write dependencies = ['rlcatalog>=0.1,<0.2'] into pyproject.toml",
    where=_is_not_the_kernels,
)
def bounds_the_kernel(subject: Subject) -> None:
    """The package metadata requires a range of kernel versions with a lower and an upper bound."""
    plugin = _plugin_of(subject)
    if isinstance(plugin.entry_point, PluginEntryPoint) and not plugin.requires:
        raise NotApplicable("it is not installed, so it has no metadata")
    requirements = []
    for line in plugin.requires:
        is_on_kernel = re.match(r"rlcatalog(?![\w.-])", line) is not None
        is_of_extra = "extra ==" in line
        if is_on_kernel and not is_of_extra:
            requirements.append(line)
    text = ", ".join(requirements) or "no rlcatalog at all"
    require(
        any(map(_has_both_bounds, requirements)),
        f"its metadata requires {text}; expected rlcatalog>=…,<…",
    )


def _has_both_bounds(requirement: str) -> bool:
    if "~=" in requirement or "==" in requirement:
        return True
    return "<" in requirement and ">=" in requirement


@check_declarations(
    hint="handle every request: shapes may be None and kinds may be unknown; raise only errors"
    " from rlcatalog.errors",
    where=_has_functions_to_call,
)
def answers_every_request(subject: Subject) -> None:
    """`match`, `claims`, `describe`, `size`, `initial_std` and `pinned_keys` only raise rlcatalog's
    errors, for any request.
    """
    for name, request, answer in answers(subject.part, subject.catalog):
        action = request.action.describe() if request.action else None
        what = f"{name} for {request.obs.describe()} → {action}"
        if isinstance(answer, Exception):
            details = f"(encoded_shape={request.encoded_shape}, num_outputs={request.num_outputs})"
            require(isinstance(answer, CatalogError), f"{what} {details} raised {reason(answer)}")
        elif name == "match":
            is_match = isinstance(answer, Match) and type(answer.why) is str and bool(answer.why)
            require(is_match, f"{what} returned {shown(answer)}")


def answers(part: Part, catalog: Catalog) -> Iterator[tuple[str, Request, Any]]:
    """Yield the results of a declaration's functions for all kinds of requests: function, request,
    result.

    A result is the return value or the exception.
    """
    names = part.declaration.functions
    for request in _requests(part, catalog):
        matches = True
        for name in names:  # `match` comes first
            # If a part does not match, and no config names it, the kernel asks it nothing else.
            if not matches:
                break
            arguments = _arguments_of(name, part, request)
            if arguments is None:
                continue
            function = vars(part.declaration)[name]
            try:
                answer = function(*arguments)
            except Exception as error:
                answer = error
            if name == "match":
                matches = isinstance(answer, Match) and answer.rank is not None
            yield name, request, answer


def _arguments_of(name: str, part: Part, request: Request) -> tuple[Any, ...] | None:
    """Return the arguments with which the kernel calls a declaration's function for a request;
    None if it does not call the function, because the request has no action space.
    """
    declaration = part.declaration
    if name not in ("size", "initial_std"):
        return (request,)
    if request.action is None:
        return None
    if name == "size" and isinstance(declaration, ActionDistSpec) and declaration.wraps_default:
        size_of_default = 3
        return (request.action, request.config, size_of_default)
    return (request.action, request.config)


def _requests(part: Part, catalog: Catalog) -> Iterator[Request]:
    """Yield requests for a part, as in a lookup: with more and more of what is known."""
    kind = part.slot
    if kind not in CHOSEN:
        return  # for example, an environment cannot be made up
    config = catalog.parse_config(None).read_only()
    supported = [name for name in part.frameworks if name in frameworks()]
    if not supported:
        supported = [default_framework()]
    actions = [SpaceInfo.read(space, "action") for space in ACTIONS]
    for index, space in enumerate(OBSERVATIONS):
        obs = SpaceInfo.read(space)
        action = actions[index % len(actions)]
        if kind == "preprocessor":
            yield Request(obs, config=config, catalog=catalog)
            yield Request(obs, config=config, framework=supported[0])
            continue
        if kind == "action_dist":
            yield Request(action, action, config, catalog=catalog)
        for_spaces = Request(obs, action, config, catalog=catalog)
        yield for_spaces
        for_framework = for_spaces.replace(framework=supported[0], num_outputs=4)
        yield for_framework
        try:
            preprocessor = catalog.preprocessor_for(obs, config)
        except CatalogError:
            # The package with the codecs is missing.
            shape = obs.shape if obs.kind == "box" else (7,)
            yield for_framework.replace(encoded_shape=shape)
            continue
        for_encoded = for_framework.replace(
            framework=supported[-1], encoded_shape=preprocessor.shape, preprocessor=preprocessor
        )
        yield for_encoded
        yield for_encoded.replace(num_outputs=None)
        yield for_encoded.replace(trunk_width=6)


def _plugin_of(subject: Subject) -> PluginRecord:
    for plugin in find_plugins(subject.catalog.entry_points):
        if plugin.distribution == subject.distribution:
            return plugin
    raise NotApplicable("it was registered by the running program")


#: The checks of a declaration that adds code to a part of another package.
OF_EXTENSIONS = (has_a_summary, imports_no_framework, bounds_the_kernel)
