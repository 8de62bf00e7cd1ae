"""The command `train`, which works with every engine."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from rlcatalog.catalog import default_catalog
from rlcatalog.errors import ConfigError, SavedPolicyError, shown
from rlcatalog_cli import import_modules, key_values, read_config_file
from rlcatalog_runs.checkpoints import run_of
from rlcatalog_runs.commands.several_seeds import (
    is_given,
    parse_seeds,
    refuse_with_seeds,
    train_seeds,
)
from rlcatalog_runs.commands.train_options import (
    FIXED,
    engine_class,
    flag_of,
    own_options,
    parameters,
    refuse_foreign,
)
from rlcatalog_runs.commands.train_screen import show_run
from rlcatalog_runs.engines import (
    DEFAULT_ENGINE,
    Engine,
    RunPlan,
    engine_of,
    new_plan,
    resumed_plan,
)
from rlcatalog_runs.folders import (
    CURVE,
    POLICY,
    default_folder,
    read_config,
    refuse_taken,
)
from rlcatalog_runs.import_hints import hint_at_imports
from rlcatalog_runs.interrupts import Interrupted
from rlcatalog_runs.logs import log_names
from rlcatalog_runs.session import train as train_run

_ENV = typer.Argument(metavar="ENV_ID", help="A Gymnasium environment, such as CartPole-v1.")


def train(
    context: typer.Context, env_id: Annotated[str | None, _ENV] = None, **options: Any
) -> None:
    """Train a policy, and save it to a folder with the best policy, checkpoints, metrics and a
    plot.
    """
    # Not from the context: before 0.29, Typer keeps paths as strings there.
    values = {"env_id": env_id, **options}
    typed: dict[str, Any] = {
        name: value for name, value in values.items() if is_given(context, name)
    }
    modules = typed.get("modules", [])
    registered_id = import_modules(modules, env_id)
    for name in {"model", "settings"} & set(typed):
        typed[name] = key_values(typed[name], flag_of(name))
    if "log" in typed:
        typed["log"] = list(log_names(typed["log"]))
    if "resume" in typed:
        _resume(typed, modules)
        return
    if env_id is None or registered_id is None:
        raise ConfigError(
            "train: pass an environment, such as CartPole-v1, or resume a run with --resume PATH."
        )
    if "config" in typed:
        _add_config_file(typed)
    engine_name = options["engine"]
    out = options["out"]
    overwrite = options["overwrite"]
    kind = engine_class(engine_name)
    refuse_foreign(typed, engine_name, kind)
    plan = new_plan(kind, engine_name, registered_id, typed)
    algorithm_in_folder: str | None = plan.algorithm
    if engine_name == DEFAULT_ENGINE and "algo" not in typed:
        # Runs of the default engine's default algorithm are not named after it.
        algorithm_in_folder = None
    if "seeds" in typed:
        refuse_with_seeds(context)
        seeds = parse_seeds(typed["seeds"])
        default_catalog().parse_config(plan.model)  # check once, before starting many runs
        kind.check(plan)
        train_seeds(
            context,
            seeds,
            out or default_folder(env_id, algorithm_in_folder, seeds),
            threads=getattr(plan.options, "threads", 1),  # an engine's options may lack it
            overwrite=overwrite,
            per_seed=[option.name for option in own_options(kind) if option.metavar == "PATH"],
            resume=partial(_resume_line, plan, kind, modules),
        )
        return
    if out is not None:
        refuse_taken(out, overwrite)  # report errors before building anything
    engine = kind(plan)
    folder = out or default_folder(env_id, algorithm_in_folder, plan.seed)
    _run(engine, folder, modules, quiet=options["quiet"], overwrite=overwrite)


def _add_config_file(typed: dict[str, Any]) -> None:
    """Replace the option `config` by the keys in its file; keys that the user typed override them.

    Args:
        typed: Options that the user typed.
    """
    file_config = read_config_file(typed.pop("config"))
    if file_config.model:
        typed["model"] = file_config.model | typed.get("model", {})
    if file_config.settings:
        typed["settings"] = file_config.settings | typed.get("settings", {})


def _resume(typed: Mapping[str, Any], modules: list[str]) -> None:
    """Resume a run.

    Args:
        typed: Options that the user typed.
        modules: Modules passed with `--import`.
    """
    directory = typed["resume"]
    _refuse_fixed(directory, FIXED & set(typed))
    folder = run_of(directory)
    with hint_at_imports(folder, modules):
        engine = _resumed_engine(directory, folder, typed, modules)
    plan = engine.plan
    kind = type(engine)
    notice = f"resuming after {plan.steps:,} steps"
    if kind.not_restored:
        notice += f"; {kind.not_restored}"
    print(notice)
    _run(engine, folder, modules, quiet=typed.get("quiet", False))


def _resumed_engine(
    directory: Path, folder: Path, typed: Mapping[str, Any], modules: list[str]
) -> Engine:
    """Return the engine of a run that is resumed.

    Args:
        directory: The folder that the user typed: the run's, or the one of a checkpoint.
        folder: The run's folder.
        typed: Options that the user typed.
        modules: Modules passed with `--import`.
    """
    config = read_config(folder, modules)
    name = engine_of(folder, config)
    kind = engine_class(name)
    if "engine" in typed and engine_class(typed["engine"]) is not kind:
        raise SavedPolicyError(
            f"{folder}: this run used engine {shown(name)}, not {shown(typed['engine'])}."
        )
    if kind.trusts_checkpoints and "engine" not in typed:
        raise ConfigError(
            f"--resume {directory}: the checkpoints of engine {name} are pickles, which can run"
            f" any code. If you trust the run: --resume {directory} --engine {name}."
        )
    refuse_foreign(typed, name, kind)
    _refuse_fixed(directory, kind.fixed & set(typed))
    plan = resumed_plan(kind, directory, config, typed, modules)
    # Values from the file are checked like values from the command line.
    if plan.options.log:
        log_names(",".join(plan.options.log))
    return kind(plan)


def _resume_line(plan: RunPlan, kind: type[Engine], modules: list[str], folder: Path | str) -> str:
    """Return the command that resumes a run, including the modules that the user named."""
    words = ["rlcatalog", "train", "--resume", str(folder)]
    if kind.trusts_checkpoints:
        words += ["--engine", plan.options.engine]
    return shlex.join([*words, *_import_options(plan, modules)])


def _import_options(plan: RunPlan, modules: list[str]) -> list[str]:
    """Return the options that import the modules of a run, with which other commands use it."""
    modules_in_env_id = plan.env_id.split(":")[:-1]
    options = []
    for module in dict.fromkeys([*modules, *modules_in_env_id]):  # each once
        options += ["--import", module]
    return options


def _next_commands(
    plan: RunPlan, kind: type[Engine], modules: list[str], folder: Path
) -> list[str]:
    """Return what a user may do with a run that has ended: evaluate, train further, export."""
    imports = _import_options(plan, modules)
    resume = _resume_line(plan, kind, modules, folder)
    return [
        shlex.join(["rlcatalog", "evaluate", str(folder), *imports]),
        f"{resume} --steps {2 * plan.options.steps}",
        shlex.join(["rlcatalog", "export", str(folder), *imports]),
    ]


def _refuse_fixed(directory: Path, names: frozenset[str] | set[str]) -> None:
    """Raise an error if the user typed options that a resumed run keeps."""
    for name in sorted(names):
        raise ConfigError(
            f"--resume {directory}: a resumed run keeps its {flag_of(name)}. Remove"
            f" {flag_of(name)}."
        )


def _run(
    engine: Engine, folder: Path, modules: list[str], *, quiet: bool, overwrite: bool = False
) -> None:
    """Train while showing progress, and print where the results are."""
    plan = engine.plan
    try:
        with show_run(engine, folder, quiet=quiet) as display:
            session = train_run(engine, folder, display, overwrite=overwrite)
    except Interrupted as interrupt:
        print(
            f"Interrupted by {interrupt}. The run up to step {engine.steps:,} is saved. To"
            f" continue: {_resume_line(plan, type(engine), modules, folder)}",
            file=sys.stderr,
        )
        raise typer.Exit(interrupt.exit_status) from None
    if session.stopping is not None:
        print(f"ended after {engine.steps:,} steps: {session.stopping}")
    print(f"policy: {folder / POLICY}")
    print(f"learning curve: {folder / CURVE}")
    if not quiet:
        print("next:")
        for command in _next_commands(plan, type(engine), modules, folder):
            print(f"  {command}")


# Its options: the common ones, and the installed engines' own.
_OPTIONS = parameters()
_FIRST = list(inspect.signature(train, eval_str=True).parameters.values())[:2]
train.__signature__ = inspect.Signature([*_FIRST, *_OPTIONS])  # type: ignore[attr-defined]
train.__annotations__ |= {option.name: option.annotation for option in _OPTIONS}
