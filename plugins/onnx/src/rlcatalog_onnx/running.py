"""Running ONNX files with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from rlcatalog.errors import SavedPolicyError

Array = np.ndarray[Any, Any]

#: Key under which the file's metadata hold the interface.
INTERFACE = "rlcatalog"


class OnnxRunner:
    """An ONNX file in memory, ready to run on the CPU with one thread, which is the fastest for small batches.

    Args:
        path: The file.

    Attributes:
        interface: What the file says of its inputs and outputs, as JSON.

    Raises:
        SavedPolicyError: It cannot be read, or holds no policy.
    """

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own errors have no common base
            raise SavedPolicyError(f"{path}: cannot be read: {error}") from error
        found = self._session.get_modelmeta().custom_metadata_map.get(INTERFACE)
        if found is None:
            raise SavedPolicyError(f"{path}: an ONNX file, and no policy that rlcatalog exported.")
        self.interface: str = found

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Sequence[Array]:
        """Return the outputs of these names for inputs by name."""
        found: Sequence[Array] = self._session.run(outputs, feeds)
        return found
