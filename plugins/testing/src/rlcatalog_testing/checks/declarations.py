"""Checks for declarations, before a part is imported."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from rlcatalog import Catalog, ExporterSpec, Match, SpaceInfo
from rlcatalog.config import keys_of
from rlcatalog.errors import CatalogError, reason, shown
from rlcatalog.frameworks import default_framework, frameworks
from rlcatalog.internals import PluginRecord, find_plugins, may_claim
from rlcatalog.plugins import Part, Request
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.examples import ACTIONS, OBSERVATIONS, kind_of
from rlcatalog_testing.passes import framework_modules, run_apart
from rlcatalog_testing.plugins import PluginEntryPoint

EVERY = (
    "trunk", "memory", "head", "action_dist", "preprocessor", "action_codec", "filter",
    "env_wrapper", "command", "engine", "framework",
)  # fmt: skip
#: Kinds of parts that a lookup chooses by rank.
CHOSEN = ("trunk", "memory", "head", "action_dist", "preprocessor")


def _is_asked(subject: Subject) -> bool:
    """Return whether a lookup calls the part's functions; it calls none of a wrapper's, which need
    an environment.
    """
    return bool(subject.part.declaration.functions) and kind_of(subject.part) in CHOSEN


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
    own = _plugin_of(subject)
    found: list[str] | None = []
    if not _import_no_framework_together(subject.catalog, own):
        found = _imported_by([own])
    module = own.entry_point.value
    if found is None:
        raise NotApplicable(f"{module!r} is not a module that another process can import")
    require(
        not found, f"{module} imports {', '.join(found)} although only its declarations are needed"
    )


def _import_no_framework_together(catalog: Catalog, own: PluginRecord) -> bool:
    """Return whether one process loads a plugin and all others without a framework.

    This is the usual case, and the parts of all packages share this process.
    """
    plugins = find_plugins(catalog.entry_points)
    everyone = [plugin for plugin in plugins if isinstance(plugin.entry_point.value, str)]
    if own not in everyone:
        return False
    with suppress(AssertionError):  # another plugin may not be importable
        return _imported_by(everyone) == []
    return False


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
    """Return the frameworks that a process imports when it loads and calls plugins; None if the
    process fails.
    """
    named = [(plugin.entry_point.value, plugin.distribution) for plugin in plugins]
    done = run_apart(_PROBE, json.dumps(named), *framework_modules(), "keras")
    if done.returncode == 77:
        return None
    require(
        done.returncode == 0,
        f"{named[0][0]} cannot be imported on its own: {done.stderr.strip()[-500:]}",
    )
    return done.stdout.rpartition("imported:")[2].split()


@check_declarations(
    hint="write Annotated[type, Meta(description='…')] for each key in the config struct",
    where=lambda subject: (
        subject.catalog.registry.config_paths.get(subject.part.declaration.config or "") is not None
    ),
)
def keys_are_described(subject: Subject) -> None:
    """Each config key has a one-line description."""
    struct = subject.catalog.registry.config_paths[str(subject.part.declaration.config)]
    bad = [key.name for key in keys_of(struct) if not key.meaning.strip() or "\n" in key.meaning]
    require(not bad, f"{struct.__name__}: {', '.join(bad)} without a one-line description")


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
    part, declaration = subject.part, subject.part.declaration
    after_its_library = part.kind == "framework" and part.name == frameworks()[part.name].module
    names = [] if declaration.extends or after_its_library else [(part.kind, part.name)]
    struct = subject.catalog.registry.config_paths.get(declaration.config or "")
    names += [("config", key.name) for key in keys_of(struct)] if struct is not None else []
    names += (
        [("suffix", declaration.suffix)]
        if isinstance(declaration, ExporterSpec) and declaration.suffix
        else []
    )
    foreign = [name for kind, name in names if not may_claim(kind, name, part.distribution)]
    begin = f"{'does' if len(foreign) == 1 else 'do'} not begin with"
    own = part.distribution.replace("-", "-" if part.kind == "command" else "_")
    require(not foreign, f"{', '.join(foreign)} {begin} {own!r}")


@check_declarations(
    hint="write dependencies = ['rlcatalog>=0.1,<0.2'] into pyproject.toml",
    where=lambda subject: subject.part.distribution != "rlcatalog",
)
def bounds_the_kernel(subject: Subject) -> None:
    """The package metadata requires a range of kernel versions with a lower and an upper bound."""
    plugin = _plugin_of(subject)
    if isinstance(plugin.entry_point, PluginEntryPoint) and not plugin.requires:
        raise NotApplicable("it is not installed, so it has no metadata")
    requires = [line for line in plugin.requires if re.match(r"rlcatalog(?![\w.-])", line)]
    bounds = [line for line in requires if "extra ==" not in line]
    ranges = [
        line for line in bounds if "~=" in line or "==" in line or ("<" in line and ">=" in line)
    ]
    asks = ", ".join(bounds) or "no rlcatalog at all"
    require(bool(ranges), f"its metadata requires {asks}; expected rlcatalog>=…,<…")


@check_declarations(
    hint="handle every request: shapes may be None and kinds may be unknown; raise only errors"
    " from rlcatalog.errors",
    where=_is_asked,
)
def answers_every_request(subject: Subject) -> None:
    """`match`, `claims`, `describe`, `size`, `initial_std` and `pinned_keys` only raise rlcatalog's
    errors, for any request.
    """
    for name, request, answer in answers(subject.part, subject.catalog):
        what = (
            f"{name} for {request.obs.describe()} →"
            f" {request.action.describe() if request.action else None}"
        )
        if isinstance(answer, Exception):
            given = f"(encoded_shape={request.encoded_shape}, num_outputs={request.num_outputs})"
            require(isinstance(answer, CatalogError), f"{what} {given} raised {reason(answer)}")
        elif name == "match":
            fits = isinstance(answer, Match) and type(answer.why) is str and bool(answer.why)
            require(fits, f"{what} returned {shown(answer)}")


def answers(part: Part, catalog: Catalog) -> Iterator[tuple[str, Request, Any]]:
    """Yield the results of a declaration's functions for all kinds of requests: function, request,
    result.

    A result is the return value or the exception.
    """
    declaration = part.declaration
    names = declaration.functions
    for request in _requests(part, catalog):
        matches = "match" not in names
        for name in names:
            arguments: tuple[Any, ...] = (request,)
            if name in ("size", "initial_std"):
                arguments = (request.action, request.config)
            if name == "size" and getattr(declaration, "wraps_default", False):
                arguments += (3,)
            if (name != "match" and not matches) or arguments[0] is None:
                continue  # the kernel does not ask it: it does not match, and no config names it
            try:
                answer = getattr(declaration, name)(*arguments)
            except Exception as error:
                answer = error
            matches = (
                isinstance(answer, Match) and answer.rank is not None
                if name == "match"
                else matches
            )
            yield name, request, answer


def _requests(part: Part, catalog: Catalog) -> Iterator[Request]:
    kind, config = kind_of(part), catalog.parse_config(None).read_only()
    if kind not in CHOSEN:
        return  # for example, an environment cannot be made up
    actions = [SpaceInfo.read(space, "action") for space in ACTIONS]
    served = [name for name in part.frameworks if name in frameworks()] or [default_framework()]
    for index, space in enumerate(OBSERVATIONS):
        obs, action = SpaceInfo.read(space), actions[index % len(actions)]
        if kind == "preprocessor":
            yield Request(obs, config=config, catalog=catalog)
            yield Request(obs, config=config, framework=served[0])
            continue
        if kind == "action_dist":
            yield Request(action, action, config, catalog=catalog)
        bare = Request(obs, action, config, catalog=catalog)
        yield bare
        yield (request := bare.replace(framework=served[0], num_outputs=4))
        try:
            made = catalog.preprocessor_for(obs, config)
        except CatalogError:  # the package with the codecs is missing
            yield request.replace(encoded_shape=obs.shape if obs.kind == "box" else (7,))
            continue
        yield (
            encoded := request.replace(
                framework=served[-1], encoded_shape=made.shape, preprocessor=made
            )
        )
        yield encoded.replace(num_outputs=None)
        yield encoded.replace(trunk_width=6)


def _plugin_of(subject: Subject) -> PluginRecord:
    for plugin in find_plugins(subject.catalog.entry_points):
        if plugin.distribution == subject.part.distribution:
            return plugin
    raise NotApplicable("it was registered by the running program")
