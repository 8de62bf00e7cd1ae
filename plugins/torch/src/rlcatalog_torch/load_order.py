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

    triton is then loaded apart from TensorFlow: see `load_apart`.
    """
    load_apart("triton", after="tensorflow")


def load_apart(module: str, *, after: str) -> None:
    """Import `module`, and warn, where `after` was imported before it.

    The module's shared libraries then look for their symbols in themselves first, not in those of `after`. That needs
    a C library that can do so, such as glibc; elsewhere the module is left alone. Does nothing where `after` was not
    imported, or `module` is missing or was imported.
    """
    if not came_first(after, module):
        return
    _warn(module, after)
    deep = getattr(os, "RTLD_DEEPBIND", None)
    if deep is not None:
        flags = sys.getdlopenflags()
        sys.setdlopenflags(os.RTLD_NOW | deep)
        try:
            _import(module)
        finally:
            sys.setdlopenflags(flags)


def came_first(early: str, late: str) -> bool:
    """Whether `early` is imported and `late`, though installed, is not."""
    return early in sys.modules and late not in sys.modules and importlib.util.find_spec(late) is not None


def _import(module: str) -> None:
    with contextlib.suppress(Exception):  # PyTorch works without triton
        importlib.import_module(module)


@functools.cache
def _warn(module: str, after: str) -> None:
    warnings.warn(
        f"{after} was imported before {module}. Both in one process, in that order, can end it with a segmentation"
        f" fault. {module} is loaded apart from {after} here, where the system can, which has been seen to help."
        f" To be safe, put `import {module}` in front of what imports {after}.",
        LoadOrderWarning,
        stacklevel=4,
    )
