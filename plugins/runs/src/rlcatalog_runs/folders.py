"""Folders for training runs with any engine: each contains one run, and only one process writes to
it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from rlcatalog import Catalog, default_catalog
from rlcatalog.catalog import is_adapter_id
from rlcatalog.errors import (
    RunFolderError,
    SavedPolicyError,
    output_errors,
    shown,
)
from rlcatalog_policy import Manifest, forget, read_json, write_file
from rlcatalog_runs.checkpoints import CHECKPOINTS, checkpoints_of, prune_checkpoints
from rlcatalog_runs.locks import FolderLock
from rlcatalog_runs.records import RECORD

# Files and folders in a run's folder.
CONFIG = "config.json"
METRICS = "metrics.jsonl"
CURVE = "learning_curve.png"
POLICY = "policy"
BEST = "best"  # the policy of the best evaluation

#: Default folder for runs.
RUNS = Path("runs")

#: A folder with one of these contains a run; the last two are Stable-Baselines3's.
_SIGNS_OF_A_RUN = (CONFIG, RECORD, METRICS, CURVE, POLICY, "progress.csv", "algorithm.zip")
#: Further files and folders of a run.
_FURTHER_FILES = (BEST, "wandb-id", "learning_curves.png")

#: The folder that Weights & Biases writes to, which contains links.
WANDB = "wandb"

#: Other folders that a run may create, and the files in them that belong to the run.
_FOLDERS_OF_LOGS = {
    "tensorboard": re.compile(r"events\.out\.tfevents\..*"),
    WANDB: re.compile(r"(offline-)?run-.*|latest-run|debug.*\.log|settings"),
}

#: Text that makes other libraries import a module: `module:name`, in Gymnasium ids and import
#: paths.
_IMPORT_PATH = re.compile(r"\s*([^\W\d][\w.]*)\s*:(?!//).+", re.DOTALL)


def default_folder(
    env_id: str, algorithm: str | None = None, seed: int | Sequence[int] = 0
) -> Path:
    """Create a new folder for a run and return it: `runs/CartPole-v1/2026-11-23T04-15-07-seed0`, in
    UTC.

    Names sort by time. A second run that starts in the same second gets a different name.

    Args:
        env_id: The environment, as passed on the command line.
        algorithm: The algorithm, if the command has several; its name precedes the seed.
        seed: The seed, or the seeds of several runs in one folder.
    """
    # ALE/Pong-v5 and module:Id contain characters that a folder's name should not.
    env_name = re.sub(r"[^\w.-]", "_", env_id).strip(".") or "_"
    parent = RUNS / env_name
    with output_errors(parent):
        parent.mkdir(parents=True, exist_ok=True)
    parts = [datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")]
    if algorithm:
        parts.append(algorithm)
    if isinstance(seed, int):
        parts.append(f"seed{seed}")
    else:
        parts.append(f"{len(seed)}seeds")
    name = "-".join(parts)
    folder = parent / name
    number = 1
    while True:
        with output_errors(folder):
            try:
                folder.mkdir()
            except FileExistsError:  # another run has started in the same second
                number += 1
            else:
                return folder
        folder = parent / f"{name}-{number}"


def refuse_taken(folder: Path, overwrite: bool) -> None:
    """Raise an error, without changing anything, if a new run cannot use a folder.

    Args:
        folder: The folder.
        overwrite: Whether the new run may replace a run in the folder.

    Raises:
        RunFolderError: Another process is writing to the folder, or the folder contains a run and
            `overwrite` is not set.
    """
    FolderLock(folder).check()
    _refuse_run(folder, overwrite)


def _refuse_run(folder: Path, overwrite: bool) -> None:
    """Raise an error if a folder contains a run that must not be replaced."""
    names = _signs_of_a_run(folder)
    if checkpoints_of(folder):
        names.append(CHECKPOINTS)
    if names and not overwrite:
        raise RunFolderError(
            f"{folder}: already contains a run ({', '.join(names)}). Pass another folder with"
            " --out, or --overwrite to replace it."
        )


def _signs_of_a_run(folder: Path) -> list[str]:
    """Return the names of a run's files in a folder; a link counts, even a broken one."""
    return [name for name in _SIGNS_OF_A_RUN if os.path.lexists(folder / name)]


