"""Operations on Keras' symbolic tensors in ported TensorFlow models."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rlcatalog_compat import operations


def test_product_with_a_number_is_not_a_sparse_input():
    inputs = keras.layers.Input((2,))
    # Keras 3 marks the product as sparse.
    outputs = operations.apply(lambda x: tf.expand_dims(x, 1), inputs * 2.0)

    model = keras.Model(inputs, outputs)

    assert model(np.array([[1.0, 2.0]])).numpy().tolist() == [[[2.0, 4.0]]]


def test_sparse_input_stays_sparse():
    inputs = keras.layers.Input((2,), sparse=True)
    outputs = operations.apply(lambda x: tf.sparse.to_dense(x) + 1.0, inputs)
    model = keras.Model(inputs, outputs)

    rows = tf.sparse.from_dense(np.array([[0.0, 3.0]], np.float32))

    assert model(rows).numpy().tolist() == [[1.0, 4.0]]


def test_lifted_function_takes_symbolic_tensors():
    inputs = keras.layers.Input((2,))

    model = keras.Model(inputs, operations.lift(tf.nn.relu)(inputs))

    assert model(np.array([[-1.0, 2.0]])).numpy().tolist() == [[0.0, 2.0]]


def test_lifted_function_takes_other_tensors():
    relu = operations.lift(tf.nn.relu)

    assert relu(tf.constant([-1.0])).numpy().tolist() == [0.0]
    assert relu.__name__ == "relu"


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("steps", [1, 3])
def test_time_distributed_convolution_takes_any_rows_and_steps(rows, steps):
    convolution = keras.layers.Conv2D(2, 3)
    inputs = keras.layers.Input((None, 5, 5, 2))
    model = keras.Model(inputs, operations.time_distributed(convolution)(inputs))
    compute = tf.function(model, input_signature=[tf.TensorSpec((None, None, 5, 5, 2))])
    images = np.random.default_rng(0).random((rows, steps, 5, 5, 2)).astype(np.float32)

    # Each step alone.
    expected = np.stack([convolution(images[:, i]) for i in range(steps)], axis=1)
    np.testing.assert_allclose(compute(images), expected, rtol=1e-5, atol=1e-6)
