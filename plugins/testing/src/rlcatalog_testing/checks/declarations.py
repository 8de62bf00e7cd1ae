"""Checks of declarations: what a plugin says about its parts before anything of them is imported."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rlcatalog import ExporterSpec, Match
from rlcatalog.catalog import Catalog
from rlcatalog.config import keys_of
from rlcatalog.errors import CatalogError, reason, shown
from rlcatalog.frameworks import default_framework, frameworks
from rlcatalog.internals import PluginRecord, find_plugins, may_claim
from rlcatalog.plugins import Component, Request
from rlcatalog.spaces import SpaceInfo
from rlcatalog_testing.contract import NotApplicable, Part, check, require
from rlcatalog_testing.examples import ACTIONS, OBSERVATIONS, kind_of
from rlcatalog_testing.passes import framework_modules
from rlcatalog_testing.plugins import PluginEntryPoint

EVERY = (
    "trunk", "memory", "head", "action_dist", "preprocessor", "action_codec", "filter", "env_wrapper", "command",
    "engine", "framework",
)  # fmt: skip
#: Those that a lookup chooses by rank.
CHOSEN = ("trunk", "memory", "head", "action_dist", "preprocessor")


def _has_keys(part: Part) -> bool:
    return part.catalog.registry.config_paths.get(part.component.declaration.config or "") is not None


def _is_asked(part: Part) -> bool:
    """Whether a lookup asks its functions; an environment for those of a wrapper is not made up."""
    return bool(part.component.declaration.functions) and kind_of(part.component) in CHOSEN


@check(*EVERY, hint="write one line for `rlcatalog list`", every_framework=False)
def has_a_summary(part: Part) -> None:
    """The summary is one line with text."""
    summary = part.component.declaration.summary
    require(bool(summary.strip()) and "\n" not in summary, f"its summary is {summary!r}")


@check(
    *EVERY,
    hint="import frameworks, and modules that do, in the targets' modules alone; match, describe and size read"
    " SpaceInfo and the config",
    every_framework=False,
)
def imports_no_framework(part: Part) -> None:
    """Importing the plugin and asking its functions imports no framework."""
    own = _plugin_of(part)
    if own.entry_point not in _IMPORTED:
        # In one process for all plugins, where none of them imports any: that is the rule.
        everyone = [p for p in find_plugins(part.catalog.entry_points) if isinstance(p.entry_point.value, str)]
        if len(everyone) > 1 and _imported_by(everyone) == []:
            _IMPORTED.update({plugin.entry_point: [] for plugin in everyone})
        else:
            _IMPORTED[own.entry_point] = _imported_by([own])
    found, module = _IMPORTED[own.entry_point], own.entry_point.value
    if found is None:
        raise NotApplicable(f"{module!r} is no module that another process can import")
    require(not found, f"{module} imports {', '.join(found)} where only its declarations are asked for")


#: Entry point of a plugin → the frameworks it imports; None where another process cannot import it.
_IMPORTED: dict[Any, list[str] | None] = {}
_PROBE = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
asked = json.loads(sys.stdin.read())
sys.path[:] = asked["path"]
for module, _ in asked["plugins"]:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module.partition(".")[0]:
            sys.exit(77)
from rlcatalog_testing import PluginEntryPoint, isolated_catalog
from rlcatalog_testing.checks.declarations import answers
catalog = isolated_catalog(*(PluginEntryPoint(*plugin) for plugin in asked["plugins"]))
for component in catalog.components():
    for _ in answers(component, catalog):
        pass
print("imported:", *(name for name in asked["heavy"] if name in sys.modules))
"""


