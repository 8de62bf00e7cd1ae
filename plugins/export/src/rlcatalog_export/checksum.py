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
_DIGITS = 64


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
    body = len(content) - _DIGITS
    if body < len(mark) or content[body - len(mark) : body] != mark:
        return content, False
    if hashlib.sha256(memoryview(content)[:body]).hexdigest().encode() != content[body:]:
        raise changed(path)
    return content, True


def seal_folder(folder: Path, name: str) -> None:
    """Write the checksums of all files in a folder to a file in that folder, in the format of
    `sha256sum`.
    """
    text = "".join(f"{digest}  {file}\n" for file, digest in sorted(_digests(folder, name).items()))
    (folder / name).write_text(text, encoding="utf-8")


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
    known = {
        file: digest for digest, _, file in (line.partition("  ") for line in text.splitlines())
    }
    if known != _digests(folder, name):
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
    files = {
        file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if not file.is_dir()
    }
    files.pop(without, None)
    return {
        name: hashlib.sha256(read_file(file, LARGEST)).hexdigest() for name, file in files.items()
    }
