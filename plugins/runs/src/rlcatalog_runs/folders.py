"""A training run's folder, for any engine: it holds one run, and one process writes it."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rlcatalog import Catalog, default_catalog
from rlcatalog.errors import RunFolderError, SavedPolicyError, UnknownNameError, shown
from rlcatalog.internals import look_here
from rlcatalog_policy import Manifest, forget, locked, read_json, write_file
from rlcatalog_runs.checkpoints import CHECKPOINTS, checkpoints_of, prune_checkpoints
from rlcatalog_runs.records import RECORD

CONFIG, METRICS, CURVE, POLICY, BEST = "config.json", "metrics.jsonl", "learning_curve.png", "policy", "best"

#: Where runs go that nobody gave a folder.
RUNS = Path("runs")

#: A folder with one of these holds a run; the last two are Stable-Baselines3's.
_RUN = (CONFIG, RECORD, METRICS, CURVE, POLICY, "progress.csv", "algorithm.zip")
_ALSO = (BEST, "wandb-id", "learning_curves.png")

#: The folder that Weights & Biases writes into, which has links in it.
WANDB = "wandb"

#: Folders that a run may leave besides, and what of them is a run's.
_BESIDE = {
    "tensorboard": re.compile(r"events\.out\.tfevents\..*"),
    WANDB: re.compile(r"(offline-)?run-.*|latest-run|debug.*\.log|settings"),
}

#: What makes others import a module: `module:name`, as Gymnasium's ids and import paths are written.
_IMPORT_PATH = re.compile(r"\s*([^\W\d][\w.]*)\s*:(?!//).+", re.DOTALL)


def default_folder(env_id: str, algorithm: str | None = None, seed: int | Sequence[int] = 0) -> Path:
    """Make a new folder for a run and return it: `runs/CartPole-v1/2026-11-23T04-15-07-seed0`, in UTC.

    Names sort by time. A folder belongs to the run that makes it: a second run in the same second gets another name.

    Args:
        env_id: The environment as it was typed.
        algorithm: The algorithm, if the command has several; it comes before the seed.
        seed: The seed; of several runs in one folder, their seeds.
    """
    parent = RUNS / (re.sub(r"[^\w.-]", "_", env_id).strip(".") or "_")
    parent.mkdir(parents=True, exist_ok=True)
    seeds = f"seed{seed}" if isinstance(seed, int) else f"{len(seed)}seeds"
    begun = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    name = "-".join([begun, *([algorithm] if algorithm else []), seeds])
    folder, number = parent / name, 1
    while True:
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
        number += 1
        folder = parent / f"{name}-{number}"


def refuse_taken(folder: Path, overwrite: bool) -> None:
    """Raise if a folder holds a run and `overwrite` is not set; nothing is made or changed.

    Raises:
        RunFolderError: It does.
    """
    taken = [name for name in _RUN if os.path.lexists(folder / name)]
    taken += [CHECKPOINTS] if checkpoints_of(folder) else []
    if taken and not overwrite:
        raise RunFolderError(
            f"{folder}: already contains a run ({', '.join(taken)}). Give another folder with --out, or --overwrite to"
            " replace it."
        )


@contextmanager
def run_folder(folder: Path, overwrite: bool = False, *, resume: bool = False) -> Iterator[None]:
    """Make a folder for a run and lock it; the lock ends with the block, or with the process.

    Args:
        folder: The folder.
        overwrite: Remove the run that it holds.
        resume: Resume the run that it contains: nothing is removed.

    Raises:
        RunFolderError: It holds a run, or another one is being written into it.
        SavedPolicyError: There is no run to resume.
    """
    if resume:
        if not any(os.path.lexists(folder / name) for name in _RUN):
            raise SavedPolicyError(f"{folder}: contains no run to resume.")
    else:
        folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder, wait=False))
        except BlockingIOError as error:
            raise RunFolderError(
                f"{folder}: another run is writing into it. Give another folder with --out."
            ) from error
        try:
            if not resume:
                refuse_taken(folder, overwrite)
                _clear(folder)
            yield
        finally:
            with suppress(OSError):
                folder.rmdir()  # where nothing was written


def _clear(folder: Path) -> None:
    """Remove a run's files, and no others. What is a link is removed itself, not what it points at."""
    for name in (*_RUN, *_ALSO):
        _remove(folder / name, forget)
    for name in (CHECKPOINTS, *_BESIDE):
        if (folder / name).is_symlink():
            (folder / name).unlink()
    prune_checkpoints(folder, 0)
    with suppress(OSError):
        (folder / CHECKPOINTS).rmdir()  # where nothing else is in it
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
    """Write the resolved config of a run.

    Args:
        folder: Its folder.
        env_id: The environment as the user typed it. For `module:Id`, only the id is the run's environment; the file
            notes the module, but nothing imports it because of that.
        config: The rest.
    """
    module, colon, name = env_id.rpartition(":")
    about = {"env": name, **({"env_module": module} if colon else {}), **config}
    write_file(folder, CONFIG, (json.dumps(about, indent=2) + "\n").encode())


