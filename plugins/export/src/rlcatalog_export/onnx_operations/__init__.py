"""ONNX operations: PyTorch operations for frozen policies, and formulas that ONNX lacks."""

from rlcatalog_export.onnx_operations import elementwise, layers, reductions, shapes  # noqa: F401, they register forms
from rlcatalog_export.onnx_operations.elementwise import FORMULAS
from rlcatalog_export.onnx_operations.graph_values import FORMS, Value, dtype_of

__all__ = ["FORMS", "FORMULAS", "Value", "dtype_of"]
