"""Builder for ONNX graphs, and a function that runs them with inputs and outputs at fixed
addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

from rlcatalog.errors import NotServedError, raised_as
from rlcatalog.frameworks import Array
from rlcatalog_export.onnx import session_of

OPSET = 18
#: ONNX's IR version for it, which all current onnxruntime versions read.
_IR = 9


def type_of(dtype: str) -> int:
    """Return the ONNX code of a dtype."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


class GraphOutput(NamedTuple):
    """Output of a graph.

    Attributes:
        name: The output's name.
        value: Name of the value in the graph.
        dtype: The value's dtype.
        shape: The value's shape.
    """

    name: str
    value: str
    dtype: str
    shape: tuple[int, ...]


class Graph:
    """Builder for a graph of nodes, inputs and constants."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._constants: list[Any] = []
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._count = 0

    def input(self, name: str, dtype: str, shape: tuple[int, ...]) -> str:
        """Add an input and return its name."""
        self._inputs.append(helper.make_tensor_value_info(name, type_of(dtype), shape))
        return name

    def constant(self, value: Any, dtype: str | None = None) -> str:
        """Return the name of a constant."""
        array = np.ascontiguousarray(np.asarray(value, dtype)).reshape(np.shape(value))
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._known:
            name = self._known[key] = self._name("c")
            self._constants.append(numpy_helper.from_array(array, name))
        return self._known[key]

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, and return the output's name."""
        return self.several(1, operator, *inputs, **attributes)[0]

    def several(self, count: int, operator: str, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node with several outputs, and return their names."""
        outputs = [self._name("x") for _ in range(count)]
        self._nodes.append(helper.make_node(operator, inputs, outputs, **attributes))
        return outputs

    def model(
        self,
        outputs: Sequence[GraphOutput],
        fixed: Mapping[str, Array] | None = None,
    ) -> bytes:
        """Return the graph as the content of an ONNX file.

        Args:
            outputs: The graph's outputs.
            fixed: Inputs that become constants, and their values.
        """
        fixed = fixed or {}
        nodes = list(self._nodes)
        infos = []
        for output in outputs:
            # This node gives the value the output's name.
            nodes.append(helper.make_node("Identity", [output.value], [output.name]))
            code = type_of(output.dtype)
            infos.append(helper.make_tensor_value_info(output.name, code, output.shape))
        inputs = [info for info in self._inputs if info.name not in fixed]
        constants = list(self._constants)
        for name, array in fixed.items():
            constants.append(numpy_helper.from_array(array, name))
        graph = helper.make_graph(nodes, "policy", inputs, infos, constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=_IR, producer_name="rlcatalog"
        )
        return model.SerializeToString()  # type: ignore[no-any-return]

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"


def bind_graph(
    content: bytes, inputs: Mapping[str, Array], outputs: Mapping[str, tuple[str, tuple[int, ...]]]
) -> tuple[Callable[[], None], dict[str, Array]]:
    """Return a function that runs a graph on one thread with the current inputs, and the output
    arrays.

    Args:
        content: The model.
        inputs: For each input name, the array to read in each run; its memory is used directly.
        outputs: For each name, the dtype and the shape.

    Raises:
        NotServedError: onnxruntime has no kernel for an operation.
    """
    with raised_as(
        lambda why: NotServedError(f"freeze: onnxruntime cannot run this policy: {why}")
    ):
        session = session_of(content)
    binding = session.io_binding()
    arrays = {name: np.zeros(shape, dtype) for name, (dtype, shape) in outputs.items()}
    # These values share the arrays' memory.
    for graph_input in session.get_inputs():
        input_value = onnxruntime.OrtValue.ortvalue_from_numpy(inputs[graph_input.name])
        binding.bind_ortvalue_input(graph_input.name, input_value)
    for name, array in arrays.items():
        output_value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_output(name, output_value)
    return partial(session.run_with_iobinding, binding), arrays