@contextmanager
def run_folder(folder: Path, overwrite: bool = False, *, resume: bool = False) -> Iterator[None]:
    """Create a folder for a run and lock it until the block or the process ends.

    Args:
        folder: The folder.
        overwrite: Whether to remove the run in the folder.
        resume: Whether to resume the run in the folder; nothing is removed.

    Raises:
        RunFolderError: The folder contains a run, or another process is writing to it.
        SavedPolicyError: There is no run to resume.
    """
    if resume:
        if not _signs_of_a_run(folder):
            raise SavedPolicyError(f"{folder}: contains no run to resume.")
    else:
        with output_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder)
    with output_errors(folder):
        lock.acquire()
    try:
        if not resume:
            _refuse_run(folder, overwrite)
            _clear(folder)
        yield
    finally:
        lock.release()
        with suppress(OSError):
            folder.rmdir()  # if nothing was written


def _clear(folder: Path) -> None:
    """Remove only the files that belong to the run. A link is removed, but its target is not."""
    for name in (*_SIGNS_OF_A_RUN, *_FURTHER_FILES):
        # Of a folder with a policy, `forget` removes only the files of the saved policy.
        _remove(folder / name, remove_folder=forget)
    for name in (CHECKPOINTS, *_FOLDERS_OF_LOGS):
        path = folder / name
        if path.is_symlink():
            path.unlink()
    prune_checkpoints(folder, keep=0)  # remove all
    with suppress(OSError):
        (folder / CHECKPOINTS).rmdir()  # if nothing else is in it
    for name, pattern_of_names in _FOLDERS_OF_LOGS.items():
        log_folder = folder / name
        if not log_folder.is_dir():
            continue
        for path in log_folder.iterdir():
            if pattern_of_names.fullmatch(path.name):
                _remove(path)
        with suppress(OSError):
            log_folder.rmdir()  # if nothing else is in it


def _remove(path: Path, remove_folder: Callable[[Path], None] = shutil.rmtree) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_folder(path)
    else:
        path.unlink(missing_ok=True)


def write_config(folder: Path, env_id: str, config: Mapping[str, Any]) -> None:
    """Write a run's resolved config.

    Args:
        folder: The run's folder.
        env_id: The environment, as passed on the command line. For `module:Id`, the run's
            environment is only the id; the file records the module, but nothing imports it because
            of that. The prefix of an adapter, as in `envpool:Id`, names no module and stays.
        config: The remaining config.
    """
    content = {"env": env_id}
    module, colon, name = env_id.rpartition(":")
    if colon and not is_adapter_id(env_id):
        content = {"env": name, "env_module": module}
    text = json.dumps({**content, **config}, indent=2) + "\n"
    write_file(folder, CONFIG, text.encode())


_Seed = Annotated[int, Meta(ge=0, lt=1 << 32)]


class _Algorithm(msgspec.Struct):
    """Fields that are read from the algorithm's entry in a run's config."""

    name: str | None = None
    seed: _Seed | None = None
    num_envs: Annotated[int, Meta(ge=1)] = 1
    env_config: dict[str, Any] = {}


class _Config(msgspec.Struct):
    """Fields that are read from a run's config."""

    env: str
    algorithm: _Algorithm
    env_module: str | None = None
    model: dict[str, Any] = {}
    seed: _Seed | None = None


