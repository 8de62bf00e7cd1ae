"""Records of runs: a file of lines that outlives a kill, and claims that keep two processes from
the same run.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


class RecordError(ValueError):
    """A line of the file that is no record."""


class Records:
    """File with a line of JSON for each finished run.

    Args:
        path: The file; it may be missing.
        claims: Folder of the claims; the operating system releases those of a process that ends.
    """

    def __init__(self, path: Path, claims: Path) -> None:
        self.path, self.claims = path, claims

    def read(self) -> list[dict[str, Any]]:
        """Return all records; a torn last line is left out, with a notice.

        Raises:
            RecordError: Another line is no record.
        """
        if not self.path.exists():
            return []
        whole, torn = _whole(self.path.read_bytes())
        if torn:
            print(
                f"{self.path.name}: left out a torn last line of {len(torn)} bytes; its run is"
                " missing.",
                file=sys.stderr,
            )
        records = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                records.append(json.loads(line))
            except ValueError as error:
                raise RecordError(
                    f"{self.path}, line {number}: expected a record in JSON, found {line[:60]!r}."
                    " Remove the line; its run is then trained again."
                ) from error
        return records

    def append(self, record: dict[str, Any]) -> None:
        """Add a record and write it to the disk; a torn last line is cut off first."""
        line = json.dumps(record).encode() + b"\n"
        with self.path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            whole, torn = _whole(file.read())
            if torn:
                file.truncate(len(whole))
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def claim(self, key: dict[str, Any]) -> Iterator[bool]:
        """Claim a run for the block; False if another process has it.

        Args:
            key: What tells the run apart.
        """
        self.claims.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        with (self.claims / name).open("w") as file:
            yield _lock(file)


def _lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _whole(content: bytes) -> tuple[bytes, bytes]:
    """Return the whole lines, and a last line that was torn: one without its end, or no JSON."""
    cut = content.rfind(b"\n") + 1
    if content[cut:].strip():
        return content[:cut], content[cut:]
    last = content[: max(0, cut - 1)].rfind(b"\n") + 1
    try:
        json.loads(content[last:cut] or b"null")
    except ValueError:
        return content[:last], content[last:]
    return content, b""
