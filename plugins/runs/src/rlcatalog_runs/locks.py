"""Lock of a run's folder, which keeps two processes from writing to it.

The lock belongs to a file in the folder, `run.lock`. A process holds the lock as long as its run
writes to the folder, and then removes the file. If the process is killed, the operating system
releases the lock. The file stays, unlocked, and the next run in the folder takes it over.
"""

from __future__ import annotations

import errno
import os
import warnings
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout, lock_descriptor, unlock_descriptor

from rlcatalog.errors import CatalogWarning, RunFolderError, reason

#: Name of the lock's file.
LOCK = "run.lock"
#: Seconds that a run waits for the lock, because `is_held` holds it for a moment too.
_PATIENCE = 0.5
#: Errors of file systems that have no locks, such as some network file systems.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL)
# Windows lacks these flags, but does not need them: planting links requires special rights, and no
# file blocks a reader.
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)  # Python's
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # Python's


class FolderLock:
    """Lock of one run's folder.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / LOCK
        # Without locks, filelock could use the file's existence instead. But then the file of a
        # killed process would lock its folder for ever.
        self._lock = FileLock(self.path, timeout=_PATIENCE, fallback_to_soft=False)

    def acquire(self) -> None:
        """Lock the folder until `release` is called or the process ends.

        If the file system has no locks, the folder is used without one, with a warning.

        Raises:
            RunFolderError: Another process, or other code in this process, holds the lock, or the
                lock's file cannot be opened.
        """
        try:
            self._lock.acquire()
        except Timeout as error:
            raise self._held_error() from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise RunFolderError(
                    f"{self.path}: cannot be locked: {reason(error)}. {self._advice()}"
                ) from error
            warnings.warn(
                f"{self.folder}: cannot be locked, because its file system has no locks. Make sure"
                " that no other run writes to this folder. If this process is killed, its run will"
                " still be listed as running.",
                CatalogWarning,
                stacklevel=2,
            )

    def release(self) -> None:
        """Release the lock and remove its file."""
        # Before the release, so that the removed file is not another process's. Windows refuses to
        # remove an open file; there, filelock removes it after the release.
        with suppress(OSError):
            self.path.unlink()
        self._lock.release()

    def check(self) -> None:
        """Raise an error if a process is known to hold the lock; nothing is changed.

        Raises:
            RunFolderError: A process holds the lock.
        """
        try:
            is_held = self._is_held()
        except OSError:  # the system cannot tell; `acquire` says why
            return
        if is_held:
            raise self._held_error()

    def is_held(self) -> bool:
        """Return whether a process holds the lock; True if the system cannot tell.

        This needs no permission to write to the folder.
        """
        try:
            return self._is_held()
        except OSError:  # a file of another user, or a file system without locks
            return True

    def _is_held(self) -> bool:
        """Do the same as `is_held`, but raise an OSError if the system cannot tell."""
        try:
            handle = self._open()
        except (FileNotFoundError, NotADirectoryError):
            return False
        try:
            if not lock_descriptor(handle, blocking=False):
                return True
            unlock_descriptor(handle)  # Windows may unlock a closed file only later
            return False
        finally:
            os.close(handle)

    def _open(self) -> int:
        """Open the lock's file without creating it, for writing if that is allowed.

        NFS locks a file only if it is open for writing.
        """
        try:
            return os.open(self.path, os.O_RDWR | _NO_FOLLOW | _NO_WAIT)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
        return os.open(self.path, os.O_RDONLY | _NO_FOLLOW | _NO_WAIT)

    def _held_error(self) -> RunFolderError:
        return RunFolderError(
            f"{self.folder}: another process is writing a run to this folder. Wait until it has"
            " ended, or stop it. For a new run, you can also pass another folder with --out."
        )

    def _advice(self) -> str:
        """Return what to do about a lock's file that cannot be opened."""
        if os.path.lexists(self.path):
            return "Remove it."
        return "Make the folder writable, or pass another one with --out."