def _imported_by(plugins: Sequence[PluginRecord]) -> list[str] | None:
    """Return the frameworks that a process imports which loads plugins and asks them; None where it cannot."""
    heavy = [*framework_modules(), "keras"]
    named = [(plugin.entry_point.value, plugin.distribution) for plugin in plugins]
    done = subprocess.run(
        [sys.executable, "-c", _PROBE], input=json.dumps({"path": sys.path, "plugins": named, "heavy": heavy}),
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if done.returncode == 77:
        return None
    require(done.returncode == 0, f"{named[0][0]} cannot be imported alone: {done.stderr.strip()[-500:]}")
    return done.stdout.rpartition("imported:")[2].split()


@check(
    *EVERY,
    hint="write Annotated[type, Meta(description='…')] at each key of the config struct",
    every_framework=False,
    where=_has_keys,
)
def keys_are_described(part: Part) -> None:
    """Each config key has a description on one line."""
    struct = part.catalog.registry.config_paths[str(part.component.declaration.config)]
    bad = [key.name for key in keys_of(struct) if not key.meaning.strip() or "\n" in key.meaning]
    require(not bad, f"{struct.__name__}: {', '.join(bad)} without a description on one line")


@check(
    *EVERY,
    "exporter",
    hint="begin names and keys with your distribution's name, words joined by '_' (a command's by '-'), or enter them"
    " into the public index",
    every_framework=False,
)
def names_are_its_own(part: Part) -> None:
    """Names and config keys begin with the package's name, or the public index gives them to it.

    A framework may also be called after the library that it is made of.
    """
    component, declaration = part.component, part.component.declaration
    after_its_library = component.kind == "framework" and component.name == frameworks()[component.name].module
    names = [] if declaration.extends or after_its_library else [(component.kind, component.name)]
    struct = part.catalog.registry.config_paths.get(declaration.config or "")
    names += [("config", key.name) for key in keys_of(struct)] if struct is not None else []
    names += [("suffix", declaration.suffix)] if isinstance(declaration, ExporterSpec) and declaration.suffix else []
    foreign = [name for kind, name in names if not may_claim(kind, name, component.distribution)]
    begin = f"{'does' if len(foreign) == 1 else 'do'} not begin with"
    own = component.distribution.replace("-", "-" if component.kind == "command" else "_")
    require(not foreign, f"{', '.join(foreign)} {begin} {own!r}")


@check(
    *EVERY,
    hint="write dependencies = ['rlcatalog>=0.1,<0.2'] into pyproject.toml",
    every_framework=False,
    where=lambda part: part.component.distribution != "rlcatalog",
)
def bounds_the_kernel(part: Part) -> None:
    """The metadata asks for a range of kernel versions, with both ends."""
    plugin = _plugin_of(part)
    if isinstance(plugin.entry_point, PluginEntryPoint) and not plugin.requires:
        raise NotApplicable("it is not installed: nothing is known of its metadata")
    requires = [line for line in plugin.requires if re.match(r"rlcatalog(?![\w.-])", line)]
    bounds = [line for line in requires if "extra ==" not in line]
    require(
        any(("<" in line and (">=" in line or "~=" in line)) or "~=" in line or "==" in line for line in bounds),
        f"its metadata asks for {', '.join(bounds) or 'no rlcatalog at all'}; expected rlcatalog>=…,<…",
    )


@check(
    *EVERY,
    hint="answer every request: read shapes that may be None, kinds you do not know, and raise rlcatalog.errors only",
    every_framework=False,
    where=_is_asked,
)
def answers_every_request(part: Part) -> None:
    """`match`, `claims`, `describe`, `size` and `pinned_keys` raise nothing but errors of ours, whatever is asked."""
    for name, request, answer in answers(part.component, part.catalog):
        what = f"{name} for {request.obs.describe()} → {request.action.describe() if request.action else None}"
        require(
            not isinstance(answer, BaseException) or isinstance(answer, CatalogError),
            f"{what} (encoded_shape={request.encoded_shape}, num_outputs={request.num_outputs}) raised"
            f" {reason(answer) if isinstance(answer, BaseException) else ''}",
        )
        if name == "match" and not isinstance(answer, BaseException):
            require(
                isinstance(answer, Match) and type(answer.why) is str and bool(answer.why),
                f"{what} returned {shown(answer)}",
            )


def answers(component: Component, catalog: Catalog) -> Iterator[tuple[str, Request, Any]]:
    """Yield what a declaration's functions say to requests of every kind: the function, the request, the answer.

    An answer is what is returned, or the exception.
    """
    declaration = component.declaration
    names = declaration.functions
    for request in _requests(component, catalog):
        matches = "match" not in names
        for name in names:
            function = getattr(declaration, name)
            if name == "size":
                # Of a distribution that does not take the space nobody asks the size.
                arguments: tuple[Any, ...] = (request.action, request.config)
                arguments += (3,) if getattr(declaration, "wraps_default", False) else ()
                if request.action is None or not matches:
                    continue
            else:
                arguments = (request,)
                if name != "match" and not matches:
                    continue  # the kernel asks those only that match, or that the config names
            try:
                answer = function(*arguments)
            except Exception as error:
                answer = error
            matches = isinstance(answer, Match) and answer.rank is not None if name == "match" else matches
            yield name, request, answer


def _requests(component: Component, catalog: Catalog) -> Iterator[Request]:
    kind, config = kind_of(component), catalog.parse_config(None).read_only()
    if kind in ("env_wrapper", "command", "engine", "filter", "action_codec", "framework"):
        return  # an environment is not made up
    actions = [SpaceInfo.read(space, "action") for space in ACTIONS]
    served = [name for name in component.frameworks if name in frameworks()] or [default_framework()]
    one, other = served[0], served[-1]
    for index, space in enumerate(OBSERVATIONS):
        obs, action = SpaceInfo.read(space), actions[index % len(actions)]
        if kind == "preprocessor":
            yield Request(obs, config=config, catalog=catalog)
            yield Request(obs, config=config, framework=one)
            continue
        if kind == "action_dist":
            yield Request(action, action, config, catalog=catalog)
        yield Request(obs, action, config, None, None, None, catalog=catalog)
        yield Request(obs, action, config, one, None, 4, catalog=catalog)
        try:
            made = catalog.preprocessor_for(obs, config)
        except CatalogError:  # without the package of codecs
            shape = obs.shape if obs.kind == "box" else (7,)
            yield Request(obs, action, config, one, shape, 4, catalog=catalog)
            continue
        encoded = Request(obs, action, config, other, made.shape, 4, preprocessor=made, catalog=catalog)
        yield encoded
        yield replace(encoded, num_outputs=None)
        yield replace(encoded, trunk_width=6)


def _plugin_of(part: Part) -> PluginRecord:
    for plugin in find_plugins(part.catalog.entry_points):
        if plugin.distribution == part.component.distribution:
            return plugin
    raise NotApplicable("it was registered by the running program")
