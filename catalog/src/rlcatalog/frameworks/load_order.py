"""Import order of libraries, where one must be imported before another."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
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
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and (loader := spec.loader) is not None:
            execute = loader.exec_module

            # A search for the spec alone does not enter the context.
            def exec_module(module: ModuleType) -> None:
                with self.context():
                    execute(module)

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


@dataclass(frozen=True)
class _LoadFirst(ImportGuard):
    """Guard that imports another module first."""

    module: str

    @contextlib.contextmanager
    def context(self) -> Iterator[None]:
        with contextlib.suppress(Exception):  # code that needs it raises
            importlib.import_module(self.module)
        yield
