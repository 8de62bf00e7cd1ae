"""Writer of ONNX files for PyTorch policies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from onnx import numpy_helper
from onnxscript import opset18

from rlcatalog import Policy
from rlcatalog.errors import NotServedError
from rlcatalog_export import ExportResult
from rlcatalog_export.export_error import explain_missing_form
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
    _refuse_projections(policy)
    function = TorchPolicyFunction(policy)
    program = export_program(function)
    interface = function.interface
    with quiet_converters("torch.onnx"):
        try:
            exported = torch.onnx.export(
                program,
                dynamo=True,
                input_names=[port.name for port in interface.inputs],
                output_names=[port.name for port in interface.outputs],
                opset_version=18,
                custom_translation_table=_TRANSLATED,
                verbose=False,
            )
        except Exception as error:
            raise explain_missing_form(error) from error
    assert exported is not None  # it is None only when it writes a file itself
    write_model(exported.model_proto, interface, path)
    return function.written()


def _refuse_projections(policy: Policy) -> None:
    """Raise an error if a policy has an LSTM with projections, for which PyTorch 2.13 writes a node
    with a state of the wrong width.
    """
    model: Any = policy.model  # a module of PyTorch
    for module in model.modules():
        if isinstance(module, torch.nn.LSTM) and module.proj_size:
            raise NotServedError(
                "export: PyTorch writes no valid ONNX file for nn.LSTM with proj_size. Export the"
                " policy as '.pt2', or leave proj_size out."
            )


class Symbol(Protocol):
    """A value in the graph of PyTorch's exporter."""

    dtype: Any


class _Nodes:
    """Graph that PyTorch's exporter is constructing."""

    def add(self, operator: str, *inputs: Any, **attributes: Any) -> Any:
        """Add a node with one output, and return the output's name."""
        # onnxscript has a method for each operator.
        return getattr(opset18, operator)(*inputs, **attributes)

    def constant(self, value: Any, dtype: str | None = None) -> Any:
        """Return the name of a constant."""
        return opset18.Constant(value=numpy_helper.from_array(np.array(value, dtype)))


def _value_of(symbol: Symbol) -> Value:
    """Return a value of the exporter's graph for use in formulas."""
    return Value(_Nodes(), symbol, symbol.dtype.numpy().name)


def _translate_lgamma(x: Symbol) -> Symbol:
    return FORMULAS["lgamma"](_value_of(x)).name  # type: ignore[no-any-return]


def _translate_searchsorted(
    ordered: Symbol, values: Symbol, *, out_int32: bool = False, right: bool = False
) -> Symbol:
    places = FORMULAS["searchsorted"](_value_of(ordered), _value_of(values), right)
    return places.cast("int32" if out_int32 else "int64").name  # type: ignore[no-any-return]


#: Operations that PyTorch's exporter does not support.
_TRANSLATED: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.lgamma.default: _translate_lgamma,
    torch.ops.aten.searchsorted.Tensor: _translate_searchsorted,
}
