"""Plugins broken on purpose: faults and the places they are put into, and plugins that take what is
others'.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
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

#: Module that the targets and config structs of broken plugins are in.
PARTS = "made_up_broken_parts"


class Panic(BaseException):
    """Stands for what a Rust extension raises."""


class Unreadable(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Hostile:
    """An object of which nothing can be asked."""

    def __repr__(self) -> str:
        raise Panic("repr")

    __str__ = __eq__ = __bool__ = __iter__ = __len__ = __int__ = __repr__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


ERRORS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("wrong"),
    "SystemExit": lambda: SystemExit(3),
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "Panic": lambda: Panic("called `Option::unwrap()`"),
    "Unreadable": Unreadable,
    "RecursionError": lambda: RecursionError("deep"),
    "MemoryError": MemoryError,
    "StopIteration": lambda: StopIteration(1),
    "warning as error": lambda: DeprecationWarning("old"),
    "markup": lambda: ValueError("[/bold] [red] \ud800 \x1b[31m"),
    "error of ours, without text": lambda: ConfigError(Unreadable()),
}
ANSWERS: dict[str, Any] = {
    "None": None,
    "number": 5,
    "text": "fcnet",
    "hostile": Hostile(),
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


@dataclass(frozen=True)
class Broken:
    """One broken plugin.

    Attributes:
        name: What is wrong with it.
        plugin: Makes the plugin, or the error its import raises, for a word that its parts begin
            with.
        quiet: Whether it loads without a report; it then fails only when it is used.
        requires: Its `Requires-Dist` lines.
        version: Its version.
    """

    name: str
    plugin: Callable[[str], Any]
    quiet: bool = False
    requires: tuple[str, ...] = ()
    version: str = "1.0"

    def entry_point(self, number: int) -> PluginEntryPoint:
        distribution = f"broken-{number}"
        return _EntryPoint(
            self.plugin(distribution.replace("-", "_")),
            distribution,
            requires=self.requires,
            version=self.version,
        )


class _EntryPoint(PluginEntryPoint):
    def load(self) -> Any:
        if isinstance(self._plugin, BaseException):
            raise self._plugin
        return self._plugin


def _raising(error: Callable[[], BaseException]) -> Callable[..., Any]:
    def fail(*arguments: Any) -> Any:
        raise error()

    return fail


def _answering(value: Any) -> Callable[..., Any]:
    def answer(*arguments: Any) -> Any:
        return value

    return answer


def fits(request: Any) -> Match:
    return Match(Rank.SPECIFIC, "fits everything")


def fits_none(request: Any) -> Match:
    return Match(None, "fits nothing")


#: What functions and classes there are to be broken: place → the hook and a declaration with the
#: function in it.
FUNCTIONS: dict[str, Callable[[str, Any], dict[str, Any]]] = {
    "match of a model": lambda w, f: {"rlcatalog_models": [model(w, match=f)]},
    "match of a memory": lambda w, f: {"rlcatalog_models": [model(w, match=f, slot="memory")]},
    "match of a preprocessor": lambda w, f: {"rlcatalog_preprocessors": [codec(w, match=f)]},
    "match of a distribution": lambda w, f: {"rlcatalog_action_dists": [dist(w, match=f)]},
    "match of a wrapper": lambda w, f: {"rlcatalog_env_wrappers": [wrapper(w, match=f)]},
    "describe": lambda w, f: {"rlcatalog_models": [model(w, match=fits, describe=f)]},
    "claims": lambda w, f: {"rlcatalog_models": [model(w, match=fits, slot="head", claims=f)]},
    "size": lambda w, f: {"rlcatalog_action_dists": [dist(w, match=fits, size=f)]},
}
#: Answers that are right in a place.
RIGHT = {"size": ("number", "True", "list of numbers")}


def model(word: str, **more: Any) -> ModelSpec:
    return ModelSpec(
        more.pop("name", f"{word}_net"), more.pop("targets", {"torch": "m:C"}), "", **more
    )


def codec(word: str, **more: Any) -> PreprocessorSpec:
    return PreprocessorSpec(f"{word}_codec", more.pop("targets", {"numpy": "m:C"}), "", **more)


def dist(word: str, **more: Any) -> ActionDistSpec:
    return ActionDistSpec(
        f"{word}_dist", {"torch": "m:C"}, "", **{"size": lambda action, config: 2, **more}
    )


def wrapper(word: str, **more: Any) -> EnvWrapperSpec:
    return EnvWrapperSpec(f"{word}_wrapper", {"numpy": "m:C"}, "", **more)


# --- declarations that cannot be made, made in the hook -------------------------------------------

DECLARATIONS: dict[str, Callable[[str], Any]] = {
    **{
        f"summary {k}": lambda w, v=v: [ModelSpec(f"{w}_net", {"torch": "m:C"}, v)]
        for k, v in ANSWERS.items()
        if k != "text"
    },
    **{
        f"name {k}": lambda w, v=v: [ModelSpec(v, {"torch": "m:C"}, "")]
        for k, v in ANSWERS.items()
        if k != "text"
    },
    **{f"targets {k}": lambda w, v=v: [ModelSpec(f"{w}_net", v, "")] for k, v in ANSWERS.items()},
    **{f"reads {k}": lambda w, v=v: [model(w, reads=v)] for k, v in ANSWERS.items()},
    **{
        f"config {k}": lambda w, v=v: [model(w, config=v)]
        for k, v in ANSWERS.items()
        if v is not None
    },
    **{f"slot {k}": lambda w, v=v: [model(w, slot=v)] for k, v in ANSWERS.items()},
    **{
        f"describe {k}": lambda w, v=v: [model(w, describe=v)]
        for k, v in ANSWERS.items()
        if v is not None and k != "class"
    },
    "name with markup": lambda w: [ModelSpec("[/]", {"torch": "m:C"}, "")],
    "a target of an unknown framework": lambda w: [model(w, targets={"jax": "m:C"})],
    "twice": lambda w: [model(w), model(w)],
}


# --- config structs -------------------------------------------------------------------------------


def _boom(*arguments: Any) -> Any:
    raise Panic("default")


def config_structs() -> dict[str, type]:
    """Config structs that cannot be read."""

    class Unresolvable(msgspec.Struct):
        x: NoSuchName = 1  # type: ignore[name-defined]  # noqa: F821

    class PostInit(msgspec.Struct):
        x: int = 1

        def __post_init__(self) -> None:
            _boom()

    class Factory(msgspec.Struct):
        x: list[int] = msgspec.field(default_factory=_boom)

    class Required(msgspec.Struct):
        x: int

    class WrongType(msgspec.Struct):
        x: int = "one"  # type: ignore[assignment]

    class OutOfBounds(msgspec.Struct):
        x: Annotated[int, Meta(ge=1)] = 0

    class Unsupported(msgspec.Struct):
        x: Callable[[int], np.ndarray] | type[int] | np.dtype = np.zeros(3)  # type: ignore[assignment]

    class HostileDefault(msgspec.Struct):
        x: int = Hostile()  # type: ignore[assignment]

    found = [
        Unresolvable,
        PostInit,
        Factory,
        Required,
        WrongType,
        OutOfBounds,
        Unsupported,
        HostileDefault,
    ]
    return {cls.__name__: cls for cls in found} | {"NoStruct": dict, "NoClass": Hostile()}  # type: ignore[dict-item]


# --- parts that are not what they are declared as -------------------------------------------------


class RaisingCodec(Preprocessor):
    def _init_shape(self, obs_space: Any, options: Any) -> Any:
        raise Panic("no shape")


class ShapelessCodec(Preprocessor):
    def _init_shape(self, obs_space: Any, options: Any) -> Any:
        return "wide"


def install_parts() -> None:
    """Make what the broken plugins name importable."""
    made = types.ModuleType(PARTS)
    structs = {f"Config{name}": struct for name, struct in config_structs().items()}
    vars(made).update(
        structs,
        RaisingCodec=RaisingCodec,
        ShapelessCodec=ShapelessCodec,
        number=3,
        NoCodec=dict,
        hostile=Hostile(),
    )
    sys.modules[PARTS] = made


CODECS = [
    "a_module_nobody_has:C",
    *(f"{PARTS}:{name}" for name in ("Missing", "number", "NoCodec", "RaisingCodec", "hostile")),
]


# --- greed ----------------------------------------------------------------------------------------


class GreedyConfig(msgspec.Struct):
    """Claims a key of fcnet's."""

    fcnet_hiddens: str = "wide"


