"""Arrays in safetensors files: what their headers may contain, up to the last byte."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from safetensors.numpy import load

from rlcatalog.errors import SavedPolicyError
from rlcatalog_policy import RegularFile, TensorFile, to_bytes
from rlcatalog_policy.tensors import DTYPES, describe_other_dtypes

SIXTEEN_MIB = 16 * 1024 * 1024


@pytest.fixture
def open_tensors(tmp_path):
    """Write a file with a header and data, and open it: `open_tensors(header, data)`.

    The file begins with the length of the header, which may be given wrongly.
    """
    files = []

    def write_and_open(header, data=b"", header_length=None):
        if not isinstance(header, bytes):
            header = json.dumps(header).encode()
        if header_length is None:
            header_length = len(header)
        path = tmp_path / "weights.safetensors"
        path.write_bytes(header_length.to_bytes(8, "little") + header + data)
        files.append(RegularFile(path))
        return TensorFile(files[-1])

    yield write_and_open
    for file in files:
        file.close()


def entry(shape, *, dtype="F32", offsets=(0, 0)):
    """Return the entry of a header for an array; the offsets are the first byte and the end."""
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


def digest_of(tensors):
    return hashlib.sha256(tensors.file.read()).hexdigest()


# --- reading arrays -------------------------------------------------------------------------------


@pytest.fixture
def matrix_and_number(open_tensors):
    """An open file with a matrix `b` of shape (2, 3) and a number `a`."""
    header = {
        "__metadata__": {"by": "hand"},
        "b": entry([2, 3], dtype="F32", offsets=(0, 24)),
        "a": entry([], dtype="I64", offsets=(24, 32)),
    }
    data = np.arange(6, dtype="<f4").tobytes() + np.int64(7).tobytes()
    return open_tensors(header, data)


def test_shapes_and_dtypes_are_known_from_the_header(matrix_and_number):
    b = matrix_and_number.tensors["b"]
    a = matrix_and_number.tensors["a"]

    assert set(matrix_and_number.tensors) == {"a", "b"}
    assert b.shape == (2, 3)
    assert b.dtype == np.float32
    assert a.shape == ()
    assert a.dtype == np.int64
    assert matrix_and_number.elements == 7


def test_arrays_are_read_if_the_checksum_is_right(matrix_and_number):
    arrays = matrix_and_number.read(digest_of(matrix_and_number))

    assert arrays["b"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrays["a"] == 7


def test_arrays_are_not_read_if_the_checksum_is_wrong(matrix_and_number):
    with pytest.raises(SavedPolicyError, match="its checksum differs"):
        matrix_and_number.read("0" * 64)


def test_file_that_safetensors_rejects_is_an_error(open_tensors):
    # The two arrays overlap.
    header = {"a": entry([], offsets=(0, 4)), "b": entry([], offsets=(0, 4))}
    tensors = open_tensors(header, data=bytes(8))

    with pytest.raises(SavedPolicyError, match="not a safetensors file, truncated or"):
        tensors.read(digest_of(tensors))


def test_file_may_have_no_arrays(open_tensors):
    tensors = open_tensors({})

    assert tensors.tensors == {}
    assert tensors.elements == 0


def test_file_may_have_empty_arrays(open_tensors):
    assert open_tensors({"a": entry([0, 5])}).elements == 0


def test_arrays_are_written_in_c_order():
    matrix = np.array([[0, 1, 2], [3, 4, 5]])

    arrays = load(to_bytes({"fortran": np.asfortranarray(matrix), "transposed": matrix.T}))

    assert arrays["fortran"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrays["transposed"].tolist() == [[0, 3], [1, 4], [2, 5]]


# --- the length of the header ---------------------------------------------------------------------


@pytest.mark.parametrize("data_length", [7, 9, 4, 0])
def test_header_must_describe_the_whole_file(open_tensors, data_length):
    header = {
        "a": entry([1, 2], dtype="F16", offsets=(0, 4)),
        "b": entry([], dtype="F32", offsets=(4, 8)),
    }

    with pytest.raises(SavedPolicyError, match=f"8 bytes, but {data_length} follow it"):
        open_tensors(header, data=bytes(data_length))


@pytest.mark.parametrize("size", [0, 7])
def test_file_shorter_than_8_bytes_is_rejected(tmp_path, size):
    (tmp_path / "file").write_bytes(bytes(size))
    file = RegularFile(tmp_path / "file")

    with pytest.raises(SavedPolicyError, match=f"safetensors file, .* has {size} bytes"):
        TensorFile(file)

    file.close()


def test_empty_header_is_rejected(open_tensors):
    with pytest.raises(SavedPolicyError, match="its header cannot be read: "):
        open_tensors(b"")


@pytest.mark.parametrize("header_length", [3, (1 << 63) - 1], ids=["by-a-byte", "by-far"])
def test_header_longer_than_the_file_is_rejected(open_tensors, header_length):
    # The file has 10 bytes: 8 for the length, and the header {}.
    with pytest.raises(SavedPolicyError, match=f"would have {header_length} of 10 bytes") as caught:
        open_tensors({}, header_length=header_length)

    assert "bytes; at most 16777216 are allowed" in str(caught.value)


def test_header_of_16_mib_is_read(open_tensors):
    assert open_tensors(b"{}".ljust(SIXTEEN_MIB)).tensors == {}  # filled up with spaces


def test_header_of_more_than_16_mib_is_rejected(open_tensors):
    with pytest.raises(SavedPolicyError, match="would have 16777217 of 16777225 bytes"):
        open_tensors(b"{}".ljust(SIXTEEN_MIB + 1))


@pytest.fixture(scope="module")
def longest_name():
    """The name of an array with which the header is exactly 16 MiB long."""
    length_without_name = int.from_bytes(to_bytes({"": np.float32(3)})[:8], "little")
    # Headers have a multiple of 8 bytes.
    return "x" * (SIXTEEN_MIB - length_without_name)


def test_header_of_16_mib_is_written_and_read(open_tensors, longest_name):
    content = to_bytes({longest_name: np.float32(3)})

    header_length = int.from_bytes(content[:8], "little")
    assert header_length == SIXTEEN_MIB
    header = content[8 : 8 + header_length]
    data = content[8 + header_length :]
    assert open_tensors(header, data).elements == 1


def test_header_of_more_than_16_mib_is_not_written(longest_name):
    with pytest.raises(SavedPolicyError, match="1 arrays take 16777224 bytes") as caught:
        to_bytes({longest_name + 8 * "x": np.float32(3)})

    assert "bytes of a safetensors header; at most 1677" in str(caught.value)


# --- dtypes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DTYPES)
def test_arrays_of_each_dtype_are_read(open_tensors, name):
    dtype = np.dtype(DTYPES[name])
    size = 3 * dtype.itemsize

    tensors = open_tensors({"a": entry([3], dtype=name, offsets=(0, size))}, data=bytes(size))

    assert tensors.tensors["a"].dtype == dtype
    assert tensors.read(digest_of(tensors))["a"].dtype == dtype


@pytest.mark.parametrize("dtype", ["BF16", "f32", "", 3, None, [], ["F32"]], ids=repr)
def test_unknown_dtype_is_rejected(open_tensors, dtype):
    with pytest.raises(SavedPolicyError, match="'a' in its header: dtype ") as caught:
        open_tensors({"a": entry([0], dtype=dtype)})

    assert f"dtype {dtype!r} is not among BOOL, I8" in str(caught.value)


def test_describe_other_dtypes_lists_those_that_differ():
    saved_dtypes = {
        "a": np.dtype("float32"),
        "b": np.dtype("float16"),
        "c": np.dtype("int64"),
        "another-array": np.dtype("bool"),  # not among the arrays
    }
    arrays = {
        "a": np.zeros(2, np.float32),
        "b": np.zeros(2, np.float64),
        "c": np.zeros(2, np.int32),
    }

    description = describe_other_dtypes(saved_dtypes, arrays)

    assert description == "b: float16 instead of float64; c: int64 instead of int32"


def test_describe_other_dtypes_of_equal_ones_is_empty():
    assert describe_other_dtypes({"a": np.dtype("float32")}, {"a": np.float32([1])}) == ""


# --- shapes ---------------------------------------------------------------------------------------

LARGEST_SIZE = (1 << 63) - 1


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        # Arrays in these files are empty, but NumPy limits the product of the other lengths.
        pytest.param([0] * 32, "F64", id="32-axes"),
        pytest.param([1] * 31 + [0], "U8", id="32-axes-of-1"),
        pytest.param([0, LARGEST_SIZE], "U8", id="largest-size"),
        pytest.param([LARGEST_SIZE, 0, 0], "BOOL", id="largest-size-first"),
        pytest.param([0, (1 << 62) - 1], "U16", id="largest-size-of-two-bytes"),
        pytest.param([7, 0, 7], "F64", id="small"),
    ],
)
def test_largest_shapes_are_read(open_tensors, shape, dtype):
    assert open_tensors({"a": entry(shape, dtype=dtype)}).tensors["a"].shape == tuple(shape)


@pytest.mark.parametrize(
    ("shape", "dtype", "match"),
    [
        pytest.param([0] * 33, "U8", "length <= 32", id="33-axes"),
        pytest.param([0, LARGEST_SIZE + 1], "U8", "Expected `int`", id="beyond-int64"),
        pytest.param([0, 1 << 62], "U16", "is larger than any array", id="too-many-bytes"),
        pytest.param([0, 1 << 60], "F64", "is larger than any array", id="too-many-8-bytes"),
        pytest.param([1 << 40, 0, 1 << 40], "U8", "is larger than any array", id="product"),
        pytest.param([-1], "U8", "Expected `int` >= 0", id="negative"),
        pytest.param([True], "U8", "Expected `int`", id="boolean"),
    ],
)
def test_larger_shapes_are_rejected(open_tensors, shape, dtype, match):
    with pytest.raises(SavedPolicyError, match=f"'a' in its header: .*{match}"):
        open_tensors({"a": entry(shape, dtype=dtype)})
