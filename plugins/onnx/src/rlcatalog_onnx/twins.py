"""Writing ONNX files of TensorFlow's policies: through their twins in PyTorch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlcatalog import Policy
from rlcatalog.export import Exported, twin_of
from rlcatalog_onnx.torch import write_onnx


def write_onnx_of_twin(policy: Policy, path: Path) -> Exported:
    """Write a policy of any framework as an ONNX file, by way of the same policy in PyTorch.

    Args:
        policy: The policy.
        path: The file.

    Raises:
        NotServedError: A part of it has no code for PyTorch, or does something that cannot be exported.
    """
    written = write_onnx(twin_of(policy, "torch"), path, framework=policy.framework)
    return replace(written, original=policy)
