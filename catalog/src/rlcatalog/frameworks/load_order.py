"""Import order of libraries, where one must be imported before another."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import NamedTuple


def load_first(module: str, *, before: str) -> None:
    """Make this process import `module` first whenever it imports `before`.

    Nothing is imported now. A `module` that is missing, or that cannot be imported, does no harm.
    If `before` has already been imported, this function has no effect.

    Args:
        module: The module to import first.
        before: The top-level module that must be imported after it.

    Example:
        >>> load_first("this", before="antigravity")
    """
    if (finder := _LoadFirst(module, before)) not in sys.meta_path:
        sys.meta_path.insert(0, finder)


class _LoadFirst(NamedTuple):
    """Finder that makes the loader of one module import another module first; Python's own finders
    find both.
    """

    module: str
    before: str

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec for `before`; None for any other module."""
        if fullname != self.before:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and (loader := spec.loader) is not None:
            execute = loader.exec_module

            # a search for the spec alone imports nothing.
            def exec_module(module: ModuleType) -> None:
                with contextlib.suppress(Exception):  # code that needs it raises
                    importlib.import_module(self.module)
                execute(module)

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
