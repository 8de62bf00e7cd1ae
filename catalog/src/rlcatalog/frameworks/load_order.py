"""The order in which libraries are imported, where one must come before another: `load_first`, `load_apart`."""

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

from rlcatalog.errors import LoadOrderWarning


def load_first(module: str, *, before: str) -> None:
    """Import `module` whenever anything in this process imports `before`, and ahead of it.

    Nothing is imported now. A `module` that is missing, or that cannot be imported, does no harm. Where `before` was
    imported already it is too late for this: see `load_apart`.

    Args:
        module: The module to import first.
        before: The top-level module to import it ahead of.

    Example:
        >>> load_first("this", before="antigravity")
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
