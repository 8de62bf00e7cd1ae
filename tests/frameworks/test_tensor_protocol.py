"""`Tensor`: framework-neutral code gets from a framework's tensors what it gets from arrays."""

import operator

import numpy as np
import pytest
import tensorflow as tf
import torch

VALUES = np.array([1.0, 2.0, 4.0], np.float32)
MAKERS = {"torch": torch.tensor, "tf": tf.constant, "tf-variable": tf.Variable}
OPERATIONS = {
    "x + 2": lambda x: x + 2,
    "2 + x": lambda x: 2 + x,
    "x - 2": lambda x: x - 2,
    "2 - x": lambda x: 2 - x,
    "x * 2": lambda x: x * 2,
    "2 * x": lambda x: 2 * x,
    "x / 2": lambda x: x / 2,
    "x ** 2": lambda x: x**2,
    "-x": operator.neg,
    "x < 2": lambda x: x < 2,
    "x <= 2": lambda x: x <= 2,
    "x > 2": lambda x: x > 2,
    "x >= 2": lambda x: x >= 2,
    "x[1:]": lambda x: x[1:],
    "x.shape": lambda x: tuple(x.shape),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
@pytest.mark.parametrize("make_tensor", MAKERS.values(), ids=MAKERS)
def test_tensor_operation_gives_the_result_of_numpy(make_tensor, operation):
    np.testing.assert_array_equal(operation(make_tensor(VALUES)), operation(VALUES))


@pytest.mark.parametrize("make_tensor", MAKERS.values(), ids=MAKERS)
def test_tensor_names_its_dtype(make_tensor):
    assert "float32" in str(make_tensor(VALUES).dtype)