def read_config(folder: Path, imported: Iterable[str] = ()) -> dict[str, Any]:
    """Read a run's config without importing the modules that it names.

    Args:
        folder: The folder.
        imported: Modules passed with `--import`; environment names may contain them.

    Raises:
        SavedPolicyError: The folder contains no run, or its config is damaged or contains import
            paths.
    """
    from gymnasium import registry

    path = folder / CONFIG
    imported = set(imported)
    try:
        config: dict[str, Any] = read_json(path)
        fields = msgspec.convert(config, _Config)  # checks the fields that are read here
    except (OSError, ValueError) as error:
        raise SavedPolicyError(
            f"{folder}: not a folder that `rlcatalog train` wrote: {path.name}: {error}"
        ) from error
    config["algorithm"].setdefault("env_config", {})
    refuse_imports(path, fields.algorithm.env_config, imported)
    env_id = fields.env
    if not is_adapter_id(env_id):
        refuse_imports(path, env_id, imported)
        env_id = env_id.rpartition(":")[2]
    config["env"] = env_id
    module = fields.env_module
    if module is not None and module not in imported and env_id not in registry:
        raise SavedPolicyError(
            f"{path}: its environment {env_id!r} was registered by the module {module!r}, which is"
            " not imported because a file names it. If you trust that module, pass"
            f" --import {module}."
        )
    return config


def env_of(folder: Path, imported: Iterable[str] | None = None) -> tuple[str, dict[str, Any]]:
    """Return a run's environment and the environment's config; see `read_config`.

    Raises:
        SavedPolicyError: The folder is a policy that was saved without its run; or see
            `read_config`.
    """
    if policy_of(folder) == folder:
        raise SavedPolicyError(
            f"{folder}: the policy was saved without its run, so its environment is unknown. Pass"
            " the run's folder, or --env ID."
        )
    config = read_config(folder, imported or ())
    return config["env"], config["algorithm"]["env_config"]


def refuse_imports(
    path: Path, value: Any, imported: Iterable[str] = (), advice: str | None = None
) -> None:
    """Raise an error if a value from a file contains an import path, `module:name`.

    Args:
        path: The file.
        value: The value, as parsed JSON.
        imported: Modules passed with `--import`, which are allowed.
        advice: What to do if the user trusts the module. If None, `--import`.

    Raises:
        SavedPolicyError: The value contains an import path, or is nested too deeply to search.
    """
    try:
        paths = _import_paths(value)
    except RecursionError as error:
        raise SavedPolicyError(f"{path}: its tables are nested too deeply.") from error
    for import_path in paths:
        if import_path.module not in imported:
            what_to_do = advice or f"pass --import {import_path.module}"
            raise SavedPolicyError(
                f"{path}: names the import path {shown(import_path.text)}, and rlcatalog does not"
                f" import modules named in a file. If you trust that module, {what_to_do}."
            )


class _ImportPath(NamedTuple):
    """A text `module:name`, and the module that other libraries would import because of it."""

    text: str
    module: str


def _import_paths(value: Any) -> list[_ImportPath]:
    """Return the import paths in a value from JSON."""
    if isinstance(value, dict):
        return _import_paths([*value.keys(), *value.values()])
    if isinstance(value, list):
        paths = []
        for item in value:
            paths += _import_paths(item)
        return paths
    if isinstance(value, str):
        match = _IMPORT_PATH.fullmatch(value)
        if match is not None:
            return [_ImportPath(value, module=match[1])]
    return []


def policy_of(directory: Path) -> Path:
    """Return the policy's folder within a run's folder, or the folder itself if it is a saved
    policy.

    Raises:
        SavedPolicyError: The policy's folder is a link.
    """
    policy = directory / POLICY
    if policy.is_symlink():
        raise SavedPolicyError(f"{policy}: a link, which is not followed.")
    return policy if policy.is_dir() else directory


def unwritten_spaces(
    manifest: Manifest, env: Any, catalog: Catalog | None = None
) -> dict[str, Any]:
    """Return the environment's spaces that are not stored in a saved policy, by name.

    Args:
        manifest: The policy's manifest.
        env: The environment, in any form that `rlcatalog.catalog.make_env` accepts.
        catalog: The catalog that provides the wrappers. If None, the process's.
    """
    if manifest.observation_space is not None and manifest.action_space is not None:
        return {}
    if catalog is None:
        catalog = default_catalog()
    env_properties = catalog.read_env(env, manifest.config)
    spaces = {}
    if manifest.observation_space is None:
        spaces["observation_space"] = env_properties.observation_space
    if manifest.action_space is None:
        spaces["action_space"] = env_properties.action_space
    return spaces
