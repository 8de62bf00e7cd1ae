"""Import order of triton and TensorFlow: triton can crash if it comes second.

PyTorch imports triton where it first needs it: in optimisers, `torch.compile`, `torch.export` and
others. See `rlcatalog_tf.load_order` for the reason of the crash.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from rlcatalog.errors import LoadOrderWarning
from rlcatalog.frameworks import ImportGuard, load_first

#: TensorFlow has loaded its libraries if this module is imported. The top-level module is there
#: before that, when `load_first` imports triton.
_TENSORFLOW_LIBRARIES = "tensorflow.python"


def guard_triton() -> None:
    """Make sure that triton can be imported, by any code and at any time, beside TensorFlow.

    If TensorFlow is imported later, triton is imported before it. If TensorFlow came first, triton
    is isolated from it, with a warning, when something imports triton.
    """
    load_first("triton", before="tensorflow")
    _IsolateTriton("triton").install()


@dataclass(frozen=True)
class _IsolateTriton(ImportGuard):
    """Guard for triton after TensorFlow: its shared libraries look up their own symbols before
    TensorFlow's symbols.

    This needs a C library that supports such lookups, such as glibc. With other libraries, there is
    only the warning.
    """

    @contextlib.contextmanager
    def context(self) -> Iterator[None]:
        """Return a context in which to import triton."""
        if _TENSORFLOW_LIBRARIES not in sys.modules:
            yield
            return
        _warn()
        flags_before = sys.getdlopenflags()
        # With this flag, a library looks up its own symbols first. Python defines it only where the
        # C library has it.
        deep_bind = getattr(os, "RTLD_DEEPBIND", 0)
        sys.setdlopenflags(os.RTLD_NOW | deep_bind)
        try:
            yield
        finally:
            sys.setdlopenflags(flags_before)


@functools.cache
def _warn() -> None:
    warnings.warn(
        "TensorFlow was imported before triton. With this order, the process can end with a"
        " segmentation fault. rlcatalog isolates triton's libraries if the system allows it, which"
        " usually helps. To be safe, put `import triton` before `import tensorflow`.",
        LoadOrderWarning,
        stacklevel=2,
    )
