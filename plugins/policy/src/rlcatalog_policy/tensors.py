"""Arrays in safetensors files, whose headers are read first to limit the memory for the arrays.

safetensors reads a file as a whole. This module therefore reads the shapes and dtypes first. They
must match the file's length before anything is built for them. safetensors checks everything else.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from rlcatalog.errors import SavedPolicyError, shown
from rlcatalog_policy.files import RegularFile

Array = np.ndarray[Any, Any]

#: The format's names for NumPy's dtypes. The format has other dtypes, which no model uses
#: (`ModelV2.get_weights`).
DTYPES = {
    "BOOL": "bool", "I8": "int8", "U8": "uint8", "I16": "int16", "U16": "uint16", "I32": "int32",
    "U32": "uint32", "I64": "int64", "U64": "uint64", "F16": "float16", "F32": "float32",
    "F64": "float64",
}  # fmt: skip

#: Maximum number of bytes in a header, for about 100,000 arrays.
_LONGEST_HEADER = 1 << 24
#: Maximum number of an array's dimensions; NumPy 1 has no more.
_MOST_DIMENSIONS = 32
#: Maximum number of bytes in an array, which a signed index can still count.
_LARGEST = (1 << 63) - 1
#: Number of bytes of a file's first entry, the length of its header.
_LENGTH_BYTES = 8

_Size = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]


class TensorInfo(msgspec.Struct, frozen=True):
    """Shape and dtype of an array in a file, known before the array is read; safetensors checks its
    position.
    """

    shape: Annotated[tuple[_Size, ...], msgspec.Meta(max_length=_MOST_DIMENSIONS)]
    dtype: np.dtype[Any]

    def __post_init__(self) -> None:
        # NumPy limits the product of the lengths as if each 0 were 1.
        num_elements = math.prod(max(length, 1) for length in self.shape)
        if num_elements * self.dtype.itemsize > _LARGEST:
            raise ValueError(f"shape {self.shape} of {self.dtype} is larger than any array")


def _parse_dtype(_: type, name: Any) -> np.dtype[Any]:
    """Return the dtype with one of the format's names; msgspec passes the type first."""
    if not isinstance(name, str) or name not in DTYPES:
        raise ValueError(f"dtype {shown(name)} is not among {', '.join(DTYPES)}")
    return np.dtype(DTYPES[name])


_ENTRIES = msgspec.json.Decoder(TensorInfo, dec_hook=_parse_dtype)


class TensorFile:
    """A safetensors file whose header has been read and matches the file's length.

    Args:
        file: The file.

    Raises:
        SavedPolicyError: The header is damaged, has an unsupported dtype, or does not describe the
            whole file.
    """

    def __init__(self, file: RegularFile) -> None:
        self.file = file
        header_length = _read_header_length(file)
        self.tensors = _read_header(file, header_length)
        described_size = sum(
            math.prod(info.shape) * info.dtype.itemsize for info in self.tensors.values()
        )
        size_after_header = file.size - _LENGTH_BYTES - header_length
        if described_size != size_after_header:
            raise _damage(
                file,
                f"its header describes {described_size} bytes, but {size_after_header} follow it.",
            )

    @cached_property
    def elements(self) -> int:
        """Number of values."""
        return sum(math.prod(info.shape) for info in self.tensors.values())

    def read(self, digest: str) -> dict[str, Array]:
        """Return the arrays.

        Raises:
            SavedPolicyError: The file's SHA-256 differs, or safetensors cannot read the file.
        """
        data = self.file.read()
        if hashlib.sha256(data).hexdigest() != digest:
            raise SavedPolicyError(
                f"{self.file.path}: truncated or changed since it was saved (its checksum differs)."
            )
        try:
            return load(data)
        except SafetensorError as error:
            raise _damage(self.file, f"{error}.") from error


def _read_header_length(file: RegularFile) -> int:
    if file.size < _LENGTH_BYTES:
        raise _damage(file, f"it has {file.size} bytes.")
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if length > _LONGEST_HEADER or length > file.size - _LENGTH_BYTES:
        raise _damage(
            file,
            f"its header would have {length} of {file.size} bytes; at most {_LONGEST_HEADER}"
            " are allowed.",
        )
    return length


def _read_header(file: RegularFile, length: int) -> dict[str, TensorInfo]:
    """Return name → shape and dtype of each array."""
    text = file.read(_LENGTH_BYTES + length)[_LENGTH_BYTES:]
    try:
        header = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError) as error:
        raise _damage(file, f"its header cannot be read: {error}") from error
    header.pop("__metadata__", None)  # the format's entry for texts, which rlcatalog does not write
    tensors = {}
    for name, entry in header.items():
        try:
            tensors[name] = _ENTRIES.decode(entry)
        except (ValueError, RecursionError) as error:
            raise _damage(file, f"{shown(name)} in its header: {error}") from error
    return tensors


def to_bytes(arrays: Mapping[str, Array]) -> bytes:
    """Encode arrays as the content of a safetensors file.

    Raises:
        SavedPolicyError: There are too many arrays for the file to be readable again.
    """
    content = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    header_length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    if header_length > _LONGEST_HEADER:
        raise SavedPolicyError(
            f"{len(arrays)} arrays take {header_length} bytes of a safetensors header; at most"
            f" {_LONGEST_HEADER} are allowed."
        )
    return content


def describe_other_dtypes(
    dtypes: Mapping[str, np.dtype[Any]], expected: Mapping[str, Array]
) -> str:
    """Return a text that lists the arrays with an unexpected dtype; empty if there are none."""
    texts = []
    for name, dtype in dtypes.items():
        if name in expected and dtype != expected[name].dtype:
            texts.append(f"{name}: {dtype} instead of {expected[name].dtype}")
    return "; ".join(texts)


def _damage(file: RegularFile, why: str) -> SavedPolicyError:
    return SavedPolicyError(
        f"{file.path}: not a safetensors file, truncated or changed since it was saved: {why}"
    )
