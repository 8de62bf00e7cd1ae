"""TensorFlow's operations as ONNX operations, against NumPy and SciPy."""

import numpy as np
import pytest
from scipy.special import gammaln

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
tf2onnx = pytest.importorskip("tf2onnx", reason="tf2onnx is not installed")
onnxruntime = pytest.importorskip(
    "onnxruntime", reason="needs rlcatalog-export, which is not installed here"
)
CONVERTED = pytest.importorskip("rlcatalog_export.tf.onnx").CONVERTED


def run_in_onnx(function, x):
    """Convert a function of TensorFlow to an ONNX graph, and return what it computes."""
    signature = [tf.TensorSpec([None], x.dtype, "x")]
    traced = tf.function(function, input_signature=signature, autograph=False)
    model, _ = tf2onnx.convert.from_function(
        traced, signature, opset=18, custom_op_handlers=CONVERTED
    )
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log1p_matches_numpy(dtype):
    x = np.array([-1, -0.999, -1e-8, -0.0, 0, 1e-8, 1e-4, 0.5, 1, 1e6, 3e38], dtype)

    result = run_in_onnx(tf.math.log1p, x)

    with np.errstate(divide="ignore"):  # log(0)
        expected = np.log1p(x)
    assert result.dtype == dtype
    np.testing.assert_allclose(result, expected, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize(
    ("dtype", "rtol", "atol"), [(np.float32, 1e-6, 1e-7), (np.float64, 1e-11, 1e-11)]
)
def test_lgamma_matches_scipy(dtype, rtol, atol):
    x = np.array([1e-6, 0.3, 1, 1.5, 2, 7, 30.5, 1e4], dtype)

    result = run_in_onnx(tf.math.lgamma, x)

    assert result.dtype == dtype
    np.testing.assert_allclose(result, gammaln(x.astype(np.float64)), rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_searchsorted_matches_numpy(dtype):
    x = np.array([-3, 0, 1, 2, 5, 9], dtype)
    sorted_numbers = np.array([0, 1, 1, 5], dtype)

    places = run_in_onnx(lambda x: tf.searchsorted(tf.constant(sorted_numbers), x), x)

    np.testing.assert_array_equal(places, np.searchsorted(sorted_numbers, x))


def test_where_keeps_infinite_numbers():
    x = np.array([-np.inf, -1, 0, 2, np.inf], np.float32)

    result = run_in_onnx(lambda x: tf.where(x > 0, x, tf.zeros([], tf.float32)), x)

    np.testing.assert_array_equal(result, [0, 0, 0, 2, np.inf])