def _change_request(request: Any) -> Match:
    for change in (
        lambda: request.config.__setitem__("fcnet_hiddens", [7]),
        lambda: request.config.update(fcnet_hiddens=[7]),
        lambda: request.config["fcnet_hiddens"].append(7),
        lambda: request.config["custom_model_config"].update(x=1),
        lambda: object.__setattr__(request, "config", {"fcnet_hiddens": [7]}),
        lambda: object.__setattr__(request, "encoded_shape", (7,)),
        lambda: request.obs.low.fill(7),
    ):
        with contextlib.suppress(TypeError, AttributeError, ValueError):
            change()
    return Match(None, "was here")


def _ask_for_the_catalog() -> list[Any]:
    rlcatalog.default_catalog()
    return []


def _make_a_catalog() -> list[Any]:
    rlcatalog.Catalog()
    return []


class _WithoutVars:
    __slots__ = ()


class _Unequal(types.ModuleType):
    __eq__ = __bool__ = Hostile.__repr__  # type: ignore[assignment]
    __hash__ = types.ModuleType.__hash__


def _unequal(word: str) -> Any:
    made = _Unequal("unequal")
    made.rlcatalog_models = rlcatalog.hookimpl(_raising(ERRORS["Panic"]))  # type: ignore[attr-defined]
    return made


