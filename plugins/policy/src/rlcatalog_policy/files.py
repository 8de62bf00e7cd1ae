"""Files in a saved folder: written completely or not at all, and read only if they are regular
files of limited size.

One `os.replace` of a synced temporary file makes a file visible, so a killed process leaves the
previous file intact. A writer holds the folder's lock, which the system releases when the process
ends, even by a crash.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from rlcatalog.errors import SavedPolicyError, raised_as

#: Suffix of temporary files; the holder of the lock may remove them, because their writers are
#: gone.
TEMPORARY = ".rlcatalog-tmp"

#: Maximum number of bytes of JSON read from a folder: Python objects take up to 30 times as many
#: bytes.
MOST_JSON = 1 << 22


def _flag(name: str) -> int:
    """Return a flag of `os.open`, or 0 if the system lacks it."""
    return int(getattr(os, name, 0))  # Python's module, which differs by system


# Windows lacks these flags, but does not need them: planting links requires special rights, and no
# file blocks a reader.
_NO_FOLLOW = _flag("O_NOFOLLOW") | _flag("O_CLOEXEC")
_NO_WAIT = _flag("O_NONBLOCK")
_BINARY = _flag("O_BINARY")  # only Windows has it: without it, it would change line ends

#: Number of bytes that one call writes at most.
_BLOCK = 1 << 26


@contextmanager
def lock_folder(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Lock a folder. The lock leaves no file behind and ends with the process.

    If the system (Windows) or the file system has no `flock`, nothing is locked.

    Args:
        folder: The folder.
        wait: Whether to wait until another holder releases the lock, instead of raising an error at
            once.

    Raises:
        BlockingIOError: Another process, or other code in this process, holds the lock, and `wait`
            is not set.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    operation = fcntl.LOCK_EX
    if not wait:
        operation |= fcntl.LOCK_NB
    handle = os.open(folder, os.O_RDONLY | _flag("O_DIRECTORY") | _flag("O_CLOEXEC"))
    try:
        try:
            fcntl.flock(handle, operation)
        except OSError as error:
            # A file system without locks: go on without one.
            has_no_locks = error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL)
            if not has_no_locks:
                raise
        yield
    finally:
        os.close(handle)


def write_file(folder: Path, name: str, data: bytes) -> None:
    """Write a file atomically: readers see either the old file or the new one, even after a system
    crash.

    A link with this name is replaced; its target stays unchanged.

    Raises:
        OSError: The file cannot be written; an existing file with this name is unchanged.
    """
    temporary = folder / f".{name}-{secrets.token_hex(8)}{TEMPORARY}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | _BINARY, 0o666)
    try:
        try:
            remaining = memoryview(data)
            while remaining:
                num_written = os.write(handle, remaining[:_BLOCK])
                remaining = remaining[num_written:]
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, folder / name)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Flush a folder's directory entries to disk, if the system supports it."""
    with suppress(OSError):  # Windows cannot open folders, and some file systems cannot sync them
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class RegularFile:
    """Regular file opened for reading; links, pipes, devices and folders are rejected.

    It stays readable even if a writer removes its name.

    Args:
        path: Its path.
        most: Largest allowed size in bytes; None for no limit.

    Attributes:
        path: Its path.
        size: Its length in bytes.

    Raises:
        FileNotFoundError: The file does not exist.
        SavedPolicyError: The path is not a regular file, is too large, or cannot be opened.
    """

    def __init__(self, path: Path, most: int | None = None) -> None:
        self.path = path
        try:
            handle = os.open(path, os.O_RDONLY | _NO_FOLLOW | _NO_WAIT | _BINARY)
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            why = str(error)
            if path.is_symlink():
                why = "a link, which is not followed"
            raise SavedPolicyError(f"{path}: cannot be read: {why}.") from error
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            os.close(handle)
            raise SavedPolicyError(f"{path}: cannot be read: it is not a regular file.")
        self.size = status.st_size
        self._file = os.fdopen(handle, "rb")
        if most is not None and self.size > most:
            self.close()
            raise SavedPolicyError(
                f"{path}: is too large: it has {self.size} bytes; at most {most} are allowed."
            )

    def read(self, size: int | None = None) -> bytes:
        """Return the first bytes of the file, or all of it if `size` is None.

        Raises:
            SavedPolicyError: The file cannot be read, or is shorter than when it was opened.
        """
        if size is None:
            size = self.size
        try:
            self._file.seek(0)
            content = self._file.read(size)
        except OSError as error:
            raise SavedPolicyError(f"{self.path}: cannot be read: {error}") from error
        if len(content) < size:
            raise SavedPolicyError(
                f"{self.path}: truncated or changed since it was saved: it is shorter now."
            )
        return content

    def close(self) -> None:
        """Close the file. Closing it again does nothing."""
        self._file.close()


def read_file(path: Path, most: int) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file's path; links and pipes are not opened.
        most: Maximum size in bytes.

    Raises:
        FileNotFoundError: The file does not exist.
        SavedPolicyError: The path is not a regular file, is too large, or cannot be read.
    """
    with closing(RegularFile(path, most)) as file:
        return file.read()


def read_json(path: Path, most: int = MOST_JSON) -> Any:
    """Return the content of a regular JSON file.

    Args:
        path: Its path.
        most: Maximum size in bytes.

    Raises:
        FileNotFoundError: The file does not exist.
        SavedPolicyError: The path is not a regular file, is too large, cannot be read, or is not
            JSON.
    """

    def is_not_json(why: str) -> SavedPolicyError:
        return SavedPolicyError(f"{path}: truncated or not JSON: {why}")

    content = read_file(path, most)
    with raised_as(is_not_json):
        value = json.loads(content.decode())
        _check_depth(value)
    return value


def _check_depth(value: Any, most_levels: int = 100) -> None:
    """Raise an error if tables and lists are nested deeper than `most_levels`, because recursive
    code would fail on them.

    Raises:
        ValueError: They are nested too deeply.
    """
    if isinstance(value, dict):
        items = list(value.values())
    elif isinstance(value, list):
        items = value
    else:
        return
    if most_levels == 0:
        raise ValueError("its tables and lists are nested too deeply")
    for item in items:
        _check_depth(item, most_levels - 1)


def check_files(folder: Path, skip: Collection[str] = ()) -> None:
    """Raise an error if a folder or subfolder contains links, pipes, sockets or devices, not just
    regular files.

    Code that then opens these files by path stays inside the folder, and never waits for another
    process.

    Args:
        folder: The folder; it may be a link itself, because the user named it.
        skip: Names of direct subfolders that are not searched.

    Raises:
        SavedPolicyError: The folder contains something else; the message names it.
    """
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in skip:
                        check_files(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False):
                    kind = "neither a file nor a folder"
                    if entry.is_symlink():
                        kind = "a link, which is not followed"
                    raise SavedPolicyError(
                        f"{entry.path}: {kind}. Remove it, or replace it with its target."
                    )
    except (OSError, RecursionError) as error:
        raise SavedPolicyError(f"{folder}: cannot be read: {error}") from error
