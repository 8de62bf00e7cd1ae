"""Writer of ONNX files for PyTorch policies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx import numpy_helper
from onnxscript import opset18

from rlcatalog import Policy
from rlcatalog_export import ExportResult
from rlcatalog_export.export_error import explain_stop
from rlcatalog_export.onnx import quiet_converters, write_model
from rlcatalog_export.onnx_operations import FORMULAS, Value
from rlcatalog_export.torch.policy_function import TorchPolicyFunction, export_program


def write_onnx(policy: Policy, path: Path) -> ExportResult:
    """Write a policy as an ONNX file.

    Args:
        policy: The policy.
        path: The file.

    Raises:
        NotServedError: The policy uses an operation that PyTorch cannot export, or that ONNX lacks.
    """
    function = TorchPolicyFunction(policy)
    program, interface = export_program(function), function.interface
    with quiet_converters("torch.onnx"):
        try:
            made = torch.onnx.export(
                program,
                dynamo=True,
                input_names=[port.name for port in interface.inputs],
                output_names=[port.name for port in interface.outputs],
                opset_version=18,
                custom_translation_table=_TRANSLATED,
                verbose=False,
            )
        except Exception as error:
            raise explain_stop(error, "has no ONNX form") from error
    assert made is not None
    write_model(made.model_proto, interface, path)
    return function.written()


class _Nodes:
    """Graph that PyTorch's exporter is constructing."""

    def add(self, operator: str, *inputs: Any, **attributes: Any) -> Any:
        """Add a node with one output, and return the output's name."""
        return getattr(opset18, operator)(*inputs, **attributes)

    def constant(self, value: Any, dtype: str | None = None) -> Any:
        """Return the name of a constant."""
        return opset18.Constant(value=numpy_helper.from_array(np.array(value, dtype)))


def _value(x: Any) -> Value:
    return Value(_Nodes(), x, x.dtype.numpy().name)


def _lgamma(x: Any) -> Any:
    return FORMULAS["lgamma"](_value(x)).name


def _searchsorted(
    ordered: Any, values: Any, *, out_int32: bool = False, right: bool = False
) -> Any:
    places = FORMULAS["searchsorted"](_value(ordered), _value(values), right)
    return places.cast("int32" if out_int32 else "int64").name


#: Operations that PyTorch's exporter does not support.
_TRANSLATED: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.lgamma.default: _lgamma,
    torch.ops.aten.searchsorted.Tensor: _searchsorted,
}
