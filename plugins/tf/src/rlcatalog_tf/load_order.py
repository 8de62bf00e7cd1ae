"""What must be so before TensorFlow is used: triton imported first, and eager execution on.

TensorFlow (2.20 and later) shows its own LLVM to every library that is loaded after it. triton, which PyTorch's CUDA
build brings and PyTorch's optimisers import, carries another LLVM; where it finds TensorFlow's in its place, the
process ends with a segmentation fault. The other way round both work. Without triton there is nothing to do.

Where Ray RLlib is the first to import TensorFlow, it turns eager execution off for the whole process.
"""

from __future__ import annotations

import sys
from typing import Any

from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import load_first


def before_tensorflow() -> None:
    """Have triton imported ahead of TensorFlow; to be called before TensorFlow is imported.

    Where TensorFlow was imported before, turn eager execution on if it was turned off: nothing of ours works without
    it.

    Raises:
        NotServedError: Eager execution is off, and TensorFlow has been used without it.
    """
    load_first("triton", before="tensorflow")
    tensorflow: Any = sys.modules.get("tensorflow")
    if tensorflow is None or tensorflow.executing_eagerly():
        return
    try:  # where a function is being traced, it is on already
        tensorflow.compat.v1.enable_v2_behavior()
    except ValueError as error:
        raise NotServedError(
            "framework='tf' needs eager execution, which somebody has turned off, and TensorFlow was used without it."
            " Import rlcatalog_tf before whatever turns it off (tf.compat.v1.disable_v2_behavior)."
        ) from error
