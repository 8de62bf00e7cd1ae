"""Broken plugins: each raises an error, returns a wrong value, or claims what is another package's.

`list_broken_plugins` returns one for each fault.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Annotated, Any

import msgspec
import numpy as np
from faulty_functions import function_that_raises, function_that_returns
from msgspec import Meta

import rlcatalog
from rlcatalog import (
    ActionCodecSpec,
    ActionDistSpec,
    CommandSpec,
    EnvWrapperSpec,
    FilterSpec,
    FrameworkSpec,
    Match,
    ModelSpec,
    Preprocessor,
    PreprocessorSpec,
    Rank,
    Stage,
)
from rlcatalog.errors import ConfigError
from rlcatalog_testing import PluginEntryPoint, plugin_of

#: The module with the classes that broken plugins name.
PARTS = "made_up_broken_parts"


class Panic(BaseException):
    """Stands for what a Rust extension raises."""


#: What a function of a plugin may raise.
ERRORS: dict[str, BaseException] = {
    "ValueError": ValueError("wrong"),
    "SystemExit": SystemExit(3),
    "GeneratorExit": GeneratorExit(),
    "CancelledError": asyncio.CancelledError(),
    "Panic": Panic("called `Option::unwrap()`"),
    "RecursionError": RecursionError("deep"),
    "MemoryError": MemoryError(),
    "StopIteration": StopIteration(1),
    "warning as error": DeprecationWarning("old"),
    "markup": ValueError("[/bold] [red] \ud800 \x1b[31m"),
    "error of ours": ConfigError(""),
}
#: What a function may return by mistake, and what a field of a declaration may be.
WRONG_VALUES: dict[str, Any] = {
    "None": None,
    "number": 5,
    "text": "fcnet",
    "list of numbers": [5],
    "infinity": float("inf"),
    "NaN": float("nan"),
    "negative": -1,
    "array": np.zeros((2, 2)),
    "True": True,
    "class": dict,
    "complex": 1j,
    "half": 2.5,
    "dict": {3: 4},
    "error": ValueError("returned"),
}


match_everything = function_that_returns(Match(Rank.SPECIFIC, "fits everything"))


@dataclass(frozen=True)
class BrokenPlugin:
    """One broken plugin.

    Attributes:
        fault: What is wrong with it.
        make: Function that makes the plugin, or the error that its import raises. Its argument is
            a word that the names of its parts begin with.
        loads: Whether it loads without a warning, and fails only when it is used.
        requires: Its `Requires-Dist` lines.
        version: Its version.
    """

    fault: str
    make: Callable[[str], Any]
    loads: bool = False
    requires: tuple[str, ...] = ()
    version: str = "1.0"

    def entry_point(self, number: int) -> PluginEntryPoint:
        """Return its entry point, as the distribution `broken-NUMBER`."""
        return _EntryPoint(
            self.make(f"broken_{number}"),
            f"broken-{number}",
            requires=self.requires,
            version=self.version,
        )


class _EntryPoint(PluginEntryPoint):
    def load(self) -> Any:
        if isinstance(self._plugin, BaseException):
            raise self._plugin
        return self._plugin


def list_broken_plugins() -> list[BrokenPlugin]:
    """Return every broken plugin, in a fixed order."""
    return [
        *_failing_hooks(),
        *_failing_functions(),
        *_wrong_results(),
        *_wrong_declarations(),
        *_missing_classes(),
        *_claims(),
        *_odd_packages(),
    ]


# --- hooks ----------------------------------------------------------------------------------------


def _failing_hooks() -> Iterator[BrokenPlugin]:
    for name, error in ERRORS.items():
        hook = function_that_raises(error)
        yield BrokenPlugin(f"import raises {name}", function_that_returns(error))
        yield BrokenPlugin(f"hook raises {name}", partial(_plugin_with_models, hook))
    for name, value in WRONG_VALUES.items():
        hook = function_that_returns(value)
        yield BrokenPlugin(f"hook returns {name}", partial(_plugin_with_models, hook))
        yield BrokenPlugin(f"plugin is {name}", function_that_returns(value))


def _plugin_with_models(hook: Callable[[], Any], word: str) -> ModuleType:
    return plugin_of(rlcatalog_models=hook)


# --- functions of parts ---------------------------------------------------------------------------

#: Functions of parts that may be broken.
FUNCTIONS = (
    "match of a model",
    "match of a memory",
    "match of a preprocessor",
    "match of a distribution",
    "match of a wrapper",
    "describe",
    "claims",
    "size",
)
#: Function → values that it may return.
RIGHT_RESULTS = {"size": ("number", "True", "list of numbers")}


def plugin_with_function(place: str, function: Callable[..., Any], word: str) -> ModuleType:
    """Return a plugin with one part, of which one of `FUNCTIONS` is the given one."""
    if place == "match of a model":
        return plugin_of(rlcatalog_models=[make_model(word, match=function)])
    if place == "match of a memory":
        return plugin_of(rlcatalog_models=[make_model(word, match=function, slot="memory")])
    if place == "match of a preprocessor":
        return plugin_of(rlcatalog_preprocessors=[make_preprocessor(word, match=function)])
    if place == "match of a distribution":
        return plugin_of(rlcatalog_action_dists=[make_dist(word, match=function)])
    if place == "match of a wrapper":
        return plugin_of(rlcatalog_env_wrappers=[make_wrapper(word, match=function)])
    if place == "size":
        return plugin_of(rlcatalog_action_dists=[make_dist(word, size=function)])
    if place == "claims":
        return plugin_of(rlcatalog_models=[make_model(word, slot="head", claims=function)])
    return plugin_of(rlcatalog_models=[make_model(word, describe=function)])


def make_model(word: str, **fields: Any) -> ModelSpec:
    """Return the declaration of a model that matches everything, with other fields."""
    default = {
        "name": f"{word}_net",
        "targets": {"torch": "m:C"},
        "summary": "",
        "match": match_everything,
    }
    return ModelSpec(**{**default, **fields})


def make_preprocessor(word: str, **fields: Any) -> PreprocessorSpec:
    default = {"targets": {"numpy": "m:C"}, "summary": "", "match": match_everything}
    return PreprocessorSpec(f"{word}_codec", **{**default, **fields})


def make_dist(word: str, **fields: Any) -> ActionDistSpec:
    default = {"match": match_everything, "size": function_that_returns(2)}
    return ActionDistSpec(f"{word}_dist", {"torch": "m:C"}, "", **{**default, **fields})


def make_wrapper(word: str, **fields: Any) -> EnvWrapperSpec:
    return EnvWrapperSpec(f"{word}_wrapper", {"numpy": "m:C"}, "", **fields)


def _failing_functions() -> Iterator[BrokenPlugin]:
    for place in FUNCTIONS:
        for name, error in ERRORS.items():
            # In other functions than match, an error of ours is about the request.
            if name == "error of ours" and not place.startswith("match"):
                continue
            make = partial(plugin_with_function, place, function_that_raises(error))
            yield BrokenPlugin(f"{place} raises {name}", make, loads=True)
        for name, value in WRONG_VALUES.items():
            if name in RIGHT_RESULTS.get(place, ()):
                continue
            make = partial(plugin_with_function, place, function_that_returns(value))
            yield BrokenPlugin(f"{place} returns {name}", make, loads=True)


def _wrong_results() -> Iterator[BrokenPlugin]:
    """Yield plugins whose functions return a Match or a Stage with a wrong value in it."""
    for name, value in WRONG_VALUES.items():
        results: dict[str, tuple[str, Any]] = {}
        if name != "text":
            results["reason"] = ("match of a model", Match(rank=None, why=value))
        if name != "None":  # which means that the part does not fit
            # True is 1, which is a rank.
            rank = 9 if value is True else value
            results["rank"] = ("match of a model", Match(rank, "x"))
        if name not in ("None", "list of numbers"):
            results["stage"] = ("describe", [Stage("x", value)])
        for kind, (place, result) in results.items():
            make = partial(plugin_with_function, place, function_that_returns(result))
            yield BrokenPlugin(f"{kind} {name}", make, loads=True)


# --- declarations ---------------------------------------------------------------------------------

#: Field of a model's declaration → wrong values of other fields that are right here.
RIGHT_FIELDS: dict[str, tuple[str, ...]] = {
    "summary": ("text",),
    "name": ("text",),
    "targets": (),
    "reads": (),
    "config": ("None",),
    "slot": (),
    "describe": ("None", "class"),
}


def _wrong_declarations() -> Iterator[BrokenPlugin]:
    for field, right in RIGHT_FIELDS.items():
        for name, value in WRONG_VALUES.items():
            if name not in right:
                make = partial(_plugin_that_declares, {field: value})
                yield BrokenPlugin(f"{field} is {name}", make)
    markup = partial(_plugin_that_declares, {"name": "[/]"})
    yield BrokenPlugin("name with markup", markup)
    unknown_framework = partial(_plugin_that_declares, {"targets": {"jax": "m:C"}})
    yield BrokenPlugin("target of an unknown framework", unknown_framework)
    yield BrokenPlugin("one model twice", _plugin_with_a_model_twice)
    for struct in config_structs():
        config = partial(_plugin_that_declares, {"config": f"{PARTS}:{struct}"})
        yield BrokenPlugin(f"config {struct}", config)


def _plugin_that_declares(fields: dict[str, Any], word: str) -> ModuleType:
    """Return a plugin whose hook declares a model with these fields, which may raise an error."""

    def hook() -> list[ModelSpec]:
        return [make_model(word, **{"match": None, **fields})]

    return plugin_of(rlcatalog_models=hook)


def _plugin_with_a_model_twice(word: str) -> ModuleType:
    return plugin_of(rlcatalog_models=[make_model(word), make_model(word)])


def config_structs() -> dict[str, type]:
    """Return config structs that cannot be read, by name."""

    class Unresolvable(msgspec.Struct):
        x: NoSuchName = 1  # type: ignore[name-defined]  # noqa: F821

    class PostInit(msgspec.Struct):
        x: int = 1

        def __post_init__(self) -> None:
            raise Panic("default")

    class Factory(msgspec.Struct):
        x: list[int] = msgspec.field(default_factory=function_that_raises(Panic("default")))

    class Required(msgspec.Struct):
        x: int

    class WrongType(msgspec.Struct):
        x: int = "one"  # type: ignore[assignment]

    class OutOfBounds(msgspec.Struct):
        x: Annotated[int, Meta(ge=1)] = 0

    class Unsupported(msgspec.Struct):
        x: Callable[[int], np.ndarray] | type[int] | np.dtype = np.zeros(3)  # type: ignore[assignment]

    structs = [Unresolvable, PostInit, Factory, Required, WrongType, OutOfBounds, Unsupported]
    return {**{struct.__name__: struct for struct in structs}, "NoStruct": dict}


# --- classes --------------------------------------------------------------------------------------


class RaisingCodec(Preprocessor):
    """A preprocessor whose shape raises an error."""

    def _init_shape(self, obs_space: Any, options: Any) -> Any:
        raise Panic("no shape")


def install_parts() -> None:
    """Make the classes importable that broken plugins name."""
    module = ModuleType(PARTS)
    vars(module).update(config_structs(), RaisingCodec=RaisingCodec, number=3, NoCodec=dict)
    sys.modules[PARTS] = module


def _missing_classes() -> Iterator[BrokenPlugin]:
    targets = ["a_module_nobody_has:C"]
    targets += [f"{PARTS}:{name}" for name in ("Missing", "number", "NoCodec", "RaisingCodec")]
    for target in targets:
        make = partial(_plugin_with_preprocessor, target)
        yield BrokenPlugin(f"preprocessor {target}", make, loads=True)


def _plugin_with_preprocessor(target: str, word: str) -> ModuleType:
    return plugin_of(rlcatalog_preprocessors=[make_preprocessor(word, targets={"numpy": target})])


# --- what is another package's --------------------------------------------------------------------


class GreedyConfig(msgspec.Struct):
    """Claims a key of fcnet's."""

    fcnet_hiddens: str = "wide"


