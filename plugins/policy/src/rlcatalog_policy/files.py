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

# Windows lacks these flags, but does not need them: planting links requires special rights, and no
# file blocks a reader.
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_BINARY = getattr(os, "O_BINARY", 0)


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
    handle = os.open(
        folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
    )
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
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
            left = memoryview(data)
            while left:
                left = left[os.write(handle, left[: 1 << 26]) :]
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
            what = "a link, which is not followed" if path.is_symlink() else str(error)
            raise SavedPolicyError(f"{path}: cannot be read: {what}.") from error
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            os.close(handle)
            raise SavedPolicyError(f"{path}: cannot be read: it is not a regular file.")
        self.size, self._file = status.st_size, os.fdopen(handle, "rb")
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
        size = self.size if size is None else size
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
    content = read_file(path, most)
    with raised_as(lambda why: SavedPolicyError(f"{path}: truncated or not JSON: {why}")):
        value = json.loads(content.decode())
        _check_levels(value)
    return value


def _check_levels(value: Any, most: int = 100) -> None:
    """Raise an error if tables and lists are nested deeper than `most`, because recursive code
    would fail on them.

    Raises:
        ValueError: They are nested too deeply.
    """
    if isinstance(value, dict | list):
        if most == 0:
            raise ValueError("its tables and lists are nested too deeply")
        for part in value.values() if isinstance(value, dict) else value:
            _check_levels(part, most - 1)


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
                    what = (
                        "a link, which is not followed"
                        if entry.is_symlink()
                        else "neither a file nor a folder"
                    )
                    raise SavedPolicyError(
                        f"{entry.path}: {what}. Remove it, or replace it with its target."
                    )
    except (OSError, RecursionError) as error:
        raise SavedPolicyError(f"{folder}: cannot be read: {error}") from error
