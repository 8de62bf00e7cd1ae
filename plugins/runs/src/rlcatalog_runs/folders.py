"""Folders for training runs with any engine: each contains one run, and only one process writes to
it.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rlcatalog import Catalog, default_catalog
from rlcatalog.errors import (
    RunFolderError,
    SavedPolicyError,
    UnknownNameError,
    output_errors,
    shown,
)
from rlcatalog.internals import look_here
from rlcatalog_policy import Manifest, forget, read_json, write_file
from rlcatalog_runs.checkpoints import CHECKPOINTS, checkpoints_of, prune_checkpoints
from rlcatalog_runs.locks import FolderLock
from rlcatalog_runs.records import RECORD

CONFIG, METRICS, CURVE, POLICY, BEST = (
    "config.json",
    "metrics.jsonl",
    "learning_curve.png",
    "policy",
    "best",
)

#: Default folder for runs.
RUNS = Path("runs")

#: A folder with one of these contains a run; the last two are Stable-Baselines3's.
_RUN = (CONFIG, RECORD, METRICS, CURVE, POLICY, "progress.csv", "algorithm.zip")
_ALSO = (BEST, "wandb-id", "learning_curves.png")

#: The folder that Weights & Biases writes to, which contains links.
WANDB = "wandb"

#: Other folders that a run may create, and the files in them that belong to the run.
_BESIDE = {
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
    parent = RUNS / (re.sub(r"[^\w.-]", "_", env_id).strip(".") or "_")
    with output_errors(parent):
        parent.mkdir(parents=True, exist_ok=True)
    seeds = f"seed{seed}" if isinstance(seed, int) else f"{len(seed)}seeds"
    begun = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    name = "-".join([begun, *([algorithm] if algorithm else []), seeds])
    folder, number = parent / name, 1
    while True:
        with output_errors(folder), suppress(FileExistsError):
            folder.mkdir()
            return folder
        number += 1
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
    taken = [name for name in _RUN if os.path.lexists(folder / name)]
    taken += [CHECKPOINTS] if checkpoints_of(folder) else []
    if taken and not overwrite:
        raise RunFolderError(
            f"{folder}: already contains a run ({', '.join(taken)}). Pass another folder with"
            " --out, or --overwrite to replace it."
        )


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
        if not any(os.path.lexists(folder / name) for name in _RUN):
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
    for name in (*_RUN, *_ALSO):
        _remove(folder / name, forget)
    for name in (CHECKPOINTS, *_BESIDE):
        if (folder / name).is_symlink():
            (folder / name).unlink()
    prune_checkpoints(folder, 0)
    with suppress(OSError):
        (folder / CHECKPOINTS).rmdir()  # if nothing else is in it
    for name, ours in _BESIDE.items():
        path = folder / name
        if not path.is_dir():
            continue
        for inside in path.iterdir():
            if ours.fullmatch(inside.name):
                _remove(inside)
        with suppress(OSError):
            path.rmdir()


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
            of that.
        config: The remaining config.
    """
    module, colon, name = env_id.rpartition(":")
    about = {"env": name, **({"env_module": module} if colon else {}), **config}
    write_file(folder, CONFIG, (json.dumps(about, indent=2) + "\n").encode())


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

    path, imported = folder / CONFIG, set(imported)
    try:
        config: dict[str, Any] = read_json(path)
        written = msgspec.convert(config, _Config)
    except (OSError, ValueError) as error:
        raise SavedPolicyError(
            f"{folder}: not a folder that `rlcatalog train` wrote: {path.name}: {error}"
        ) from error
    config["algorithm"].setdefault("env_config", {})
    refuse_imports(path, [written.algorithm.env_config, written.env], imported)
    config["env"], source = written.env.rpartition(":")[2], written.env_module
    if source is not None and source not in imported and config["env"] not in registry:
        raise SavedPolicyError(
            f"{path}: its environment {config['env']!r} was registered by the module {source!r},"
            " which is not imported because a file names it. If you trust that module, pass"
            f" --import {source}."
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


def import_modules(names: Iterable[str], env_id: str | None = None) -> str | None:
    """Import the modules, named by the user, that register environments on import or in
    `register_envs()`.

    Args:
        names: The modules.
        env_id: An environment, or None.

    Returns:
        The environment. If one of the modules has just registered the environment, its name
        includes the module.

    Raises:
        UnknownNameError: A module cannot be imported.
    """
    from gymnasium import registry

    for name in names:
        look_here(name)
        unknown = env_id not in registry
        try:
            getattr(importlib.import_module(name), "register_envs", bool)()
        except (ImportError, ValueError, TypeError) as error:
            raise UnknownNameError(f"--import {name}: {type(error).__name__}: {error}") from error
        if unknown and env_id in registry:
            env_id = f"{name}:{env_id}"
    return env_id


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
    for text, module in paths:
        if module not in imported:
            raise SavedPolicyError(
                f"{path}: names the import path {shown(text)}, and rlcatalog does not import"
                " modules named in a file. If you trust that module,"
                f" {advice or f'pass --import {module}'}."
            )


def _import_paths(value: Any) -> list[tuple[str, str]]:
    """Return the import paths found in a value, each with its module."""
    if isinstance(value, dict):
        return _import_paths([*value.keys(), *value.values()])
    if isinstance(value, list):
        return [found for item in value for found in _import_paths(item)]
    found = _IMPORT_PATH.fullmatch(value) if isinstance(value, str) else None
    return [] if found is None else [(value, found[1])]


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
    names = [
        name for name in ("observation_space", "action_space") if getattr(manifest, name) is None
    ]
    if not names:
        return {}
    obs_space, action_space, *_ = (catalog or default_catalog()).spaces_of(env, manifest.config)
    spaces = {"observation_space": obs_space, "action_space": action_space}
    return {name: spaces[name] for name in names}
