"""Engines for `rlcatalog train`, and plans, which describe new or resumed runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from rlcatalog import Policy
from rlcatalog.config import plain
from rlcatalog.errors import ConfigError, SavedPolicyError, UnknownNameError, nearest, shown
from rlcatalog_policy import check_files
from rlcatalog_runs.checkpoints import checkpoint_steps, newest_checkpoint, run_of
from rlcatalog_runs.folders import WANDB
from rlcatalog_runs.locks import FolderLock
from rlcatalog_runs.records import FINISHED, read_record

if TYPE_CHECKING:
    from rlcatalog_runs.session import Session

#: The default engine for `rlcatalog train`.
DEFAULT_ENGINE = "ppo"
#: Maximum number of environment steps.
MOST = (1 << 53) - 1


class RunOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Options that every engine has, stored under `run` in a run's `config.json`.

    An engine adds options in a subclass.

    Attributes:
        engine: The engine's name.
        steps: Environment steps to train for.
        checkpoint_every: Environment steps between two checkpoints; 0: only at the end.
        keep_checkpoints: Number of checkpoints to keep.
        eval_every: Environment steps between two evaluations; 0: no evaluations.
        eval_episodes: Episodes per evaluation.
        stop_at: Mean return at which the run ends, or None.
        log: Names of logs in addition to `metrics.jsonl`.
    """

    engine: str
    steps: Annotated[int, Meta(ge=1, le=MOST)] = 100_000
    checkpoint_every: Annotated[int, Meta(ge=0, le=MOST)] = 0
    keep_checkpoints: Annotated[int, Meta(ge=1)] = 2
    eval_every: Annotated[int, Meta(ge=0)] = 0
    eval_episodes: Annotated[int, Meta(ge=1)] = 10
    stop_at: float | None = None
    log: list[str] = msgspec.field(default_factory=list)


@dataclass(frozen=True)
class RunPlan:
    """Plan that an engine receives for a run.

    Attributes:
        env_id: The environment's id, with the module that registers it if the user passed one.
        options: The options, an instance of the engine's `options`.
        algorithm: The algorithm's name.
        seed: The run's initial seed.
        model: The model config that the user typed.
        settings: The algorithm config keys that the user typed.
        typed: Names of the options that the user typed; a resumed run reads the others from its
            folder.
        folder: The folder of a resumed run, or None.
        checkpoint: The checkpoint to resume from, or None.
        steps: The number of environment steps at that checkpoint.
        config: The `config.json` of a resumed run.
    """

    env_id: str
    options: Any
    algorithm: str
    seed: int = 0
    model: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    typed: frozenset[str] = frozenset()
    folder: Path | None = None
    checkpoint: Path | None = None
    steps: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)


