"""triton before TensorFlow: PyTorch's optimisers import the one, and the process may end where the other was first.

`rlcatalog_tf.load_order` says why.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
import warnings

from rlcatalog.errors import LoadOrderWarning


def before_torch_optimizers() -> None:
    """Warn where TensorFlow was imported before triton; to be called before PyTorch's optimisers are touched.

    triton is then imported so that its shared libraries look for their symbols in themselves first, not in those of
    TensorFlow. That needs a C library that can do so, such as glibc; elsewhere triton is left alone.
    """
    if not came_first("tensorflow", "triton"):
        return
    _warn()
    deep = getattr(os, "RTLD_DEEPBIND", None)
    if deep is not None:
        flags = sys.getdlopenflags()
        sys.setdlopenflags(os.RTLD_NOW | deep)
        try:
            _import("triton")
        finally:
            sys.setdlopenflags(flags)


def came_first(early: str, late: str) -> bool:
    """Whether `early` is imported and `late`, though installed, is not."""
    return early in sys.modules and late not in sys.modules and importlib.util.find_spec(late) is not None


def _import(module: str) -> None:
    with contextlib.suppress(Exception):  # PyTorch works without triton
        importlib.import_module(module)


@functools.cache
def _warn() -> None:
    warnings.warn(
        "tensorflow was imported before triton. Both in one process, in that order, can end it with a segmentation"
        " fault. triton is loaded apart from tensorflow here, where the system can, which has been seen to help."
        " To be safe, put `import triton` in front of what imports tensorflow.",
        LoadOrderWarning,
        stacklevel=3,
    )
