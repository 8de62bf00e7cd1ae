"""TensorFlow's operations in those of ONNX, held to NumPy and SciPy."""

import numpy as np
import pytest
from scipy.special import gammaln

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
tf2onnx = pytest.importorskip("tf2onnx", reason="tf2onnx is not installed")
onnxruntime = pytest.importorskip(
    "onnxruntime", reason="needs rlcatalog-export, which is not installed here"
)
CONVERTED = pytest.importorskip("rlcatalog_export.tf.onnx").CONVERTED

EDGES = np.array([-1, -0.999, -1e-8, -0.0, 0, 1e-8, 1e-4, 0.5, 1, 1e6, 3e38])


def converted(function, x):
    """Return what a function computes as an ONNX graph."""
    signature = [tf.TensorSpec([None], x.dtype, "x")]
    traced = tf.function(function, input_signature=signature, autograph=False)
    model, _ = tf2onnx.convert.from_function(
        traced, signature, opset=18, custom_op_handlers=CONVERTED
    )
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log1p(dtype):
    x = EDGES.astype(dtype)
    with np.errstate(divide="ignore"):
        expected = np.log1p(x)
    found = converted(tf.math.log1p, x)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lgamma(dtype):
    x = np.array([1e-6, 0.3, 1, 1.5, 2, 7, 30.5, 1e4], dtype)
    found = converted(tf.math.lgamma, x)
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found,
        gammaln(x.astype(np.float64)),
        rtol=1e-6 if dtype == np.float32 else 1e-11,
        atol=1e-7 if dtype == np.float32 else 1e-11,
    )


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_places_among_sorted_numbers(dtype):
    x = np.array([-3, 0, 1, 2, 5, 9], dtype)
    found = converted(lambda x: tf.searchsorted(tf.constant([0, 1, 1, 5], dtype), x), x)
    np.testing.assert_array_equal(found, np.searchsorted(np.array([0, 1, 1, 5], dtype), x))


def test_a_choice_survives_infinite_numbers():
    x = np.array([-np.inf, -1, 0, 2, np.inf], np.float32)
    found = converted(lambda x: tf.where(x > 0, x, tf.zeros([], tf.float32)), x)
    np.testing.assert_array_equal(found, [0, 0, 0, 2, np.inf])
