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

#: Maximum number of bytes in a header (about 100,000 arrays), and of dimensions and bytes in an
#: array.
_LONGEST_HEADER, _MOST_DIMENSIONS, _LARGEST = 1 << 24, 32, (1 << 63) - 1

_Size = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]


class TensorInfo(msgspec.Struct, frozen=True):
    """Shape and dtype of an array in a file, known before the array is read; safetensors checks its
    position.
    """

    shape: Annotated[tuple[_Size, ...], msgspec.Meta(max_length=_MOST_DIMENSIONS)]
    dtype: np.dtype[Any]

    def __post_init__(self) -> None:
        # NumPy counts like this, even if a length is 0.
        if math.prod(n or 1 for n in self.shape) * self.dtype.itemsize > _LARGEST:
            raise ValueError(f"shape {self.shape} of {self.dtype} is larger than any array")


def _dtype(_: type, name: Any) -> np.dtype[Any]:
    if not isinstance(name, str) or name not in DTYPES:
        raise ValueError(f"dtype {shown(name)} is not among {', '.join(DTYPES)}")
    return np.dtype(DTYPES[name])


_ENTRIES = msgspec.json.Decoder(TensorInfo, dec_hook=_dtype)


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
        if file.size < 8:
            raise _damage(file, f"it has {file.size} bytes.")
        length = int.from_bytes(file.read(8), "little")
        rest = file.size - 8 - length
        if rest < 0 or length > _LONGEST_HEADER:
            why = (
                f"its header would have {length} of {file.size} bytes; at most {_LONGEST_HEADER}"
                " are allowed."
            )
            raise _damage(file, why)
        try:
            header = msgspec.json.decode(file.read(8 + length)[8:], type=dict[str, msgspec.Raw])
        except (ValueError, RecursionError) as error:
            raise _damage(file, f"its header cannot be read: {error}") from error
        header.pop("__metadata__", None)
        self.tensors: dict[str, TensorInfo] = {}
        size = 0
        for name, entry in header.items():
            try:
                self.tensors[name] = info = _ENTRIES.decode(entry)
            except (ValueError, RecursionError) as error:
                raise _damage(file, f"{shown(name)} in its header: {error}") from error
            size += math.prod(info.shape) * info.dtype.itemsize
        if size != rest:
            raise _damage(file, f"its header describes {size} bytes, but {rest} follow it.")

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


def to_bytes(arrays: Mapping[str, Array]) -> bytes:
    """Encode arrays as the content of a safetensors file.

    Raises:
        SavedPolicyError: There are too many arrays for the file to be readable again.
    """
    content = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    if (length := int.from_bytes(content[:8], "little")) > _LONGEST_HEADER:
        raise SavedPolicyError(
            f"{len(arrays)} arrays take {length} bytes of a safetensors header; at most"
            f" {_LONGEST_HEADER} are allowed."
        )
    return content


def describe_other_dtypes(given: Mapping[str, np.dtype[Any]], expected: Mapping[str, Array]) -> str:
    """Return a text that lists the arrays with an unexpected dtype; empty if there are none."""
    pairs = (
        (name, dtype, expected[name].dtype) for name, dtype in given.items() if name in expected
    )
    return "; ".join(
        f"{name}: {dtype} instead of {wanted}" for name, dtype, wanted in pairs if dtype != wanted
    )


def _damage(file: RegularFile, why: str) -> SavedPolicyError:
    return SavedPolicyError(
        f"{file.path}: not a safetensors file, truncated or changed since it was saved: {why}"
    )