def _request_the_default_catalog() -> list[Any]:
    rlcatalog.default_catalog()
    return []


def _make_a_catalog() -> list[Any]:
    rlcatalog.Catalog()
    return []


def _claims() -> Iterator[BrokenPlugin]:
    """Yield plugins that claim names of other packages, and that use the catalog too early."""
    targets = {"torch": "m:C"}
    of_framework = {"backend": "m:E", "ops": "m:O"}
    # These names mean the parts of the other packages, without a warning.
    for field, value in {"name": "fcnet", "config": "broken_plugins:GreedyConfig"}.items():
        make = partial(_plugin_that_declares, {"match": match_everything, field: value})
        yield BrokenPlugin(f"takes {field} of fcnet", make, loads=True)
    for command in ("train", "list"):
        spec = CommandSpec(command, {"cli": "m:f"}, "")
        yield BrokenPlugin(f"takes {command}", _returns_plugin(rlcatalog_commands=[spec]), True)
    dist = ActionDistSpec(
        "categorical", targets, "", size=function_that_returns(7), match=match_everything
    )
    make = _returns_plugin(rlcatalog_action_dists=[dist])
    yield BrokenPlugin("takes categorical", make, loads=True)

    codec = ActionCodecSpec("broken_codec", {"numpy": "m:C"}, "", kinds=("discrete",))
    yield BrokenPlugin("takes codec of discrete", _returns_plugin(rlcatalog_action_codecs=[codec]))
    torch = FrameworkSpec("torch", of_framework, "", module="torch")
    yield BrokenPlugin("takes framework torch", _returns_plugin(rlcatalog_frameworks=[torch]))
    alias = FrameworkSpec("broken", of_framework, "", module="torch", aliases=("tf",))
    yield BrokenPlugin("takes alias tf", _returns_plugin(rlcatalog_frameworks=[alias]))
    extension = ModelSpec("fcnet", targets, "", extends="rlcatalog-fcnet/fcnet")
    yield BrokenPlugin("extends fcnet", _returns_plugin(rlcatalog_models=[extension]))

    hooks = {"the default catalog": _request_the_default_catalog, "a catalog": _make_a_catalog}
    for name, hook in hooks.items():
        yield BrokenPlugin(f"requests {name}", partial(_plugin_with_models, hook))


def _returns_plugin(**hooks: Any) -> Callable[[str], ModuleType]:
    return function_that_returns(plugin_of(**hooks))


def _odd_packages() -> Iterator[BrokenPlugin]:
    """Yield plugins with odd requirements, versions and texts."""
    for line in (
        "rlcatalog>=99",
        "rlcatalog>=99; 'x' in extras",
        "rlcatalog; nonsense",
        "rlcatalog>=x; extra > 1",
    ):
        make = partial(_plugin_that_declares, {})
        yield BrokenPlugin(f"requires {line}", make, requires=(line,))
    yield BrokenPlugin("no hook", function_that_returns(ModuleType("empty")))
    marked = FilterSpec("x", {"numpy": "m:C"}, "[/red] \x1b[31m \ud800")
    make_marked = _returns_plugin(rlcatalog_filters=[marked])
    yield BrokenPlugin("markup", make_marked, loads=True, version="1.0[/][red]")
    match = function_that_returns(Match(Rank.GENERIC, "[/] as well"))
    make = partial(plugin_with_function, "match of a model", match)
    yield BrokenPlugin("fits as well", make, loads=True)
