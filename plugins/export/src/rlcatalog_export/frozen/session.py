"""Running a recorded graph: inputs and outputs keep their memory from one step to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime

from rlcatalog.errors import NotServedError

Array = np.ndarray[Any, Any]


class Session:
    """A graph in memory on one thread, ready to run.

    Args:
        content: The model.
        inputs: Name → the array that is read at each run; its memory is used as it is.
        constants: Inputs that may be taken for constant until `content` is run in another session.
        outputs: Name → dtype and shape.

    Raises:
        NotServedError: onnxruntime has no kernel for some operation.
    """

    def __init__(
        self, content: bytes, inputs: Mapping[str, Array], outputs: Mapping[str, tuple[str, tuple[int, ...]]]
    ) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own errors have no common base
            raise NotServedError(f"freeze: onnxruntime cannot run this policy: {error}") from error
        self._binding = self._session.io_binding()
        asked = {one.name for one in self._session.get_inputs()}
        self._inputs = dict(inputs)
        for name, array in inputs.items():
            if name in asked:
                self._binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        self.outputs = {name: np.zeros(shape, dtype) for name, (dtype, shape) in outputs.items()}
        for name, array in self.outputs.items():
            self._binding.bind_ortvalue_output(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        self._run = self._session.run_with_iobinding

    def run(self) -> None:
        """Run the graph on what the inputs hold; the outputs' arrays hold what came of it."""
        self._run(self._binding)
