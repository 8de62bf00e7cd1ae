"""Tensor operations of PyTorch and TensorFlow: dtypes, and what the conformance kit leaves out.

The kit compares each operation with NumPy (`operations_are_those_of_numpy`).
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import tensorflow as tf
import torch

from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.frameworks import tensor_ops

RANDOM = np.random.default_rng(0)
#: Arrays of three rows, and of each kind of dtype.
FLOATS = RANDOM.normal(size=(3, 4)).astype(np.float32)
INTEGERS = np.arange(6).reshape(3, 2)
HALVES = np.array([[0.5], [-2], [1]], np.float16)


@pytest.fixture
def ops(framework):
    """The table of a framework's tensor operations."""
    return tensor_ops(framework)


@pytest.fixture
def tensor(framework):
    """Make a tensor of the framework from an array."""

    def make(array):
        if framework == "torch":
            return torch.from_numpy(np.array(array))
        return tf.constant(array)

    return make


def assert_equal(tensor, expected, dtype=None):
    """Check the values and the shape of a tensor, and its dtype if one is given."""
    array = tensor.numpy()
    np.testing.assert_allclose(array, expected, rtol=1e-6, atol=1e-6)
    assert array.shape == np.shape(expected)
    if dtype is not None:
        assert array.dtype == dtype


# --- values and dtypes ----------------------------------------------------------------------------


def test_tensor_is_made_of_arrays_lists_and_tensors(ops, tensor):
    assert_equal(ops.tensor(FLOATS), FLOATS)
    assert_equal(ops.tensor(FLOATS.tolist()), FLOATS)
    assert_equal(ops.tensor(tensor(FLOATS)), FLOATS)


def test_tensor_is_made_like_another_one(ops, tensor):
    other = tensor(FLOATS)

    assert_equal(ops.tensor(FLOATS, other), FLOATS)
    assert_equal(ops.tensor(FLOATS.tolist(), other), FLOATS)
    assert_equal(ops.tensor(other, other), FLOATS)


def test_is_array_tells_tensors_from_structures(ops, tensor):
    assert ops.is_array(FLOATS)
    assert ops.is_array(tensor(FLOATS))
    assert not ops.is_array([tensor(FLOATS)])
    assert not ops.is_array({"a": tensor(FLOATS)})
    assert not ops.is_array(1.0)


@pytest.mark.parametrize(
    ("array", "is_float", "is_half"),
    [
        pytest.param(FLOATS, True, False, id="float32"),
        pytest.param(HALVES, True, True, id="float16"),
        pytest.param(INTEGERS, False, False, id="int64"),
        pytest.param(FLOATS > 0, False, False, id="bool"),
    ],
)
def test_is_float_and_is_half_tell_dtypes(ops, tensor, array, is_float, is_half):
    assert ops.is_float(tensor(array)) == is_float
    assert ops.is_half(tensor(array)) == is_half


def test_cast_takes_a_dtype_of_the_library(ops, tensor, framework):
    float64 = {"torch": torch.float64, "tf": tf.float64}[framework]

    assert_equal(ops.cast(tensor(INTEGERS), float64), INTEGERS, np.float64)


def test_whole_rounds_floats_to_int64(ops, tensor):
    almost_whole = tensor(np.float32([1.9999, -3.0001]))

    assert_equal(ops.whole(almost_whole), [2, -3], np.int64)


def test_whole_keeps_integers(ops, tensor):
    assert_equal(ops.whole(tensor(np.int32([4]))), [4], np.int32)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_finite_replaces_infinity_by_the_limit_of_the_dtype(ops, tensor, dtype):
    numbers = tensor(np.array([-np.inf, 1, np.inf], dtype))
    limit = np.finfo(dtype).max

    assert_equal(ops.finite(numbers), [-limit, 1, limit], dtype)


# --- columns --------------------------------------------------------------------------------------


