"""Options for `train`: common options, and options that only some engines have."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from rlcatalog.catalog import default_catalog
from rlcatalog.errors import CatalogError, ConfigError
from rlcatalog_cli import FRAMEWORKS
from rlcatalog_runs.engines import DEFAULT_ENGINE, Engine
from rlcatalog_runs.logs import LOGS


class Option(NamedTuple):
    """Option of the command `train`.

    Attributes:
        name: The parameter's name.
        kind: Type of the value.
        metavar: Placeholder for the value in the help text.
        help: Description of the option.
        default: Value that is used if the option is not passed.
        flags: Flags of the option; `--name` if empty.
        bounds: Smallest and largest allowed values.
    """

    name: str
    kind: Any
    metavar: str | None
    help: str
    default: Any = None
    flags: tuple[str, ...] = ()
    bounds: tuple[int | None, int | None] = (None, None)

    @property
    def flag(self) -> str:
        """The full option name."""
        return self.flags[0] if self.flags else f"--{self.name.replace('_', '-')}"

    def parameter(self, group: str) -> inspect.Parameter:
        """Return the option as a parameter for a typer function, in one of the help
        text's groups.
        """
        smallest, largest = self.bounds
        typer_option = typer.Option(
            self.flag,
            *self.flags[1:],  # short forms, such as -o
            metavar=self.metavar,
            help=self.help,
            min=smallest,
            max=largest,
            rich_help_panel=group,
        )
        kind = self.kind
        if self.default is None:
            kind = self.kind | None
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=self.default,
            annotation=Annotated[kind, typer_option],
        )


#: Options that more than one engine uses, by group.
COMMON = {
    "Run": (
        Option(
            "engine",
            str,
            "NAME",
            "Train with this engine: ppo, sb3, rllib or one from a plugin.",
            default=DEFAULT_ENGINE,
            flags=("--engine", "-e"),
        ),
        Option(
            "out",
            Path,
            "PATH",
            "Write the run to this folder; by default, a new one in runs/ENV_ID.",
            flags=("--out", "-o"),
        ),
        Option(
            "overwrite", bool, metavar=None, help="Replace the run in the folder.", default=False
        ),
        Option(
            "resume",
            Path,
            "PATH",
            "Resume the run in this folder, or from this checkpoint. sb3 and rllib"
            " runs are pickles, which can run code, so they also need --engine.",
        ),
        Option(
            "seed",
            int,
            "N",
            "Seed that all seeds of the run are derived from.",
            default=0,
            bounds=(0, 2**32 - 1),
        ),
        Option("seeds", str, "SEEDS", "Train once per seed, in parallel: 0,1,2 or 0-4."),
        Option(
            "modules",
            list[str],
            "MODULE",
            "Import a module that registers environments or parts; repeatable.",
            flags=("--import",),
        ),
        Option("quiet", bool, metavar=None, help="Show no progress.", default=False),
    ),
    "Training": (
        Option("algo", str, "NAME", "The engine's algorithm; by default, the first one."),
        Option(
            "framework",
            str,
            "NAME",
            f"An installed framework: {FRAMEWORKS}; by default, that of a custom class.",
        ),
        Option(
            "model",
            list[str],
            "KEY=VALUE",
            "Set a key of the model config; repeatable.",
            flags=("--model", "-m"),
        ),
        Option(
            "config",
            Path,
            "FILE",
            "Read the config from this YAML file: algorithm config keys, and model config keys"
            " below `model:`; --model and --set override it.",
        ),
        Option(
            "settings",
            list[str],
            "KEY=VALUE",
            "Set an algorithm config key, such as gamma=0.9; repeatable.",
            flags=("--set", "-s"),
        ),
        Option(
            "steps",
            int,
            "N",
            "Environment steps to train for.",
            default=100_000,
            flags=("--steps", "-n"),
            bounds=(1, None),
        ),
        Option(
            "device", str, "NAME", "Device of the model: cpu (default), cuda, cuda:1, …, or auto."
        ),
        Option(
            "envs",
            int,
            "N",
            "Environments in parallel; by default, 8 (ppo), 1 (sb3), 4 per runner (rllib).",
            bounds=(1, None),
        ),
        Option(
            "vector",
            str,
            "NAME",
            "Step environments in turn (sync, default) or in separate processes (async).",
        ),
        Option(
            "frozen",
            str,
            "NAME",
            "Collect with a frozen policy: auto (default; if faster), always, never.",
        ),
        Option(
            "threads",
            int,
            "N",
            "Threads; small networks are fastest with one.",
            default=1,
            bounds=(1, 1024),
        ),
    ),
    "Checkpoints, evaluation and logs": (
        Option(
            "checkpoint_every",
            int,
            "N",
            "Steps between checkpoints; by default, a tenth of --steps. 0: only at the end.",
            bounds=(0, None),
        ),
        Option(
            "keep_checkpoints",
            int,
            "N",
            "Number of checkpoints to keep.",
            default=2,
            bounds=(1, None),
        ),
        Option(
            "eval_every",
            int,
            "N",
            "Steps between evaluations in separate environments. 0: no evaluations.",
            default=0,
            bounds=(0, None),
        ),
        Option(
            "eval_episodes",
            int,
            "N",
            "Number of episodes per evaluation.",
            default=10,
            bounds=(1, None),
        ),
        Option(
            "stop_at",
            float,
            "RETURN",
            "Stop at this mean return, taken from evaluations if there are any.",
        ),
        Option("log", str, "NAMES", f"Write logs in addition to metrics.jsonl: {', '.join(LOGS)}."),
    ),
}

#: Options that every engine accepts. The others are for engines whose options have a field with
#: that name.
OPTIONS_OF_ALL_ENGINES = frozenset(
    {
        "env_id",
        "engine",
        "out",
        "overwrite",
        "resume",
        "seed",
        "seeds",
        "modules",
        "quiet",
        "algo",
        "model",
        "config",
        "settings",
    }
)
#: Options that a resumed run cannot change.
FIXED = frozenset(
    {"env_id", "out", "overwrite", "seed", "seeds", "algo", "framework", "model", "config"}
)
#: Name of a parameter → how the user types it.
_FLAGS = {"env_id": "ENV_ID"}
for _options_of_group in COMMON.values():
    _FLAGS |= {option.name: option.flag for option in _options_of_group}


def parameters() -> list[inspect.Parameter]:
    """Return the options as parameters for a typer function, including the installed engines'
    options.
    """
    options_by_group: dict[str, Sequence[Option]] = dict(COMMON)
    algorithms = []
    for name, kind in engines().items():
        options_by_group[f"Engine {name}"] = own_options(kind)
        algorithms.append(f"{name}: {', '.join(kind.algorithms)}")
    parameters_by_name: dict[str, inspect.Parameter] = {}
    for group, options in options_by_group.items():
        for option in options:
            if option.name == "algo":
                listing = "; ".join(algorithms)
                option = option._replace(help=f"{option.help} {listing}.")
            # Two engines may have an option of the same name; it is listed once.
            parameters_by_name.setdefault(option.name, option.parameter(group))
    return list(parameters_by_name.values())


def engines() -> dict[str, type[Engine]]:
    """Return the installed engines that can be imported, by name."""
    registry = default_catalog().registry
    classes = {}
    for part in registry.active("engine"):
        with suppress(CatalogError):  # `--engine` with this name raises the error
            classes[registry.name_of(part)] = part.load("engine")
    return classes


def engine_class(name: str) -> type[Engine]:
    """Return an engine's class.

    Raises:
        MissingPluginError: The package that provides it is not installed.
        UnknownNameError: There is no such engine.
    """
    part = default_catalog().registry.get("engine", name)
    kind: type[Engine] = part.load("engine")
    return kind


def own_options(kind: type[Engine]) -> list[Option]:
    """Return the options that an engine adds; their values are text until its options class
    converts them.
    """
    options = []
    for name, hint in get_type_hints(kind.options, include_extras=True).items():
        if name in _FLAGS:  # a common option
            continue
        for meta in getattr(hint, "__metadata__", ()):  # of `typing.Annotated`
            if meta.description:
                extra = meta.extra or {}
                metavar = extra.get("metavar", "VALUE")
                options.append(Option(name, str, metavar, meta.description))
                break
    return options


def flag_of(name: str) -> str:
    """Return a parameter's option name."""
    return _FLAGS.get(name, f"--{name.replace('_', '-')}")


def refuse_foreign(typed: Mapping[str, Any], engine: str, kind: type[Engine]) -> None:
    """Raise an error if the engine does not have an option, or if `--set` has a key that is one of
    its options.

    Raises:
        ConfigError: The message names the engines that have the option, or the option to use.
    """
    for key in sorted(kind.reserved.keys() & typed.get("settings", {}).keys()):
        raise ConfigError(
            f"--set and --config do not accept {key!r}. Use its option instead:"
            f" {kind.reserved[key]}."
        )
    for name in typed:
        if name not in OPTIONS_OF_ALL_ENGINES and name not in kind.options.__struct_fields__:
            engines_with_it = []
            for other, other_kind in engines().items():
                if name in other_kind.options.__struct_fields__:
                    engines_with_it.append(other)
            raise ConfigError(
                f"{flag_of(name)}: engine {engine} has no such option. Engines with it:"
                f" {', '.join(engines_with_it)}."
            )