GREEDY: dict[str, Callable[[str], Any]] = {
    "fcnet": lambda w: plugin_of(rlcatalog_models=[model(w, name="fcnet", match=fits), model(w)]),
    "fcnet_hiddens": lambda w: plugin_of(
        rlcatalog_models=[
            model(w, config="broken_plugins:GreedyConfig", match=fits),
            model(w, name=f"{w}_other"),
        ]
    ),
    "train": lambda w: plugin_of(rlcatalog_commands=[CommandSpec("train", {"cli": "m:f"}, "")]),
    "list": lambda w: plugin_of(rlcatalog_commands=[CommandSpec("list", {"cli": "m:f"}, "")]),
    "categorical": lambda w: plugin_of(
        rlcatalog_action_dists=[
            ActionDistSpec("categorical", {"torch": "m:C"}, "", size=lambda a, c: 7, match=fits)
        ]
    ),
    "codec of discrete": lambda w: plugin_of(
        rlcatalog_action_codecs=[
            ActionCodecSpec(f"{w}_codec", {"numpy": "m:C"}, "", kinds=("discrete",))
        ]
    ),
    "framework torch": lambda w: plugin_of(
        rlcatalog_frameworks=[
            FrameworkSpec("torch", {"backend": "m:E", "ops": "m:O"}, "", module="torch")
        ]
    ),
    "framework alias": lambda w: plugin_of(
        rlcatalog_frameworks=[
            FrameworkSpec(w, {"backend": "m:E", "ops": "m:O"}, "", module="torch", aliases=("tf",))
        ]
    ),
    "extends fcnet": lambda w: plugin_of(
        rlcatalog_models=[ModelSpec("fcnet", {"torch": "m:C"}, "", extends="rlcatalog-fcnet/fcnet")]
    ),
    "the default catalog": lambda w: plugin_of(rlcatalog_models=_ask_for_the_catalog),
    "a catalog": lambda w: plugin_of(rlcatalog_models=_make_a_catalog),
    "no hook": lambda w: types.ModuleType("empty"),
    "no module": lambda w: _WithoutVars(),
    "unequal": _unequal,
}


def _quiet(name: str, hooks: Callable[[str], dict[str, Any]]) -> Broken:
    return Broken(name, lambda word: plugin_of(**hooks(word)), quiet=True)


