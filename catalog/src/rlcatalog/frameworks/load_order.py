"""The order in which libraries are loaded: triton before TensorFlow, and TensorFlow with eager execution.

TensorFlow (2.20 and later) shows its own LLVM to every library that is loaded after it. triton, which PyTorch's CUDA
build brings and PyTorch's optimisers import, carries another LLVM; where it finds TensorFlow's in its place, the
process ends with a segmentation fault. The other way round both work. Without triton there is nothing to do.

Where Ray RLlib is the first to import TensorFlow, it turns eager execution off for the whole process.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import sys
import warnings
from typing import Any

from rlcatalog.errors import LoadOrderWarning, NotServedError


def before_tensorflow() -> None:
    """Import triton where it is installed and TensorFlow is about to be imported; to be called before that.

    Where TensorFlow was imported before, it turns eager execution on if somebody has turned it off: nothing of ours
    works without it. Else it does nothing where triton is missing or was imported. Importing triton takes about 0.3 s.

    Raises:
        NotServedError: Eager execution is off, and TensorFlow has been used without it.
    """
    if (tensorflow := sys.modules.get("tensorflow")) is not None:
        if not tensorflow.executing_eagerly():  # or a function is being traced, and it is on already
            _turn_eager_on(tensorflow)
    elif _is_waiting("triton") and importlib.util.find_spec("tensorflow") is not None:
        _import_triton()


def _turn_eager_on(tensorflow: Any) -> None:
    try:
        tensorflow.compat.v1.enable_v2_behavior()
    except ValueError as error:
        raise NotServedError(
            "framework='tf' needs eager execution, which somebody has turned off, and TensorFlow was used without it."
            " Import rlcatalog.tf before whatever turns it off (tf.compat.v1.disable_v2_behavior)."
        ) from error


def before_torch_optimizers() -> None:
    """Warn where TensorFlow was imported before triton; to be called before PyTorch's optimisers are touched.

    triton is then loaded so that it looks for its LLVM in itself first. The C library must be able to do that (glibc
    is), and nobody promises that it helps with every version; hence the warning.
    """
    if not tensorflow_came_first():
        return
    _warn()
    deep = getattr(os, "RTLD_DEEPBIND", None)
    if deep is not None:
        flags = sys.getdlopenflags()
        sys.setdlopenflags(os.RTLD_NOW | deep)
        try:
            _import_triton()
        finally:
            sys.setdlopenflags(flags)


def tensorflow_came_first() -> bool:
    """Whether TensorFlow is loaded and triton, though installed, is not: importing it now would end the process."""
    return "tensorflow" in sys.modules and _is_waiting("triton")


def _is_waiting(module: str) -> bool:
    """Whether a module is installed and was not imported yet."""
    return module not in sys.modules and importlib.util.find_spec(module) is not None


def _import_triton() -> None:
    # A triton that cannot be imported does no harm: PyTorch goes on without it.
    with contextlib.suppress(Exception):
        importlib.import_module("triton")


@functools.cache
def _warn() -> None:
    warnings.warn(
        "TensorFlow was imported before triton, which PyTorch's optimisers import: with both in one process that order"
        " ends it with a segmentation fault. triton is loaded apart from TensorFlow here, where the system can, which"
        " has been seen to help. To be safe, import rlcatalog.tf or triton before tensorflow and before"
        " whatever imports it, such as ray.rllib; or install PyTorch's CPU build, which needs no triton.",
        LoadOrderWarning,
        stacklevel=3,
    )
