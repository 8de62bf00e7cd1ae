"""Writer of ONNX files for TensorFlow policies, based on tf2onnx."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from rlcatalog import Policy
from rlcatalog.errors import NotServedError, raised_as
from rlcatalog_export import ExportResult
from rlcatalog_export.onnx import quiet_converters, write_model
from rlcatalog_export.onnx_graph import OPSET
from rlcatalog_export.onnx_operations import FORMULAS, Value
from rlcatalog_export.tf.policy_function import TFPolicyFunction
from rlcatalog_tf.private_api import with_constants


def write_onnx(policy: Policy, path: Path) -> ExportResult:
    """Write a TensorFlow policy as an ONNX file.

    Args:
        policy: The policy.
        path: The file.

    Raises:
        NotServedError: The policy does something that TensorFlow cannot trace, uses TensorFlow's
            random numbers, or needs an operation that ONNX lacks.
    """
    import tf2onnx  # imports TensorFlow, so import it after the kernel

    function = TFPolicyFunction(policy)
    with quiet_converters("tf2onnx", "tensorflow"):
        graph = with_constants(function.program)
        # TensorFlow's names end in the output's number: "obs:0".
        inputs = {
            tensor.name: tensor.name.partition(":")[0]
            for tensor in graph.inputs
            if ":" in tensor.name
        }
        # A dict of outputs is flattened in the order of its keys.
        names = sorted(port.name for port in function.interface.outputs)
        outputs = {tensor.name: name for tensor, name in zip(graph.outputs, names, strict=True)}
        with raised_as(
            lambda why: NotServedError(f"export: this policy cannot be converted to ONNX: {why}")
        ):
            model, _ = tf2onnx.convert.from_graph_def(
                graph.graph.as_graph_def(),
                input_names=list(inputs),
                output_names=list(outputs),
                opset=OPSET,
                tensors_to_rename={**inputs, **outputs},
                custom_op_handlers=CONVERTED,
            )
    write_model(model, function.interface, path)
    return function.written()


class _Nodes:
    """Builder for the nodes that replace a TensorFlow node.

    Args:
        graph: Input of tf2onnx.
        name: Prefix of the nodes' names.
    """

    def __init__(self, graph: Any, name: str) -> None:
        self._graph = graph
        self._prefix = name
        self._count = 0

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, and return the output's name."""
        node = self._graph.make_node(
            operator, list(inputs), attr=attributes, name=self._name(operator)
        )
        return str(node.output[0])

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Return the name of a constant."""
        return str(self._graph.make_const(self._name("constant"), np.array(value, dtype)).output[0])

    def _name(self, what: str) -> str:
        self._count += 1
        return f"{self._prefix}__{what}_{self._count}"


def _dtype_name(onnx_dtype: int) -> str:
    return str(tensor_dtype_to_np_dtype(onnx_dtype).name)


def _converter(formula: Callable[..., Value]) -> tuple[Callable[..., None], list[str]]:
    """Return a tf2onnx converter that replaces a node with a formula on its inputs."""

    def convert(graph: Any, node: Any, name: str, _arguments: Any) -> None:
        nodes = _Nodes(graph, name)
        values = [Value(nodes, x, _dtype_name(graph.get_dtype(x))) for x in node.input]
        [output] = node.output
        dtype = graph.get_dtype(output)
        shape = graph.get_shape(output)
        result = formula(*values).cast(_dtype_name(dtype))
        # The new node takes the old one's place, and the name of its output.
        graph.remove_node(node.name)
        graph.make_node("Identity", [result.name], outputs=[output], dtypes=[dtype], shapes=[shape])

    no_arguments: list[str] = []
    return convert, no_arguments


#: TensorFlow operations that tf2onnx does not support, or only without infinite numbers: it selects
#: between tensors by multiplying with 0 and 1.
CONVERTED = {
    "Log1p": _converter(FORMULAS["log1p"]),
    "Lgamma": _converter(FORMULAS["lgamma"]),
    "LowerBound": _converter(FORMULAS["searchsorted"]),
    "SelectV2": _converter(FORMULAS["where"]),
}