class Engine:
    """Base class for engines.

    An instance trains one run, and builds everything for it, from scratch or a checkpoint.

    The constructor is called before the run's folder exists, and raises an error if the run cannot
    be trained.

    Attributes:
        options: Class of the options. A field named like an existing `rlcatalog train` option
            receives that option's value. Any other field adds an option: `Annotated[int,
            Meta(description="…", extra={"metavar": "N"})]`. With the metavar `"PATH"`, each seed
            gets a separate folder if there are several.
        algorithms: Names for `--algo`; the first is the default.
        checkpoint: Name of a file or folder that each of the engine's checkpoints contains.
        packages: Modules whose versions are recorded, if they are imported.
        fixed: Options that a resumed run keeps unchanged.
        reserved: Keys that `--set` does not accept → the option that sets them.
        not_restored: Sentence that tells the user which state a resumed run does not restore; may
            be empty.
        trusts_checkpoints: Whether reading a checkpoint can run code, as with a pickle. Folders are
            not trusted, so `--resume` then also requires `--engine`.
        ends_at_once: Whether Ctrl-C may raise `Interrupted` anywhere within `learn`. The engine
            calls `session.interrupts.check()` regularly in both cases: if this is False, because
            nothing else ends the run, and if it is True, because Python drops an exception that is
            raised while it runs a `__del__` method or a callback of the garbage collector.

    Args:
        plan: The run.

    Raises:
        CatalogError: The run cannot be trained.
    """

    options: ClassVar[type[RunOptions]] = RunOptions
    algorithms: ClassVar[tuple[str, ...]] = ()
    checkpoint: ClassVar[str] = "policy"
    packages: ClassVar[tuple[str, ...]] = ()
    fixed: ClassVar[frozenset[str]] = frozenset({"settings"})
    reserved: ClassVar[Mapping[str, str]] = {}
    not_restored: ClassVar[str] = ""
    trusts_checkpoints: ClassVar[bool] = False
    ends_at_once: ClassVar[bool] = False

    def __init__(self, plan: RunPlan) -> None:
        names_algorithms = len(self.algorithms) > 0  # other engines have one without a name
        if names_algorithms and plan.algorithm not in self.algorithms:
            raise SavedPolicyError(
                f"{plan.folder}: the run's engine does not have its algorithm,"
                f" {shown(plan.algorithm)}."
            )
        self.plan = plan

    @classmethod
    def check(cls, plan: RunPlan) -> None:
        """Raise an error if a plan is invalid, without building anything; called before training
        several seeds.
        """

    @property
    def steps(self) -> int:
        """Number of environment steps so far."""
        raise NotImplementedError

    @property
    def columns(self) -> Mapping[str, str]:
        """The losses and other figures that `rlcatalog train` shows of each row, besides steps,
        return and length: title → name in the row, where `"a/b"` is `row["a"]["b"]`.
        """
        return {}

    def describe(self) -> Mapping[str, Any]:
        """Return the content of `config.json`: `algorithm`, with its `name` and `seed`, and
        `describe_policy`.
        """
        raise NotImplementedError

    def prepare_folder(self, folder: Path) -> None:
        """Prepare the folder before the run writes to it; for example, remove files from an earlier
        run.
        """

    def learn(self, session: Session) -> None:
        """Train until `session.options.steps` is reached or `session.stopping` is set.

        Call `session.begin` once, and `session.advance` within long iterations, so that the
        command shows what is trained and how far it is. Report each row of metrics with
        `session.report`, and write checkpoints with `session.save_checkpoint`, including one at the
        end.

        Args:
            session: The run in progress.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close environments and processes."""


def describe_policy(policy: Policy) -> dict[str, Any]:
    """Return the entry for a policy in `config.json`."""
    parts = {slot: part.name for slot, part in policy.resolution.parts_by_slot().items()}
    return {"framework": policy.framework, "model": plain(policy.config), "parts": parts}


