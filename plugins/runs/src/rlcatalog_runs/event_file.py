"""TensorBoard's event files, written with only the standard library.

An event file is a row of records: a length, the bytes of one event, a checksum of each. An event is a message of
protocol buffers, whose fields are numbered in `event.proto` and `summary.proto` of TensorFlow's core. Packages that
write such files import PyTorch or TensorFlow where one is installed, which takes seconds.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from pathlib import Path

#: The fields of an event, of its summary, of a value in it, and of the session's log.
_WALL_TIME, _STEP, _VERSION, _SUMMARY, _SESSION = 1, 2, 3, 5, 7
_VALUE, _TAG, _SIMPLE_VALUE, _STATUS = 1, 1, 2, 1
_START = 1  # a status: what was written later than this event's step is void

#: How a field's content is written: an integer of variable length, 8 bytes, bytes after their length, 4 bytes.
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


class EventFile:
    """A new event file.

    Args:
        folder: Its folder; made if missing. TensorBoard reads the files of a folder in the order they were made.
        purge_step: TensorBoard hides what earlier files hold from this step on.
    """

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("*.tfevents.*")))  # two may be made within one second
        self._file = (folder / f"events.out.tfevents.{int(time.time()):010d}.{number:05d}").open("xb")
        self._write(_bytes(_VERSION, b"brain.Event:2"))
        if purge_step is not None:
            self._write(_integer(_STEP, purge_step) + _bytes(_SESSION, _integer(_STATUS, _START)))

    def write(self, scalars: Mapping[str, float], step: int) -> None:
        """Write named numbers of one step, and flush them to the operating system."""
        values = (_bytes(_TAG, name.encode()) + _single(_SIMPLE_VALUE, number) for name, number in scalars.items())
        self._write(_integer(_STEP, step) + _bytes(_SUMMARY, b"".join(_bytes(_VALUE, value) for value in values)))

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
    except OverflowError:  # beyond what 4 bytes hold
        content = struct.pack("<f", float("inf") if number > 0 else float("-inf"))
    return _key(field, _FOUR) + content


def _varint(number: int) -> bytes:
    """Return a number, not below 0, in groups of 7 bits, the lowest first; all but the last have the 8th bit set."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _checksum(data: bytes) -> bytes:
    """Return the record's checksum: CRC-32C, turned by 15 bits and moved by a constant."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _table() -> tuple[int, ...]:
    """Return CRC-32C's remainder of each byte, by its polynomial read backwards."""
    rows = []
    for row in range(256):
        for _ in range(8):
            row = row >> 1 ^ (0x82F63B78 if row & 1 else 0)
        rows.append(row)
    return tuple(rows)


_CRC = _table()
