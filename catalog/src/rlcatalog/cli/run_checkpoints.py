"""Checkpoints of a run, whoever trains: folders named after their steps, each of which is there whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rlcatalog.errors import SavedPolicyError
from rlcatalog.policy import TEMPORARY, sync_folder

#: Folder of the checkpoints in a run's.
CHECKPOINTS = "checkpoints"

_STEP = re.compile(r"step-(\d{9,})")


def checkpoint_name(steps: int) -> str:
    """Return the name of the checkpoint after some environment steps; names are in the order of steps."""
    return f"step-{steps:09d}"


def checkpoint_steps(path: Path) -> int | None:
    """Return after how many environment steps a checkpoint was written, or None where its name is none."""
    found = _STEP.fullmatch(path.name)
    return None if found is None else int(found[1])


def checkpoints_of(directory: Path) -> list[Path]:
    """Return the checkpoints of a run, by step."""
    folder = directory / CHECKPOINTS
    found = [path for path in folder.iterdir() if checkpoint_steps(path) is not None] if folder.is_dir() else []
    return sorted(found, key=lambda path: checkpoint_steps(path) or 0)


def newest_checkpoint(directory: Path) -> Path:
    """Return the last checkpoint of a run, or the folder itself where it is one."""
    found = checkpoints_of(directory)
    return found[-1] if found else directory


def run_of(directory: Path) -> Path:
    """Return the folder of the run that a checkpoint belongs to; the folder itself where it is a run's."""
    inside = checkpoint_steps(directory.resolve()) is not None
    return directory.resolve().parent.parent if inside else directory


@contextmanager
def new_checkpoint(folder: Path) -> Iterator[Path]:
    """Write a checkpoint into the folder that is yielded; it gets its name when all is on the disk.

    Args:
        folder: The checkpoint's folder; a former one of this name is replaced.

    Raises:
        SavedPolicyError: The files cannot be written; other checkpoints are as they were.
    """
    temporary = _beside(folder)
    try:
        temporary.mkdir(parents=True)
        try:
            yield temporary
            _sync(temporary)
            _discard(folder)
            temporary.rename(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_folder(folder.parent)
    except OSError as error:
        raise SavedPolicyError(f"{folder}: cannot be written: {error}. Other checkpoints are as they were.") from error


def prune_checkpoints(directory: Path, keep: int, last: int | None = None) -> None:
    """Remove all checkpoints of a run but the last ones, and what writers that are gone have left unfinished.

    Args:
        directory: The run's folder, which the caller holds.
        keep: How many stay.
        last: The step after which none stays; all may when missing.
    """
    found = checkpoints_of(directory)
    later = [path for path in found if last is not None and (checkpoint_steps(path) or 0) > last]
    rest = [path for path in found if path not in later]
    for path in later + rest[: max(len(rest) - keep, 0)]:
        with suppress(OSError):
            _discard(path)
    with suppress(OSError):
        for path in (directory / CHECKPOINTS).iterdir():
            if path.name.startswith(".step-") and path.name.endswith(TEMPORARY):
                shutil.rmtree(path, ignore_errors=True)


def _beside(folder: Path) -> Path:
    return folder.parent / f".{folder.name}-{secrets.token_hex(8)}{TEMPORARY}"


def _discard(folder: Path) -> None:
    """Remove a checkpoint. It loses its name first: one that is half removed is none."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder.rename(_beside(folder)), ignore_errors=True)


def _sync(folder: Path) -> None:
    """Write all files of a folder to the disk, where the system can."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with (Path(parent) / name).open("rb+") as file, suppress(OSError):
                os.fsync(file.fileno())
        sync_folder(Path(parent))