each_mix_of_dtypes = pytest.mark.parametrize(
    ("arrays", "dtype"),
    [
        pytest.param((INTEGERS, INTEGERS), np.int64, id="integers"),
        pytest.param((INTEGERS, FLOATS), np.float32, id="integers-and-floats"),
        pytest.param((HALVES, HALVES), np.float16, id="halves"),
        # A float16 cannot hold all integers.
        pytest.param((HALVES, INTEGERS), np.float32, id="halves-and-integers"),
        pytest.param((HALVES, FLOATS), np.float32, id="halves-and-floats"),
        pytest.param((FLOATS.astype(np.float64), INTEGERS, HALVES), np.float64, id="all"),
    ],
)


@each_mix_of_dtypes
def test_side_by_side_joins_in_the_widest_dtype(ops, tensor, arrays, dtype):
    joined = ops.side_by_side([tensor(array) for array in arrays])

    assert_equal(joined, np.concatenate(arrays, axis=1), dtype)


@each_mix_of_dtypes
def test_columns_joins_vectors_in_the_widest_dtype(ops, tensor, arrays, dtype):
    first_columns = [array[:, 0] for array in arrays]

    joined = ops.columns([tensor(column) for column in first_columns])

    assert_equal(joined, np.stack(first_columns, axis=1), dtype)


@each_mix_of_dtypes
def test_columns_flattens_tensors_with_more_axes(ops, tensor, arrays, dtype):
    first, *others = arrays
    tensors = [tensor(first[:, 0]), *(tensor(array[:, :, None]) for array in others)]

    joined = ops.columns(tensors)

    assert_equal(joined, np.concatenate([first[:, :1], *others], axis=1), dtype)


class Columns:
    """How to cut columns: their widths, and their order."""

    def __init__(self, widths, order):
        self.widths = widths
        self.order = order


def test_cut_puts_columns_into_an_order(ops, tensor):
    columns = Columns(widths=(2, 2), order=(3, 0, 2, 1))

    # The order is kept for later calls, so that the second one takes another way.
    for _ in range(2):
        left, right = ops.cut(tensor(FLOATS), columns)

        assert_equal(left, FLOATS[:, [3, 0]])
        assert_equal(right, FLOATS[:, [2, 1]])


def test_in_rows_is_none_for_another_number_of_values(ops, tensor):
    # Three rows of width 3 have 9 values, not 12.
    assert ops.in_rows(FLOATS.reshape(-1), tensor(FLOATS), 3) is None


def test_only_takes_whole_rows(ops, tensor):
    rows = np.array([False, True, True])

    numbers = ops.only(tensor(rows), tensor(FLOATS))

    assert_equal(numbers, np.where(rows[:, None], FLOATS, 0))


# --- arithmetic -----------------------------------------------------------------------------------


def test_total_has_the_widest_dtype(ops, tensor):
    x = tensor(FLOATS)
    wider = tensor(FLOATS.astype(np.float64))

    assert_equal(ops.total([x, x, wider]), 3 * FLOATS.astype(np.float64), np.float64)


def test_without_gradient_stops_gradients_of_pytorch():
    x = torch.ones(2, requires_grad=True)

    assert not tensor_ops("torch").without_gradient(x).requires_grad


def test_without_gradient_stops_gradients_of_tensorflow():
    with tf.GradientTape() as tape:
        x = tf.Variable([1.0])
        y = tensor_ops("tf").without_gradient(x)

    assert tape.gradient(y, x) is None


# --- tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["numpy", "torch", "tf"])
def test_tensor_ops_are_pickled_and_copied_by_name(framework):
    ops = tensor_ops(framework)

    assert ops.framework == framework
    assert pickle.loads(pickle.dumps(ops)) is ops
    assert copy.deepcopy(ops) is ops


def test_missing_tensor_operation_error_names_it():
    with pytest.raises(NotServedError, match="'numpy' has no tensor operation 'cut'"):
        tensor_ops("numpy").cut(FLOATS, None)


def test_tensor_ops_of_unknown_library_are_an_error():
    with pytest.raises(ModelContractError, match="tensorlib must be"):
        tensor_ops("jax")
