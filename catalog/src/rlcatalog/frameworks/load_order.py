"""Import order of libraries, where one must be imported before another."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType


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
    _LoadFirst(before, module).install()


@dataclass(frozen=True)
class ImportGuard:
    """Finder that makes this process execute one module inside a context manager, on every path on
    which it is imported; Python's own finders find the module.

    Attributes:
        guarded: The module's name.
    """

    guarded: str

    def context(self) -> AbstractContextManager[None]:
        """Return the context in which the module is executed."""
        raise NotImplementedError(f"{type(self).__name__} must implement context().")

    def install(self) -> None:
        """Guard the module from now on; installing an equal guard again has no effect."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the guarded module; None for any other module."""
        if fullname != self.guarded:
            return None
        spec = self._spec_of_others(fullname, path, target)
        if spec is not None and spec.loader is not None:
            self._guard_execution(spec.loader)
        return spec

    def _spec_of_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        """Return the first spec that another finder has for a module."""
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None

    def _guard_execution(self, loader: Loader) -> None:
        """Make a loader execute its module inside the context; finding the spec does not enter it,
        because a search does not import the module.
        """
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with self.context():
                execute(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]


@dataclass(frozen=True)
class _LoadFirst(ImportGuard):
    """Guard that imports another module first."""

    module: str

    @contextlib.contextmanager
    def context(self) -> Iterator[None]:
        # An error is left to the code that needs the module: it imports it and sees the error.
        with contextlib.suppress(Exception):
            importlib.import_module(self.module)
        yield
