"""Arrays in safetensors files: what the header says is checked against the file before an array is read."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np

from rlcatalog.errors import SavedPolicyError, shown
from rlcatalog_policy.files import RegularFile

Array = np.ndarray[Any, Any]

#: The format's names of NumPy's dtypes. It knows more, which no model gives (`ModelV2.get_weights`).
DTYPES = {
    "BOOL": "bool", "I8": "int8", "U8": "uint8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32",
    "I64": "int64", "U64": "uint64", "F16": "float16", "F32": "float32", "F64": "float64",
}  # fmt: skip

#: The most bytes of a header, some 100,000 arrays, and the most dimensions and bytes of an array.
_LONGEST_HEADER, _MOST_DIMENSIONS, _LARGEST = 1 << 24, 32, (1 << 63) - 1

_Size = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """What a header says about an array."""

    dtype: str
    shape: Annotated[list[_Size], msgspec.Meta(max_length=_MOST_DIMENSIONS)]
    data_offsets: tuple[_Size, _Size]


_ENTRIES = msgspec.json.Decoder(_Entry)


@dataclass(frozen=True)
class TensorInfo:
    """An array of a file, before it is read: its shape, dtype and bytes."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int
    end: int


class TensorFile:
    """A safetensors file whose header is read and agrees with the file's length.

    Args:
        file: The file.

    Raises:
        SavedPolicyError: The header is damaged, of another dtype, or does not describe the whole of the file.
    """

    def __init__(self, file: RegularFile) -> None:
        self.file = file
        self.tensors: dict[str, TensorInfo] = _tensors(file)

    @cached_property
    def elements(self) -> int:
        """How many numbers it holds."""
        return sum(math.prod(info.shape) for info in self.tensors.values())

    def read(self, digest: str) -> dict[str, Array]:
        """Return the arrays.

        Raises:
            SavedPolicyError: The file is not the one with this SHA-256.
        """
        data = self.file.read()
        if hashlib.sha256(data).hexdigest() != digest:
            raise SavedPolicyError(f"{self.file.path}: truncated or changed since it was saved (its checksum differs).")
        first = len(data) - max((info.end for info in self.tensors.values()), default=0)
        return {
            name: np.frombuffer(data[first + info.start : first + info.end], info.dtype.newbyteorder("<"))
            .reshape(info.shape)
            .astype(info.dtype)  # a copy, which may be written to
            for name, info in self.tensors.items()
        }


def to_bytes(arrays: Mapping[str, Array]) -> bytes:
    """Return arrays as the content of a safetensors file.

    Raises:
        SavedPolicyError: There are too many of them to be read again.
    """
    from safetensors.numpy import save

    content = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    length = int.from_bytes(content[:8], "little")
    if length > _LONGEST_HEADER:
        raise SavedPolicyError(
            f"{len(arrays)} arrays take {length} bytes of a safetensors file's header; {_LONGEST_HEADER} are the most."
        )
    return content


def _tensors(file: RegularFile) -> dict[str, TensorInfo]:
    def damaged(why: str) -> SavedPolicyError:
        return SavedPolicyError(f"{file.path}: not a safetensors file, truncated or changed since it was saved: {why}")

    if file.size < 8:
        raise damaged(f"it has {file.size} bytes.")
    length = int.from_bytes(file.read(8), "little")
    if length > min(file.size - 8, _LONGEST_HEADER):
        raise damaged(
            f"its header would have {length} bytes; the file has {file.size}, and {_LONGEST_HEADER} are the most."
        )
    try:
        header = msgspec.json.decode(file.read(8 + length)[8:], type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError) as error:
        raise damaged(f"its header cannot be read: {error}") from error
    header.pop("__metadata__", None)
    found: dict[str, TensorInfo] = {}
    for name, entry in header.items():
        try:
            found[name] = _info(_ENTRIES.decode(entry))
        except (ValueError, RecursionError) as error:
            raise damaged(f"{shown(name)} in its header: {error}") from error
    place = 0
    for info in sorted(found.values(), key=lambda info: (info.start, info.end)):  # side by side, without gaps
        if info.start != place:
            raise damaged(f"its arrays do not lie side by side at byte {place}.")
        place = info.end
    if place != file.size - 8 - length:
        raise damaged(f"its header speaks of {place} bytes, {file.size - 8 - length} follow it.")
    return found


def _info(entry: _Entry) -> TensorInfo:
    (start, end), shape = entry.data_offsets, entry.shape
    if entry.dtype not in DTYPES:
        raise ValueError(f"dtype {shown(entry.dtype)} is not among {', '.join(DTYPES)}")
    dtype = np.dtype(DTYPES[entry.dtype])
    if math.prod(n or 1 for n in shape) * dtype.itemsize > _LARGEST:  # NumPy counts so, also where a length is 0
        raise ValueError(f"shape {tuple(shape)} of {dtype} is larger than any array")
    if end - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{end - start} bytes for shape {tuple(shape)} of {dtype}")
    return TensorInfo(tuple(shape), dtype, start, end)
