"""Import order of triton, which PyTorch's optimisers import, and TensorFlow: triton can crash if it
comes second.

See `rlcatalog_tf.load_order` for the reason.
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
    """Warn if TensorFlow was imported before triton.

    Call this function before you use PyTorch's optimisers.

    In this case, it imports triton in a mode in which triton's shared libraries look up their own
    symbols before TensorFlow's symbols. This needs a C library that supports the mode, such as
    glibc; with other libraries, the function does not import triton.
    """
    if not came_first("tensorflow", "triton"):
        return
    _warn()
    if (deep := getattr(os, "RTLD_DEEPBIND", None)) is not None:
        flags = sys.getdlopenflags()
        sys.setdlopenflags(os.RTLD_NOW | deep)
        try:
            _import("triton")
        finally:
            sys.setdlopenflags(flags)


def came_first(early: str, late: str) -> bool:
    """Return whether `early` is imported, and `late` is installed but not imported."""
    return (
        early in sys.modules
        and late not in sys.modules
        and importlib.util.find_spec(late) is not None
    )


def _import(module: str) -> None:
    with contextlib.suppress(Exception):  # PyTorch works without triton
        importlib.import_module(module)


@functools.cache
def _warn() -> None:
    warnings.warn(
        "TensorFlow was imported before triton. With this order, the process can end with a"
        " segmentation fault. rlcatalog isolates triton's libraries if the system allows it, which"
        " usually helps. To be safe, put `import triton` before `import tensorflow`.",
        LoadOrderWarning,
        stacklevel=3,
    )
