"""Writer for TensorBoard event files that uses only the standard library.

An event file is a sequence of records. Each record contains a length and an event's bytes, each
with a checksum. An event is a protocol-buffer message, whose field numbers are defined in
`event.proto` and `summary.proto` in TensorFlow's core. Other packages that write event files import
PyTorch or TensorFlow if installed, which takes seconds.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from pathlib import Path

#: Field numbers in an event, its summary, a value in the summary, and the session log.
_WALL_TIME, _STEP, _VERSION, _SUMMARY, _SESSION = 1, 2, 3, 5, 7
_VALUE, _TAG, _SIMPLE_VALUE, _STATUS = 1, 1, 2, 1
_START = 1  # a status: events after this event's step are void

#: Wire types of fields: variable-length integer, 8 bytes, bytes preceded by their length, 4 bytes.
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


class EventFile:
    """New event file.

    Args:
        folder: Folder for the file; created if missing. TensorBoard reads the files in a folder in
            order of creation.
        purge_step: TensorBoard hides events in earlier files from this step onwards.
    """

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # Two files may be created within one second.
        number = len(list(folder.glob("*.tfevents.*")))
        self._file = (folder / f"events.out.tfevents.{int(time.time()):010d}.{number:05d}").open(
            "xb"
        )
        self._write(_bytes(_VERSION, b"brain.Event:2"))
        if purge_step is not None:
            self._write(_integer(_STEP, purge_step) + _bytes(_SESSION, _integer(_STATUS, _START)))

    def write(self, scalars: Mapping[str, float], step: int) -> None:
        """Write named numbers for one step, and flush them to the operating system."""
        values = (
            _bytes(_TAG, name.encode()) + _single(_SIMPLE_VALUE, number)
            for name, number in scalars.items()
        )
        self._write(
            _integer(_STEP, step)
            + _bytes(_SUMMARY, b"".join(_bytes(_VALUE, value) for value in values))
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, event: bytes) -> None:
        event = _key(_WALL_TIME, _EIGHT) + struct.pack("<d", time.time()) + event
        length = struct.pack("<Q", len(event))
        self._file.write(length + _checksum(length) + event + _checksum(event))
        self._file.flush()


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _integer(field: int, number: int) -> bytes:
    return _key(field, _VARINT) + _varint(number)


def _bytes(field: int, content: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(content)) + content


def _single(field: int, number: float) -> bytes:
    try:
        content = struct.pack("<f", number)
    except OverflowError:  # too large for 4 bytes
        content = struct.pack("<f", float("inf") if number > 0 else float("-inf"))
    return _key(field, _FOUR) + content


def _varint(number: int) -> bytes:
    """Encode a number >= 0 in groups of 7 bits, lowest first; the 8th bit is set in all groups
    except the last.
    """
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _checksum(data: bytes) -> bytes:
    """Return a record's checksum: its CRC-32C, rotated by 15 bits, plus a constant."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _table() -> tuple[int, ...]:
    """Return the CRC-32C remainder of each byte, computed with the reversed polynomial."""
    rows = []
    for row in range(256):
        for _ in range(8):
            row = row >> 1 ^ (0x82F63B78 if row & 1 else 0)
        rows.append(row)
    return tuple(rows)


_CRC = _table()
