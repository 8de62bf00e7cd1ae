"""Writing ONNX files of TensorFlow's policies, by tf2onnx."""

from __future__ import annotations

from pathlib import Path

from rlcatalog import Policy
from rlcatalog.errors import NotServedError, reason
from rlcatalog_export import Exported
from rlcatalog_export.onnx import quiet_converters, write_model
from rlcatalog_export.tf.onnx_operations import CONVERTED
from rlcatalog_export.tf.policy_function import LoweredPolicy, constant_program

#: The set of operations that files are written in.
OPSET = 18


def write_onnx(policy: Policy, path: Path) -> Exported:
    """Write a policy of TensorFlow's as an ONNX file.

    Args:
        policy: The policy.
        path: The file.

    Raises:
        NotServedError: It does something that TensorFlow cannot trace, that draws by itself, or that ONNX has no
            operation for.
    """
    import tf2onnx  # which imports TensorFlow: after the kernel has

    lowered = LoweredPolicy(policy)
    with quiet_converters("tf2onnx", "tensorflow"):
        graph = constant_program(lowered)
        inputs = {tensor.name: tensor.name.partition(":")[0] for tensor in graph.inputs if ":" in tensor.name}
        # A dict of outputs is flattened in the order of its keys.
        names = sorted(port.name for port in lowered.interface.outputs)
        outputs = {tensor.name: name for tensor, name in zip(graph.outputs, names, strict=True)}
        try:
            model, _ = tf2onnx.convert.from_graph_def(
                graph.graph.as_graph_def(), input_names=list(inputs), output_names=list(outputs), opset=OPSET,
                tensors_to_rename={**inputs, **outputs}, custom_op_handlers=CONVERTED,
            )  # fmt: skip
        except Exception as error:  # whatever it meets in a graph
            raise NotServedError(f"export: this policy has no ONNX form: {reason(error)}") from error
    write_model(model, lowered.interface, path)
    return lowered.written()
