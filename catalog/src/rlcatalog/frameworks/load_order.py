"""The order in which libraries are loaded: triton before TensorFlow, and TensorFlow with eager execution.

TensorFlow (2.20 and later) shows its own LLVM to every library that is loaded after it. triton, which PyTorch's CUDA
build brings and PyTorch's optimisers import, carries another LLVM; where it finds TensorFlow's in its place, the
process ends with a segmentation fault. The other way round both work. Without triton there is nothing to do.

Where Ray RLlib is the first to import TensorFlow, it turns eager execution off for the whole process.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from rlcatalog.errors import LoadOrderWarning, NotServedError


def load_first(module: str, *, before: str) -> None:
    """Import `module` whenever anything in this process imports `before`, and ahead of it.

    Nothing is imported now. A `module` that is missing, or that cannot be imported, does no harm. Where `before` was
    imported already it is too late for this: see `load_apart`.

    Args:
        module: The module to import first.
        before: The top-level module to import it ahead of.

    Example:
        >>> load_first("triton", before="tensorflow")
    """
    finder = _LoadFirst(module, before)
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)


@dataclass(frozen=True)
class _LoadFirst(MetaPathFinder):
    """Finder that has the loader of one module import another module first; Python's finders find both."""

    module: str
    before: str

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of `before`; None for every other module."""
        if fullname != self.before:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            self._prepend(spec.loader)
        return spec

    def _prepend(self, loader: Loader) -> None:
        """Import `module` when the loader executes; a search for the spec alone imports nothing."""
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            _import(self.module)
            execute(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]


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


def before_tensorflow() -> None:
    """Have triton imported ahead of TensorFlow; to be called before TensorFlow is imported.

    Where TensorFlow was imported before, turn eager execution on if it was turned off: nothing of ours works without
    it.

    Raises:
        NotServedError: Eager execution is off, and TensorFlow has been used without it.
    """
    load_first("triton", before="tensorflow")
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and not tensorflow.executing_eagerly():  # or a function is being traced, and it is on
        _turn_eager_on(tensorflow)


def _turn_eager_on(tensorflow: Any) -> None:
    try:
        tensorflow.compat.v1.enable_v2_behavior()
    except ValueError as error:
        raise NotServedError(
            "framework='tf' needs eager execution, which somebody has turned off, and TensorFlow was used without it."
            " Import rlcatalog_tf before whatever turns it off (tf.compat.v1.disable_v2_behavior)."
        ) from error


def before_torch_optimizers() -> None:
    """Warn where TensorFlow was imported before triton; to be called before PyTorch's optimisers are touched.

    triton is then loaded apart from TensorFlow: see `load_apart`.
    """
    load_apart("triton", after="tensorflow")


def _import(module: str) -> None:
    # A module that cannot be imported does no harm: code that needs it raises, and PyTorch works without triton.
    with contextlib.suppress(Exception):
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