_Seed = Annotated[int, Meta(ge=0, lt=1 << 32)]


class _Algorithm(msgspec.Struct):
    """What is read of the algorithm in a run's config."""

    name: str | None = None
    seed: _Seed | None = None
    num_envs: Annotated[int, Meta(ge=1)] = 1
    env_config: dict[str, Any] = {}


class _Config(msgspec.Struct):
    """What is read of a run's config."""

    env: str
    algorithm: _Algorithm
    env_module: str | None = None
    model: dict[str, Any] = {}
    seed: _Seed | None = None


def read_config(folder: Path, imported: Iterable[str] = ()) -> dict[str, Any]:
    """Read the config of a run, without importing what it names.

    Args:
        folder: The folder.
        imported: Modules that the user has asked to import, whose environments may be named with them.

    Raises:
        SavedPolicyError: The folder holds no run, its config is damaged, or it names something to import.
    """
    from gymnasium import registry

    path, imported = folder / CONFIG, set(imported)
    try:
        config: dict[str, Any] = read_json(path)
        written = msgspec.convert(config, _Config)
    except (OSError, ValueError) as error:
        raise SavedPolicyError(f"{folder}: not a folder that `rlcatalog train` wrote: {path.name}: {error}") from error
    config["algorithm"].setdefault("env_config", {})
    refuse_imports(path, [written.algorithm.env_config, written.env], imported)
    config["env"], source = written.env.rpartition(":")[2], written.env_module
    if source is not None and source not in imported and config["env"] not in registry:
        raise SavedPolicyError(
            f"{path}: its environment {config['env']!r} was registered by the module {source!r}, which is not imported"
            f" because a file names it. If you trust that module, type --import {source}."
        )
    return config


def import_modules(names: Iterable[str], env_id: str | None = None) -> str | None:
    """Import modules that the user named, which register environments.

    Args:
        names: The modules.
        env_id: An environment, or None.

    Returns:
        The environment, as `module:Id` if one of the modules has registered it now.

    Raises:
        UnknownNameError: A module cannot be imported.
    """
    from gymnasium import registry

    for name in names:
        look_here(name)
        unknown = env_id not in registry
        try:
            importlib.import_module(name)
        except (ImportError, ValueError, TypeError) as error:
            raise UnknownNameError(f"--import {name}: {type(error).__name__}: {error}") from error
        if unknown and env_id in registry:
            env_id = f"{name}:{env_id}"
    return env_id


def refuse_imports(path: Path, value: Any, imported: Iterable[str] = (), advice: str | None = None) -> None:
    """Raise if a value that a file holds names something to import, as `module:name`.

    Args:
        path: The file.
        value: The value, as JSON holds it.
        imported: Modules that the user has asked to import, which may be named.
        advice: What to do where the module is trusted; `--import` when missing.

    Raises:
        SavedPolicyError: It does; or it is too deep to be looked through.
    """
    try:
        paths = _import_paths(value)
    except RecursionError as error:
        raise SavedPolicyError(f"{path}: its tables are too deep.") from error
    for text, module in paths:
        if module not in imported:
            raise SavedPolicyError(
                f"{path}: names the import path {shown(text)}, and nothing is imported because a file names it. If you"
                f" trust that module, {advice or f'type --import {module}'}."
            )


def _import_paths(value: Any) -> list[tuple[str, str]]:
    """Return the import paths in a value, each with its module."""
    if isinstance(value, dict):
        return _import_paths([*value.keys(), *value.values()])
    if isinstance(value, list):
        return [found for item in value for found in _import_paths(item)]
    found = _IMPORT_PATH.fullmatch(value) if isinstance(value, str) else None
    return [] if found is None else [(value, found[1])]


def policy_of(directory: Path) -> Path:
    """Return the folder of the policy in a run's folder, or the folder itself if it is a saved policy.

    Raises:
        SavedPolicyError: The run's folder of the policy is a link.
    """
    policy = directory / POLICY
    if policy.is_symlink():
        raise SavedPolicyError(f"{policy}: a link, which is not followed.")
    return policy if policy.is_dir() else directory


def unwritten_spaces(manifest: Manifest, env: Any, catalog: Catalog | None = None) -> dict[str, Any]:
    """Return the environment's spaces that a saved policy could not store, by name.

    Args:
        manifest: What the policy says about itself.
        env: The environment, or what makes one (see `rlcatalog.catalog.make_env`).
        catalog: The catalog whose wrappers are applied; the process's when None.
    """
    names = [name for name in ("observation_space", "action_space") if getattr(manifest, name) is None]
    if not names:
        return {}
    obs_space, action_space, *_ = (catalog or default_catalog()).spaces_of(env, manifest.config)
    spaces = {"observation_space": obs_space, "action_space": action_space}
    return {name: spaces[name] for name in names}
