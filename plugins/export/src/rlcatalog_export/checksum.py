"""Checksums of exported policies: SHA-256 at the end of a file, or in a list in a folder.

A file ends with a marker and the digest of all preceding bytes, as text. Other readers ignore this
ending: in ONNX it is a metadata entry, and in a zip archive it is the comment.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from rlcatalog.errors import SavedPolicyError
from rlcatalog_policy import check_files, read_file as read_file

#: Largest file in bytes, ONNX's limit.
LARGEST = 1 << 31
#: Largest list of the checksums of a folder.
_LONGEST_LIST = 1 << 20
#: Characters of a SHA-256 digest as text.
CHECKSUM_LENGTH = 64


def add_checksum(content: bytes, mark: bytes) -> bytes:
    """Return a file's content with the marker and the checksum at its end."""
    marked = content + mark
    return marked + hashlib.sha256(marked).hexdigest().encode()


def read_with_checksum(path: Path, mark: bytes) -> tuple[bytes, bool]:
    """Return a file's content, and whether it has a checksum.

    Raise an error if the checksum is wrong.

    Args:
        path: The file, or a symbolic link to it.
        mark: The bytes before the checksum.

    Raises:
        SavedPolicyError: The path is not a regular file, the file cannot be read, or its checksum
            differs.
    """
    try:
        content = read_file(Path(os.path.realpath(path)), LARGEST)
    except OSError as error:
        raise SavedPolicyError(f"{path} cannot be read: {error}") from error
    marked_length = len(content) - CHECKSUM_LENGTH
    has_checksum = marked_length >= len(mark) and content.endswith(mark, 0, marked_length)
    if not has_checksum:
        return content, False
    marked = memoryview(content)[:marked_length]  # a copy may need gigabytes
    checksum = hashlib.sha256(marked).hexdigest().encode()
    if checksum != content[marked_length:]:
        raise changed(path)
    return content, True


def seal_folder(folder: Path, name: str) -> None:
    """Write the checksums of all files in a folder to a file in that folder, in the format of
    `sha256sum`.
    """
    digests = _digests(folder, without=name)
    lines = [f"{digest}  {file}\n" for file, digest in sorted(digests.items())]
    (folder / name).write_text("".join(lines), encoding="utf-8")


def check_folder(folder: Path, name: str) -> bool:
    """Return whether a folder contains a list of checksums.

    Raise an error if a file does not match.

    Raises:
        SavedPolicyError: The folder contains entries that are not files, a file is missing or
            unexpected, or a checksum differs.
    """
    check_files(folder)
    try:
        text = read_file(folder / name, _LONGEST_LIST).decode("utf-8", "replace")
    except FileNotFoundError:
        return False
    listed = {}
    for line in text.splitlines():
        digest, _, file = line.partition("  ")
        listed[file] = digest
    if listed != _digests(folder, without=name):
        raise changed(folder)
    return True


def changed(path: Path) -> SavedPolicyError:
    """Return the error for a file whose checksum differs."""
    return SavedPolicyError(
        f"{path} was damaged or changed after it was exported: its checksum differs. Export the"
        " policy again, or copy the file again."
    )


def _digests(folder: Path, without: str) -> dict[str, str]:
    """Return the SHA-256 digest of each file in a folder, keyed by its path within the folder."""
    digests = {}
    for file in folder.rglob("*"):
        name = file.relative_to(folder).as_posix()
        if name != without and not file.is_dir():
            digests[name] = hashlib.sha256(read_file(file, LARGEST)).hexdigest()
    return digests
