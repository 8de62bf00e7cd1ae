"""Forms: PyTorch's operations in ONNX's words, each a function that adds nodes to a graph."""

from rlcatalog_export.onnx_operations import layers, numbers, places, sums  # noqa: F401, they enter their forms
from rlcatalog_export.onnx_operations.table import FORMS, dtype_of

__all__ = ["FORMS", "dtype_of"]
