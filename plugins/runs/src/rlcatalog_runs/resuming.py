"""Runs, kept and gone on with: what a run was begun with, and whose it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from rlcatalog.errors import ConfigError, SavedPolicyError, shown
from rlcatalog_policy import check_files
from rlcatalog_runs.checkpoints import checkpoint_steps, newest_checkpoint, run_of
from rlcatalog_runs.folders import WANDB, read_config
from rlcatalog_runs.records import FINISHED, read_record

#: The most environment steps that are counted.
MOST = (1 << 53) - 1


class KeptRun(msgspec.Struct, kw_only=True, frozen=True):
    """How a run is kept, under `run` in its `config.json`. A command adds what else it needs to go on.

    Attributes:
        command: The command that trains it, such as `train-sb3`.
        steps: Environment steps to train for.
        checkpoint_every: Environment steps between two checkpoints; 0: at the end alone.
        keep_checkpoints: How many of them stay.
    """

    command: str
    steps: Annotated[int, msgspec.Meta(ge=1, le=MOST)] = 100_000
    checkpoint_every: Annotated[int, msgspec.Meta(ge=0, le=MOST)] = 0
    keep_checkpoints: Annotated[int, msgspec.Meta(ge=1)] = 2


Kept = TypeVar("Kept", bound=KeptRun)


class _Begun(msgspec.Struct):
    """What commands read of the algorithm of a run that goes on."""

    name: str = "PPO"
    seed: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] | None = 0
    num_envs: Annotated[int, msgspec.Meta(ge=1)] = 1


class _Written(msgspec.Struct):
    """What commands read of its `config.json`."""

    algorithm: _Begun
    model: dict[str, Any] = {}
    seed: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] | None = 0


@dataclass(frozen=True)
class Resumed(Generic[Kept]):
    """A run to go on with.

    Attributes:
        folder: Its folder.
        checkpoint: The folder of the checkpoint it goes on from.
        steps: The environment steps that were taken until then.
        env_id: Its environment; with the module that registers it where the user has asked to import that.
        config: Its `config.json`.
        kept: How it was kept, with what was given now in its place.
    """

    folder: Path
    checkpoint: Path
    steps: int
    env_id: str
    config: dict[str, Any]
    kept: Kept


def new_run(kind: type[Kept], given: Mapping[str, Any]) -> Kept:
    """Return how a new run is kept: ten checkpoints, unless another number is given.

    Args:
        kind: `KeptRun`, or a command's own.
        given: Its fields; what is None was not given.
    """
    kept = kind(**{name: value for name, value in given.items() if value is not None})
    if given.get("checkpoint_every") is not None:
        return kept
    return msgspec.structs.replace(kept, checkpoint_every=max(kept.steps // 10, 1))


def refuse_fixed(directory: Path, given: Mapping[str, Any]) -> None:
    """Raise where something is given beside `--resume` that the run has fixed.

    Args:
        directory: What `--resume` names.
        given: The options by name; what is None was not given.

    Raises:
        ConfigError: One is given.
    """
    for name, value in given.items():
        if value is not None:
            raise ConfigError(f"--resume {directory}: goes on with the run that is there; {name} is its own.")


def resumed_run(
    kind: type[Kept], command: str, directory: Path, given: Mapping[str, Any], imported: Iterable[str], holds: str
) -> Resumed[Kept]:
    """Return what a run goes on from. Nothing is loaded, and nothing is changed.

    The engine opens files of this folder by name from here on, so links and pipes in it are refused.

    Args:
        kind: `KeptRun`, or the command's own.
        command: The command that goes on with it.
        directory: The run's folder, or a checkpoint of it.
        given: Fields of `kind` that take the place of the run's own; what is None was not given.
        imported: Modules that the user has asked to import; see `read_config`.
        holds: What lies in each checkpoint of the command.

    Raises:
        SavedPolicyError: There is no run, it is another command's, it has no checkpoint, or its folder holds a link.
        ConfigError: Its steps are done.
    """
    folder, imported = run_of(directory), set(imported)
    config = read_config(folder, imported)
    refuse_other(folder, config, command)
    check_files(folder, skip=[WANDB])  # it is written into from here on
    try:
        given = {name: value for name, value in given.items() if value is not None}
        kept = msgspec.convert({**config["run"], **given}, kind)
        msgspec.convert(config, _Written)
    except msgspec.ValidationError as error:
        raise SavedPolicyError(f"{folder}: its config.json does not say how it was run ({error}).") from error
    checkpoint = newest_checkpoint(directory)
    steps = checkpoint_steps(checkpoint.resolve())
    if steps is None or not (checkpoint / holds).exists():
        raise SavedPolicyError(f"{directory}: holds no checkpoint to go on from (no {holds}).")
    # One that was killed after its last step has none left to take, but its end to write.
    if steps >= kept.steps and _is_finished(folder):
        raise ConfigError(
            f"--resume {directory}: its {steps} steps are done; --steps {max(steps * 2, 1)} would train on."
        )
    module = config.get("env_module")
    env_id = f"{module}:{config['env']}" if isinstance(module, str) and module in imported else config["env"]
    return Resumed(folder, checkpoint, steps, env_id, config, kept)


def _is_finished(folder: Path) -> bool:
    record = read_record(folder)
    return record is None or record["status"] == FINISHED


def refuse_other(folder: Path, config: Mapping[str, Any], command: str) -> None:
    """Raise where a run was trained by another command.

    Args:
        folder: Its folder.
        config: Its `config.json`.
        command: The command that would go on with it.

    Raises:
        SavedPolicyError: It was.
    """
    run = config.get("run")
    if not isinstance(run, dict):
        raise SavedPolicyError(
            f"{folder}: its config.json does not say how it was run, as those of earlier versions. It cannot go on."
        )
    theirs = run.get("command", "train")
    if theirs != command:
        raise SavedPolicyError(
            f"{folder}: a run of {shown(theirs)}, not of '{command}'. Go on with it by the command that trained it."
        )
