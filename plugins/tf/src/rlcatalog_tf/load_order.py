"""Preparations for importing TensorFlow: triton is imported first, and eager execution is on.

Since version 2.20, TensorFlow exports its LLVM library's symbols to every library that is loaded
afterwards. PyTorch's CUDA build includes triton, which PyTorch's optimisers import and which uses a
different LLVM. If triton finds TensorFlow's symbols, the process ends with a segmentation fault. If
triton is imported first, both work.

If Ray RLlib imports TensorFlow first, it turns off eager execution for the whole process.
"""

from __future__ import annotations

import sys
from typing import Any

from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import load_first


def before_tensorflow() -> None:
    """Make sure that triton is imported before TensorFlow.

    Call this function before you import TensorFlow.

    If TensorFlow is already imported and eager execution is off, turn it on, because rlcatalog
    needs it.

    Raises:
        NotServedError: Eager execution is off, and TensorFlow has already been used without it.
    """
    load_first("triton", before="tensorflow")
    tensorflow: Any = sys.modules.get("tensorflow")
    if tensorflow is None or tensorflow.executing_eagerly():
        return
    # While a function is being traced, it is already on, and this call does nothing.
    try:
        tensorflow.compat.v1.enable_v2_behavior()
    except ValueError as error:
        raise NotServedError(
            "framework='tf' needs eager execution, but it is turned off, and TensorFlow was"
            " already used without it. Import tensorflow before Ray RLlib, which turns eager"
            " execution off if it imports TensorFlow first, or before other code that calls"
            " tf.compat.v1.disable_v2_behavior()."
        ) from error
