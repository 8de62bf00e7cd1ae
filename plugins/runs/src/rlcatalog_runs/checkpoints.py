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
    match = _STEP.fullmatch(path.name)
    return None if match is None else int(match[1])


def checkpoints_of(directory: Path) -> list[Path]:
    """Return a run's checkpoints, sorted by step; links are omitted."""
    checkpoints = []
    for path in _list_checkpoint_folder(directory):
        steps = checkpoint_steps(path)
        if steps is not None and path.is_dir() and not path.is_symlink():
            checkpoints.append((steps, path))
    return [path for _, path in sorted(checkpoints)]


def newest_checkpoint(directory: Path) -> Path:
    """Return a run's last checkpoint, or the folder itself if it is a checkpoint.

    Raises:
        SavedPolicyError: The run's checkpoint folder is a link.
    """
    if (directory / CHECKPOINTS).is_symlink():
        raise SavedPolicyError(f"{directory / CHECKPOINTS}: a link, which is not followed.")
    checkpoints = checkpoints_of(directory)
    if checkpoints:
        return checkpoints[-1]
    # A writer that was killed while it replaced this checkpoint has left a complete successor.
    successor = _successor(directory)
    if not directory.exists() and successor.is_dir():
        return successor
    return directory


def run_of(directory: Path) -> Path:
    """Return the run folder that a checkpoint belongs to, or the folder itself if it is a run
    folder.
    """
    path = directory.resolve()
    is_checkpoint = checkpoint_steps(path) is not None
    return path.parent.parent if is_checkpoint else directory


@contextmanager
def new_checkpoint(folder: Path) -> Iterator[Path]:
    """Context manager that yields a folder for a checkpoint, and renames it once all files are on
    disk.

    Args:
        folder: The checkpoint's folder; an existing folder is replaced.

    Raises:
        SavedPolicyError: The files cannot be written; other checkpoints are unchanged.
    """
    temporary = _temporary_path(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _finish_killed_writers(folder)
        temporary.mkdir()
        try:
            with lock_folder(temporary):  # tells other writers that the folder is in use
                yield temporary
                _flush_to_disk(temporary)
                _move_into_place(folder, temporary)
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
    later_paths = []
    other_paths = []
    for path in checkpoints_of(directory):  # oldest first
        steps = checkpoint_steps(path)
        is_later = last is not None and steps is not None and steps > last
        if is_later:
            later_paths.append(path)
        else:
            other_paths.append(path)
    num_too_many = max(len(other_paths) - keep, 0)
    for path in later_paths + other_paths[:num_too_many]:
        with suppress(OSError):
            _discard(path)
    for path in _list_checkpoint_folder(directory):
        # What a writer left that was killed before its checkpoint was complete.
        is_unfinished = path.name.startswith(".step-") and path.name.endswith(TEMPORARY)
        is_checkpoint = checkpoint_steps(path) is not None
        with suppress(OSError):
            if is_unfinished:
                shutil.rmtree(path, ignore_errors=True)
            elif is_checkpoint and path.is_symlink():  # a link in place of a checkpoint
                path.unlink()


def _list_checkpoint_folder(directory: Path) -> list[Path]:
    """Return the contents of a run's checkpoint folder; empty if the folder is a link."""
    folder = directory / CHECKPOINTS
    if folder.is_symlink() or not folder.is_dir():
        return []
    return list(folder.iterdir())


def _temporary_path(folder: Path) -> Path:
    """Return a new path in the same folder, which is marked as temporary."""
    return folder.parent / f".{folder.name}-{secrets.token_hex(8)}{TEMPORARY}"


def _successor(folder: Path) -> Path:
    """Return the path under which a complete checkpoint waits while an older one is removed."""
    return folder.parent / f".{folder.name}{_NEXT}"


def _move_into_place(folder: Path, temporary: Path) -> None:
    """Rename a complete checkpoint to its final name."""
    complete = temporary
    if os.path.lexists(folder):
        # Remove the older checkpoint only when the new one is complete under a lasting name.
        complete = _successor(folder)
        temporary.rename(complete)
        sync_folder(folder.parent)
        _discard(folder)
    complete.rename(folder)
    sync_folder(folder.parent)


def _finish_killed_writers(folder: Path) -> None:
    """Rename a successor to the checkpoint, unless the checkpoint exists, and remove the temporary
    folders of writers that have ended.
    """
    successor = _successor(folder)
    if os.path.lexists(folder):
        _discard(successor)
    elif os.path.lexists(successor):
        successor.rename(folder)
    for path in folder.parent.iterdir():
        if path.name.startswith(f".{folder.name}-") and path.name.endswith(TEMPORARY):
            # A writer that is still alive holds the lock, which raises an OSError here.
            with suppress(OSError), lock_folder(path, wait=False):
                shutil.rmtree(path, ignore_errors=True)


def _discard(path: Path) -> None:
    """Remove a checkpoint, or a file with this name.

    It is renamed first, so that a partly removed checkpoint is not mistaken for a complete one.
    """
    if path.is_dir() and not path.is_symlink():
        renamed = path.rename(_temporary_path(path))
        shutil.rmtree(renamed, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _flush_to_disk(folder: Path) -> None:
    """Flush all files in a folder to disk, if the system supports it."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent) / name
            with path.open("rb+") as file, suppress(OSError):
                os.fsync(file.fileno())
        sync_folder(Path(parent))
