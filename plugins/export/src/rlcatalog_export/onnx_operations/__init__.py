"""Operations in ONNX's words: those of PyTorch that a frozen policy is recorded in, and formulas that ONNX lacks."""

from rlcatalog_export.onnx_operations import elementwise, layers, reductions, shapes  # noqa: F401, they enter forms
from rlcatalog_export.onnx_operations.elementwise import FORMULAS
from rlcatalog_export.onnx_operations.table import FORMS, Value, dtype_of

__all__ = ["FORMS", "FORMULAS", "Value", "dtype_of"]
