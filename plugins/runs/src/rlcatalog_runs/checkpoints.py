"""Run checkpoints for any engine: folders named by steps, each written completely or not at all.

A new checkpoint whose name is already taken is first written under a temporary successor name. If
its writer is killed, either the old checkpoint or its successor is complete; `newest_checkpoint`
finds it, and the next writer cleans up. Links are not followed.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rlcatalog.errors import SavedPolicyError
from rlcatalog_policy import TEMPORARY, lock_folder, sync_folder

#: Folder of the checkpoints in a run's folder.
CHECKPOINTS = "checkpoints"

_STEP = re.compile(r"step-(\d{9,})")
#: Suffix of a successor's name.
_NEXT = ".rlcatalog-next"


def checkpoint_name(steps: int) -> str:
    """Return the name for a checkpoint after a number of environment steps; names sort by this
    number.
    """
    return f"step-{steps:09d}"


def checkpoint_steps(path: Path) -> int | None:
    """Return the number of environment steps in a checkpoint's name, or None for other names."""
    found = _STEP.fullmatch(path.name)
    return None if found is None else int(found[1])


def checkpoints_of(directory: Path) -> list[Path]:
    """Return a run's checkpoints, sorted by step; links are omitted."""
    named = [path for path in _inside(directory) if checkpoint_steps(path) is not None]
    whole = [path for path in named if path.is_dir() and not path.is_symlink()]
    return sorted(whole, key=lambda path: checkpoint_steps(path) or 0)


def newest_checkpoint(directory: Path) -> Path:
    """Return a run's last checkpoint, or the folder itself if it is a checkpoint.

    Raises:
        SavedPolicyError: The run's checkpoint folder is a link.
    """
    if (directory / CHECKPOINTS).is_symlink():
        raise SavedPolicyError(f"{directory / CHECKPOINTS}: a link, which is not followed.")
    if found := checkpoints_of(directory):
        return found[-1]
    successor = _successor(directory)
    return successor if not directory.exists() and successor.is_dir() else directory


def run_of(directory: Path) -> Path:
    """Return the run folder that a checkpoint belongs to, or the folder itself if it is a run
    folder.
    """
    inside = checkpoint_steps(directory.resolve()) is not None
    return directory.resolve().parent.parent if inside else directory


@contextmanager
def new_checkpoint(folder: Path) -> Iterator[Path]:
    """Context manager that yields a folder for a checkpoint, and renames it once all files are on
    disk.

    Args:
        folder: The checkpoint's folder; an existing folder is replaced.

    Raises:
        SavedPolicyError: The files cannot be written; other checkpoints are unchanged.
    """
    temporary = _beside(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _tidy(folder)
        temporary.mkdir()
        try:
            with lock_folder(temporary):  # tells other writers that the folder is in use
                yield temporary
                _sync(temporary)
                _replace(folder, temporary)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    except OSError as error:
        raise SavedPolicyError(
            f"{folder}: cannot be written: {error}. Other checkpoints are unchanged."
        ) from error


def prune_checkpoints(directory: Path, keep: int, last: int | None = None) -> None:
    """Remove all but a run's last checkpoints, and unfinished checkpoints left by dead processes.

    Args:
        directory: The run's folder, which the caller has locked.
        keep: Number of checkpoints to keep.
        last: If not None, checkpoints after this step are also removed.
    """
    found = checkpoints_of(directory)
    later = [path for path in found if last is not None and (checkpoint_steps(path) or 0) > last]
    rest = [path for path in found if path not in later]
    for path in later + rest[: max(len(rest) - keep, 0)]:
        with suppress(OSError):
            _discard(path)
    for path in _inside(directory):
        with suppress(OSError):
            if path.name.startswith(".step-") and path.name.endswith(TEMPORARY):
                shutil.rmtree(path, ignore_errors=True)
            elif checkpoint_steps(path) is not None and path.is_symlink():
                path.unlink()


def _inside(directory: Path) -> list[Path]:
    """Return the contents of a run's checkpoint folder; empty if the folder is a link."""
    folder = directory / CHECKPOINTS
    return list(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []


def _beside(folder: Path) -> Path:
    return folder.parent / f".{folder.name}-{secrets.token_hex(8)}{TEMPORARY}"


def _successor(folder: Path) -> Path:
    return folder.parent / f".{folder.name}{_NEXT}"


def _replace(folder: Path, temporary: Path) -> None:
    """Rename a complete checkpoint to its final name."""
    if os.path.lexists(folder):
        temporary.rename(_successor(folder))
        sync_folder(folder.parent)
        _discard(folder)
        temporary = _successor(folder)
    temporary.rename(folder)
    sync_folder(folder.parent)


def _tidy(folder: Path) -> None:
    """Finish a killed writer's work: rename a successor to the checkpoint, unless the checkpoint
    exists.
    """
    successor = _successor(folder)
    if os.path.lexists(folder):
        _discard(successor)
    elif os.path.lexists(successor):
        successor.rename(folder)
    for path in folder.parent.iterdir():
        if path.name.startswith(f".{folder.name}-") and path.name.endswith(TEMPORARY):
            with suppress(OSError), lock_folder(path, wait=False):  # its writer has ended
                shutil.rmtree(path, ignore_errors=True)


def _discard(path: Path) -> None:
    """Remove a checkpoint, or a file with this name.

    It is renamed first, so that a partly removed checkpoint is not mistaken for a complete one.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path.rename(_beside(path)), ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Flush all files in a folder to disk, if the system supports it."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with (Path(parent) / name).open("rb+") as file, suppress(OSError):
                os.fsync(file.fileno())
        sync_folder(Path(parent))
