"""`Tensor`: framework-neutral code gets from a framework's tensors what it gets from arrays."""

import operator

import numpy as np
import pytest
import tensorflow as tf
import torch

VALUES = np.array([1.0, 2.0, 4.0], np.float32)
TENSORS = {
    "torch": torch.tensor(VALUES),
    "tf": tf.constant(VALUES),
    "tf-variable": tf.Variable(VALUES),
}
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
@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS)
def test_tensor_operation_gives_the_result_of_numpy(tensor, operation):
    np.testing.assert_array_equal(operation(tensor), operation(VALUES))


@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS)
def test_tensor_names_its_dtype(tensor):
    assert "float32" in str(tensor.dtype)
