"""Writer for TensorBoard event files that uses only the standard library.

An event file is a sequence of records. Each record contains a length and an event's bytes, each
with a checksum. An event is a protocol-buffer message, whose field numbers are defined in
`event.proto` and `summary.proto` in TensorFlow's core. Other packages that write event files import
PyTorch or TensorFlow if installed, which takes seconds.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Mapping
from pathlib import Path

# Field numbers of an event.
_WALL_TIME = 1
_STEP = 2
_VERSION = 3
_SUMMARY = 5
_SESSION = 7
# The field number of a value in a summary, and those of the value's name and number.
_VALUE = 1
_TAG = 1
_SIMPLE_VALUE = 2
# The field number of a session log's status, and the status that makes earlier events from this
# event's step onwards void.
_STATUS = 1
_START = 1

# Wire types of fields.
_VARINT = 0  # an integer of variable length
_EIGHT = 1  # 8 bytes
_BYTES = 2  # bytes preceded by their length
_FOUR = 5  # 4 bytes


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
        path = folder / f"events.out.tfevents.{int(time.time()):010d}.{number:05d}"
        self._file = path.open("xb")
        self._write(_bytes(_VERSION, b"brain.Event:2"))  # every file begins with this version
        if purge_step is not None:
            # This event makes earlier ones, from its step onwards, void.
            session_log = _integer(_STATUS, _START)
            self._write(_integer(_STEP, purge_step) + _bytes(_SESSION, session_log))

    def write(self, scalars: Mapping[str, float], step: int) -> None:
        """Write named numbers for one step, and flush them to the operating system."""
        summary = b""
        for name, number in scalars.items():
            value = _bytes(_TAG, name.encode()) + _single(_SIMPLE_VALUE, number)
            summary += _bytes(_VALUE, value)
        self._write(_integer(_STEP, step) + _bytes(_SUMMARY, summary))

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
        infinity = math.inf if number > 0 else -math.inf
        content = struct.pack("<f", infinity)
    return _key(field, _FOUR) + content


def _varint(number: int) -> bytes:
    """Encode a number >= 0 in groups of 7 bits, lowest first; the 8th bit is set in all groups
    except the last.
    """
    groups = bytearray()
    while number > 127:
        lowest_group = number & 127
        groups.append(lowest_group | 128)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def _checksum(data: bytes) -> bytes:
    """Return a record's checksum: its CRC-32C, rotated by 15 bits, plus a constant."""
    crc = 0xFFFFFFFF
    for byte in data:
        lowest_byte = (crc ^ byte) & 0xFF
        crc = _REMAINDERS[lowest_byte] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    rotated = crc >> 15 | crc << 17
    return struct.pack("<I", (rotated + 0xA282EAD8) & 0xFFFFFFFF)  # lowest 32 bits


def _crc_remainders() -> tuple[int, ...]:
    """Return the CRC-32C remainder of each byte, computed with the reversed polynomial."""
    reversed_polynomial = 0x82F63B78
    remainders = []
    for remainder in range(256):
        for _ in range(8):
            lowest_bit = remainder & 1
            remainder >>= 1
            if lowest_bit:
                remainder ^= reversed_polynomial
        remainders.append(remainder)
    return tuple(remainders)


_REMAINDERS = _crc_remainders()
