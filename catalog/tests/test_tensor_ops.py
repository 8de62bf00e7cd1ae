"""The tables of tensor operations against NumPy by hand."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import torch

from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.frameworks import tensor_ops

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(3, 4)).astype(np.float32)
WHOLE = np.arange(6).reshape(3, 2)
HALF = np.array([[0.5], [-2], [1]], np.float16)


class Library:
    """A framework's table, its tensors and its dtypes."""

    def __init__(self, name):
        self.name, self.ops = name, tensor_ops(name)

    def __call__(self, array):
        return torch.from_numpy(np.array(array)) if self.name == "torch" else tf.constant(array)

    def dtype(self, name):
        return getattr(torch if self.name == "torch" else tf, name)

    @staticmethod
    def array(x):
        return x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)


@pytest.fixture(params=["torch", "tf"])
def lib(request):
    return Library(request.param)


def same(lib, found, expected, dtype=None):
    found = lib.array(found)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert found.shape == np.shape(expected)
    assert dtype is None or found.dtype == dtype


def test_values_become_tensors(lib):
    ops, x = lib.ops, lib(X)
    for given in (X, X.tolist(), x):
        same(lib, ops.tensor(given), X)
        same(lib, ops.tensor(given, x), X)
    same(lib, ops.booleans([[1, 0]], x), [[True, False]], bool)
    assert [ops.is_array(value) for value in (X, x, [x], {"a": x}, 1.0)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert [ops.is_float(lib(value)) for value in (X, HALF, WHOLE, X > 0)] == [
        True,
        True,
        False,
        False,
    ]
    assert [ops.is_half(lib(value)) for value in (X, HALF, WHOLE)] == [False, True, False]
    same(lib, ops.cast(lib(WHOLE), lib.dtype("float64")), WHOLE, np.float64)


def test_whole_rounds_and_finite_replaces_infinity(lib):
    same(lib, lib.ops.whole(lib(np.float32([1.9999, -3.0001]))), [2, -3], np.int64)
    same(lib, lib.ops.whole(lib(np.int32([4]))), [4], np.int32)
    for dtype in (np.float16, np.float32, np.float64):
        limit = np.finfo(dtype).max
        same(
            lib,
            lib.ops.finite(lib(np.array([-np.inf, 1, np.inf], dtype))),
            [-limit, 1, limit],
            dtype,
        )


@pytest.mark.parametrize(
    ("pieces", "dtype"),
    [
        ((WHOLE, WHOLE), np.int64),
        ((WHOLE, X), np.float32),
        ((HALF, HALF), np.float16),
        ((HALF, WHOLE), np.float32),
        ((HALF, X), np.float32),
        ((X.astype(np.float64), WHOLE, HALF), np.float64),
    ],
)
def test_columns_are_joined_in_the_widest_type(lib, pieces, dtype):
    expected = np.concatenate([piece.astype(np.float64) for piece in pieces], axis=1)
    same(lib, lib.ops.side_by_side([lib(piece) for piece in pieces]), expected, dtype)
    # A row of numbers is a column; what has more axes is made flat.
    given = [piece[:, 0] if i == 0 else piece[:, :, None] for i, piece in enumerate(pieces)]
    expected = np.concatenate([pieces[0][:, :1], *pieces[1:]], axis=1)
    same(lib, lib.ops.columns([lib(piece) for piece in given]), expected, dtype)
    same(
        lib,
        lib.ops.columns([lib(piece[:, 0]) for piece in pieces]),
        np.stack([p[:, 0] for p in pieces], 1),
        dtype,
    )


def test_rows_are_counted_and_repeated(lib):
    ops, x = lib.ops, lib(X)
    same(lib, ops.rows(x, (2,)), X.reshape(-1, 2))
    same(lib, ops.rows(x, ()), X.reshape(-1))
    same(lib, ops.in_rows(X.reshape(-1), x, 4), X)
    assert ops.in_rows(X.reshape(-1), x, 3) is None
    same(lib, ops.each_row(x, 2), np.repeat(X, 2, axis=0))
    same(lib, ops.all_rows(x, lib(X[:2])), np.tile(X, (2, 1)))
    same(lib, ops.padded(x, 6), np.pad(X, ((0, 0), (0, 2))))


def test_columns_are_cut_in_an_order(lib):
    how = SimpleNamespace(widths=(1, 3), order=None)
    for found, expected in zip(lib.ops.cut(lib(X), how), np.split(X, [1], axis=1), strict=True):
        same(lib, found, expected)

    class Turned:
        widths, order = (2, 2), (3, 0, 2, 1)

    for _ in range(2):
        for found, expected in zip(
            lib.ops.cut(lib(X), Turned()), np.split(X[:, [3, 0, 2, 1]], 2, axis=1), strict=True
        ):
            same(lib, found, expected)


def test_only_ignores_places_that_are_not_taken(lib):
    taken = np.arange(4) < np.array([0, 2, 4])[:, None]
    for lengths in (np.array([0, 2, 4]), np.float32([0, 2, 4])):
        same(lib, lib.ops.taken(lib(lengths), 4), taken, bool)
    spoilt = np.where(taken, X, np.float32(np.nan))
    same(lib, lib.ops.only(lib(taken), lib(spoilt)), np.where(taken, X, 0))
    same(lib, lib.ops.only(lib(taken[:, 1]), lib(X)), np.where(taken[:, 1:2], X, 0))


def test_arithmetic_equals_numpy(lib):
    ops, x = lib.ops, lib(X)
    same(lib, ops.total([x, x, lib(X.astype(np.float64))]), 3 * X.astype(np.float64), np.float64)
    same(lib, ops.total([x, x]), 2 * X, np.float32)
    same(lib, ops.sum(x, axis=1), X.sum(1))
    same(lib, ops.mean(x, axis=1, keepdims=True), X.mean(1, keepdims=True))
    same(lib, ops.mean(x), X.mean())
    same(lib, ops.std(x), X.std(ddof=1))
    same(lib, ops.exp(x), np.exp(X))
    same(lib, ops.minimum(x, -x), -np.abs(X))
    same(lib, ops.clip(x, -0.5, 0.25), X.clip(-0.5, 0.25))


def test_without_gradient_stops_gradients():
    x = torch.ones(2, requires_grad=True)
    assert not tensor_ops("torch").without_gradient(x).requires_grad
    with tf.GradientTape() as tape:
        x = tf.Variable([1.0])
        y = tensor_ops("tf").without_gradient(x)
    assert tape.gradient(y, x) is None


@pytest.mark.parametrize("name", ["numpy", "torch", "tf"])
def test_tensor_ops_are_pickled_and_copied_by_name(name):
    ops = tensor_ops(name)
    assert ops.framework == name
    assert pickle.loads(pickle.dumps(ops)) is copy.deepcopy(ops) is ops


def test_missing_tensor_operation_error_names_it():
    with pytest.raises(NotServedError, match="framework 'numpy' has no tensor operation 'cut'"):
        tensor_ops("numpy").cut(X, None)
    with pytest.raises(ModelContractError, match="tensorlib must be"):
        tensor_ops("jax")
