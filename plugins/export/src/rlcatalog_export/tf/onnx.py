"""Writing ONNX files of TensorFlow's policies, by tf2onnx."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator
from pathlib import Path

import onnx

from rlcatalog import Policy
from rlcatalog.errors import NotServedError, reason
from rlcatalog_export import Exported
from rlcatalog_export.onnx import INTERFACE, write_sealed
from rlcatalog_export.tf.lowering import LoweredPolicy, constant_program
from rlcatalog_export.tf.onnx_operations import CONVERTED

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
    interface = lowered.interface
    with _quiet():
        graph = constant_program(lowered)
    inputs = {tensor.name: tensor.name.partition(":")[0] for tensor in graph.inputs if ":" in tensor.name}
    # A dict of outputs is flattened in the order of its keys.
    names = sorted(port.name for port in interface.outputs)
    outputs = {tensor.name: name for tensor, name in zip(graph.outputs, names, strict=True)}
    with _quiet():
        try:
            model, _ = tf2onnx.convert.from_graph_def(
                graph.graph.as_graph_def(), input_names=list(inputs), output_names=list(outputs), opset=OPSET,
                tensors_to_rename={**inputs, **outputs}, custom_op_handlers=CONVERTED,
            )  # fmt: skip
        except Exception as error:  # whatever it meets in a graph
            raise NotServedError(f"export: this policy has no ONNX form: {reason(error)}") from error
    model.producer_name, model.producer_version = "rlcatalog", interface.rlcatalog
    onnx.helper.set_model_props(model, {INTERFACE: interface.to_json()})
    write_sealed(model.SerializeToString(), path)
    return lowered.written()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep to itself what the converter and TensorFlow say of their own working."""
    loggers = [logging.getLogger(name) for name in ("tf2onnx", "tensorflow")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