def new_plan(
    engine_class: type[Engine], engine: str, env_id: str, typed: Mapping[str, Any]
) -> RunPlan:
    """Return the plan of a new run; by default, it has ten checkpoints.

    Args:
        engine_class: The engine's class.
        engine: The engine's name.
        env_id: The environment.
        typed: Options that were passed explicitly, by name.

    Raises:
        ConfigError: A value is invalid.
        UnknownNameError: The engine has no such algorithm.
    """
    # An engine may have a single algorithm without a name, which is called like the engine.
    default_algorithm = next(iter(engine_class.algorithms), engine)
    algorithm = typed.get("algo", default_algorithm)
    if algorithm not in engine_class.algorithms and "algo" in typed:
        hint = nearest(algorithm, engine_class.algorithms)
        if not hint:
            hint = nearest(algorithm.upper(), engine_class.algorithms)
        listing = ", ".join(engine_class.algorithms) or "none"
        raise UnknownNameError(
            f"--algo: unknown algorithm {shown(algorithm)}.{hint} Engine {engine} has: {listing}."
        )
    options = _options(engine_class, {"engine": engine}, typed)
    if "checkpoint_every" not in typed:
        a_tenth = max(options.steps // 10, 1)
        options = msgspec.structs.replace(options, checkpoint_every=a_tenth)
    return RunPlan(
        env_id,
        options,
        algorithm,
        seed=typed.get("seed", 0),
        model=typed.get("model", {}),
        settings=typed.get("settings", {}),
        typed=frozenset(typed),
    )


def resumed_plan(
    engine_class: type[Engine],
    directory: Path,
    config: dict[str, Any],
    typed: Mapping[str, Any],
    imported: Collection[str],
) -> RunPlan:
    """Return the plan of a resumed run. This does not load or change anything.

    The engine later opens files in this folder by name, so links and pipes are rejected here.

    Args:
        engine_class: The class of the engine that `engine_of` names.
        directory: The run's folder, or the folder of one of its checkpoints.
        config: The run's `config.json`, as returned by `read_config`.
        typed: Options that override the run's options.
        imported: Modules passed with `--import`; see `read_config`.

    Raises:
        RunFolderError: Another process is writing to the run's folder.
        SavedPolicyError: The run's config lacks the options, the run has no checkpoint, or the
            folder contains a link.
        ConfigError: All steps are done, or a value is invalid.
    """
    folder = run_of(directory)
    FolderLock(folder).check()
    check_files(folder, skip=[WANDB])  # raises an error for links; wandb's own folder has some
    options_before = config["run"]
    try:
        msgspec.convert(options_before, engine_class.options)
    except msgspec.ValidationError as error:
        raise SavedPolicyError(
            f"{folder}: its config.json does not contain the run's options ({error})."
        ) from error
    options = _options(engine_class, options_before, typed)
    checkpoint = newest_checkpoint(directory)
    steps = checkpoint_steps(checkpoint.resolve())
    if steps is None or not (checkpoint / engine_class.checkpoint).exists():
        raise SavedPolicyError(
            f"{directory}: contains no checkpoint to resume from (no {engine_class.checkpoint})."
        )
    record = read_record(folder)
    _check_steps_left(
        directory,
        done=steps,
        wanted=options.steps,
        wanted_before=int(options_before["steps"]),
        has_finished=record is None or record["status"] == FINISHED,
    )
    env_id = config["env"]  # without the module that registers it
    module = config.get("env_module")
    if module in imported:
        env_id = f"{module}:{env_id}"
    algorithm = config["algorithm"]
    algorithm_name = algorithm.get("name")
    if not algorithm_name:
        algorithm_name = next(iter(engine_class.algorithms), options.engine)
    return RunPlan(
        env_id,
        options,
        algorithm=algorithm_name,
        # Engines write the seed to either of these places.
        seed=algorithm.get("seed") or config.get("seed") or 0,
        settings=typed.get("settings", {}),
        typed=frozenset(typed),
        folder=folder,
        checkpoint=checkpoint,
        steps=steps,
        config=config,
    )


def _check_steps_left(
    directory: Path, *, done: int, wanted: int, wanted_before: int, has_finished: bool
) -> None:
    """Raise an error if a resumed run has nothing to do.

    Args:
        directory: The folder that the user passed.
        done: Number of steps at the checkpoint.
        wanted: Number of steps to train for in total.
        wanted_before: The same, as the run was begun.
        has_finished: Whether the run has ended as planned.
    """
    # A run that was killed after its last step has no steps left, but must still finish.
    must_still_finish = not has_finished and wanted >= wanted_before
    if wanted > done or must_still_finish:
        return
    # For the message: the number that the run was begun with, or else twice as many as now.
    more_steps = max(done * 2, 1)
    if wanted_before > done:
        more_steps = wanted_before
    raise ConfigError(
        f"--resume {directory}: its {done:,} steps are done; pass --steps {more_steps} to train"
        " further."
    )


def engine_of(folder: Path, config: Mapping[str, Any]) -> str:
    """Return the name of the engine that a run was trained with.

    Args:
        folder: The run's folder.
        config: The run's `config.json`.

    Raises:
        SavedPolicyError: The config does not name the engine.
    """
    run = config.get("run")
    if not isinstance(run, dict) or not isinstance(run.get("engine"), str):
        raise SavedPolicyError(
            f"{folder}: its config.json does not name its engine, so it cannot be resumed."
        )
    return str(run["engine"])


def _options(
    engine_class: type[Engine], options_before: Mapping[str, Any], typed: Mapping[str, Any]
) -> Any:
    """Return an engine's options; for options that the command does not know, command-line values
    are text.

    Args:
        engine_class: The engine's class.
        options_before: The options of the run so far, or the engine's name alone.
        typed: Options that the user typed.
    """
    options = dict(options_before)
    for name, value in typed.items():
        if name in engine_class.options.__struct_fields__:
            options[name] = value
    try:
        return msgspec.convert(options, engine_class.options, strict=False)
    except msgspec.ValidationError as error:
        # msgspec's message is, for example, "Expected `int` >= 1 - at `$.keep_checkpoints`".
        text, _, rest = str(error).partition(" - at `$.")
        name = rest.rstrip("`").replace("_", "-")
        raise ConfigError(f"--{name}: {text}.") from error
