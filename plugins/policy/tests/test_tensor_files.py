"""Arrays in safetensors files: what their headers may say, up to the last byte."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from safetensors.numpy import load

from rlcatalog.errors import SavedPolicyError
from rlcatalog_policy import RegularFile, TensorFile, to_bytes
from rlcatalog_policy.tensors import DTYPES, describe_other_dtypes

LONGEST = 1 << 24


@pytest.fixture
def opened(tmp_path):
    """Write a header and data, and open them as tensors: `opened(header, data)`."""
    files = []

    def make(header, data=b"", length=None):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        path = tmp_path / "weights.safetensors"
        path.write_bytes(
            (len(text) if length is None else length).to_bytes(8, "little") + text + data
        )
        files.append(RegularFile(path))
        return TensorFile(files[-1])

    yield make
    for file in files:
        file.close()


def entry(shape, dtype="F32", offsets=(0, 0)):
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


def test_shapes_and_dtypes_are_known_before_the_arrays_are_read(opened):
    two = {"b": entry([2, 3], "F32", (0, 24)), "a": entry([], "I64", (24, 32))}
    data = np.arange(6, dtype="<f4").tobytes() + np.int64(7).tobytes()
    file = opened({"__metadata__": {"by": "hand"}, **two}, data)
    assert {name: (info.shape, info.dtype) for name, info in file.tensors.items()} == {
        "b": ((2, 3), np.dtype("float32")),
        "a": ((), np.dtype("int64")),
    }
    assert file.elements == 7
    arrays = file.read(hashlib.sha256(file.file.read()).hexdigest())
    np.testing.assert_array_equal(arrays["b"], [[0, 1, 2], [3, 4, 5]])
    assert arrays["a"] == 7
    with pytest.raises(
        SavedPolicyError, match=r"truncated or changed since it was saved \(its checksum differs\)"
    ):
        file.read("0" * 64)


def test_bytes_that_safetensors_refuses_are_named(opened):
    file = opened({"a": entry([], "F32", (0, 4)), "b": entry([], "F32", (0, 4))}, bytes(8))
    with pytest.raises(SavedPolicyError, match="not a safetensors file, truncated or changed"):
        file.read(hashlib.sha256(file.file.read()).hexdigest())


@pytest.mark.parametrize("data", [7, 9, 4, 0])
def test_header_describes_the_whole_file(opened, data):
    with pytest.raises(
        SavedPolicyError, match=f"its header describes 8 bytes, but {data} follow it"
    ):
        opened({"a": entry([1, 2], "F16", (0, 4)), "b": entry([], "F32", (4, 8))}, bytes(data))


def test_file_may_have_no_arrays(opened):
    file = opened({})
    assert file.tensors == {}
    assert file.elements == 0
    assert opened({"a": entry([0, 5])}).elements == 0


@pytest.mark.parametrize("size", [0, 7])
def test_file_shorter_than_a_length_is_refused(tmp_path, size):
    (tmp_path / "file").write_bytes(bytes(size))
    file = RegularFile(tmp_path / "file")
    with pytest.raises(SavedPolicyError, match=f"not a safetensors file, .*: it has {size} bytes"):
        TensorFile(file)
    file.close()


def test_eight_bytes_have_an_empty_header(opened):
    with pytest.raises(SavedPolicyError, match="its header cannot be read: "):
        opened(b"")


def test_header_does_not_go_beyond_the_file(opened):
    with pytest.raises(
        SavedPolicyError, match="its header would have 3 of 10 bytes; at most 16777216 are allowed"
    ):
        opened({}, length=3)
    with pytest.raises(
        SavedPolicyError, match="its header would have 9223372036854775807 of 10 bytes"
    ):
        opened({}, length=(1 << 63) - 1)


def test_header_may_have_16_mib(opened):
    assert opened(b"{}".ljust(LONGEST)).tensors == {}
    with pytest.raises(SavedPolicyError, match="its header would have 16777217 of 16777225 bytes"):
        opened(b"{}".ljust(LONGEST + 1))


def test_header_that_can_be_written_can_be_read(opened):
    rest = int.from_bytes(to_bytes({"": np.zeros((), np.float32)})[:8], "little")  # a multiple of 8
    content = to_bytes({"x" * (LONGEST - rest): np.float32(3)})
    length = int.from_bytes(content[:8], "little")
    assert length == LONGEST
    assert opened(content[8 : 8 + length], content[8 + length :]).elements == 1
    with pytest.raises(
        SavedPolicyError,
        match=r"1 arrays take 16777224 bytes of a safetensors header; at most 1677",
    ):
        to_bytes({"x" * (LONGEST - rest + 8): np.float32(3)})


def test_arrays_are_written_in_c_order():
    array = np.asfortranarray(np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(
        load(to_bytes({"a": array, "b": array.T}))["b"], [[0, 3], [1, 4], [2, 5]]
    )


@pytest.mark.parametrize("name", DTYPES)
def test_each_dtype_is_that_of_numpy(opened, name):
    dtype = np.dtype(DTYPES[name])
    file = opened({"a": entry([3], name, (0, 3 * dtype.itemsize))}, bytes(3 * dtype.itemsize))
    assert file.tensors["a"].dtype == dtype
    digest = hashlib.sha256(file.file.read()).hexdigest()
    assert file.read(digest)["a"].dtype == dtype


@pytest.mark.parametrize("dtype", ["BF16", "f32", "", 3, None, [], ["F32"]], ids=repr)
def test_other_dtypes_are_refused(opened, dtype):
    with pytest.raises(
        SavedPolicyError, match=r"'a' in its header: dtype .* is not among BOOL, I8"
    ) as caught:
        opened({"a": entry([0], dtype)})
    assert f"dtype {dtype!r} is" in str(caught.value)


LARGEST = (1 << 63) - 1


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ([0] * 32, "F64"),
        ([1] * 31 + [0], "U8"),
        ([0, LARGEST], "U8"),
        ([LARGEST, 0, 0], "BOOL"),
        ([0, (1 << 62) - 1], "U16"),
        ([7, 0, 7], "F64"),
    ],
)
def test_largest_shapes_are_read(opened, shape, dtype):
    assert opened({"a": entry(shape, dtype)}).tensors["a"].shape == tuple(shape)


@pytest.mark.parametrize(
    ("shape", "dtype", "why"),
    [
        ([0] * 33, "U8", "length <= 32"),
        ([0, LARGEST + 1], "U8", r"Expected `int`"),
        ([0, 1 << 62], "U16", "is larger than any array"),
        ([0, 1 << 60], "F64", "is larger than any array"),
        ([1 << 40, 0, 1 << 40], "U8", "is larger than any array"),
        ([-1], "U8", "Expected `int` >= 0"),
        ([True], "U8", "Expected `int`"),
    ],
)
def test_larger_shapes_are_refused(opened, shape, dtype, why):
    with pytest.raises(
        SavedPolicyError, match=f"'a' in its header: {why}|'a' in its header: .*{why}"
    ):
        opened({"a": entry(shape, dtype)})


def test_dtypes_that_differ_are_listed():
    arrays = {
        "a": np.zeros(2, np.float32),
        "b": np.zeros(2, np.float64),
        "c": np.zeros(2, np.int32),
    }
    given = {
        "a": np.dtype("float32"),
        "b": np.dtype("float16"),
        "c": np.dtype("int64"),
        "other": np.dtype("bool"),
    }
    assert (
        describe_other_dtypes(given, arrays)
        == "b: float16 instead of float64; c: int64 instead of int32"
    )
    assert describe_other_dtypes({"a": np.dtype("float32")}, arrays) == ""