def table() -> list[Broken]:  # noqa: C901, PLR0912, a loop for each way to be broken
    """Every broken plugin, in a fixed order."""
    found: list[Broken] = []
    for name, error in ERRORS.items():
        found.append(Broken(f"import raises {name}", lambda w, e=error: e()))
        found.append(
            Broken(
                f"hook raises {name}", lambda w, e=error: plugin_of(rlcatalog_models=_raising(e))
            )
        )
    for name, value in ANSWERS.items():
        found.append(
            Broken(
                f"hook returns {name}",
                lambda w, v=value: plugin_of(rlcatalog_filters=_answering(v)),
            )
        )
        found.append(Broken(f"plugin is {name}", lambda w, v=value: v))
    for place, made in FUNCTIONS.items():
        for name, error in ERRORS.items():
            # An error of ours is about the request, but in a match function, where it counts as any
            # other.
            if "of ours" not in name or place.startswith("match"):
                found.append(
                    _quiet(f"{place} raises {name}", lambda w, m=made, e=error: m(w, _raising(e)))
                )
        for name, value in ANSWERS.items():
            if name not in RIGHT.get(place, ()):
                found.append(
                    _quiet(
                        f"{place} returns {name}", lambda w, m=made, v=value: m(w, _answering(v))
                    )
                )
    for name, value in ANSWERS.items():
        if name not in ("text",):
            found.append(
                _quiet(
                    f"reason {name}",
                    lambda w, v=value: {
                        "rlcatalog_models": [model(w, match=lambda request: Match(None, v))]
                    },
                )
            )
        if name not in ("None", "list of numbers"):
            found.append(
                _quiet(
                    f"stage {name}",
                    lambda w, v=value: {
                        "rlcatalog_models": [
                            model(w, match=fits, describe=lambda request: [Stage("x", v)])
                        ]
                    },
                )
            )
        if name != "None":
            rank = 9 if value is True else value
            found.append(
                _quiet(
                    f"rank {name}",
                    lambda w, v=rank: {
                        "rlcatalog_models": [model(w, match=lambda request: Match(v, "x"))]
                    },
                )
            )
    for name, declare in DECLARATIONS.items():
        found.append(
            Broken(
                f"declares {name}",
                lambda w, d=declare: plugin_of(
                    rlcatalog_models=types.FunctionType(
                        (lambda: d(w)).__code__, {}, "hook", (), (lambda: d(w)).__closure__
                    )
                ),
            )
        )
    for name in config_structs():
        found.append(
            Broken(
                f"config {name}",
                lambda w, n=name: plugin_of(
                    rlcatalog_models=[model(w, config=f"{PARTS}:Config{n}")]
                ),
            )
        )
    for target in CODECS:
        found.append(
            _quiet(
                f"codec {target}",
                lambda w, t=target: {
                    "rlcatalog_preprocessors": [codec(w, match=fits, targets={"numpy": t})]
                },
            )
        )
    # others' names, which mean the others' parts.
    quiet = ("fcnet", "fcnet_hiddens", "train", "list", "categorical")
    found += [Broken(f"takes {name}", plugin, name in quiet) for name, plugin in GREEDY.items()]
    found += [
        Broken(
            f"requires {line}", lambda w: plugin_of(rlcatalog_models=[model(w)]), requires=(line,)
        )
        for line in (
            "rlcatalog>=99",
            "rlcatalog>=99; 'x' in extras",
            "rlcatalog; nonsense",
            "rlcatalog>=x; extra > 1",
        )
    ]
    marked = {"rlcatalog_filters": [FilterSpec("x", {"numpy": "m:C"}, "[/red] \x1b[31m \ud800")]}
    found += [
        Broken(
            "changes the request",
            lambda w: plugin_of(rlcatalog_models=[model(w, match=_change_request)]),
            quiet=True,
        ),
        Broken(
            "changes what its codec is asked",
            lambda w: plugin_of(rlcatalog_preprocessors=[codec(w, match=_change_request)]),
            quiet=True,
        ),
        Broken("markup", lambda w: plugin_of(**marked), quiet=True, version="1.0[/][red]"),
        Broken(
            "fits as well",
            lambda w: plugin_of(
                rlcatalog_models=[
                    model(w, match=lambda request: Match(Rank.GENERIC, "[/] as well"))
                ]
            ),
            quiet=True,
        ),
    ]
    return found
