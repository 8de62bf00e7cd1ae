"""Parcels: classes of the running program, and catalogs that hold such, on their way to other processes."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from ray import cloudpickle as untyped

from rlcatalog import Catalog
from rlcatalog.errors import MissingPluginError

cloudpickle: Any = untyped

#: What a parcel sends: a function, and its arguments, that make the content again.
Sent = tuple[Callable[..., Any], tuple[Any, ...]]
#: What it is pickled as: the names of its classes, and what it sends, with them by name and as they are (or nothing).
Letter = tuple[str, bytes, bytes]


class Parcel:
    """Something that another process finds by its import path or, where that is not importable there, as it is here.

    Ray's workers usually run the same modules; a process that restores a checkpoint may not have them.

    Args:
        content: What the parcel stands for in this process.
        send: Returns what makes it again in another.
        classes: The classes of the running program that it holds.
        letter: What it was made of where it came from another process, to be sent on as it is.
    """

    def __init__(
        self, content: Any, send: Callable[[], Sent], classes: Iterable[type], letter: Letter | None = None
    ) -> None:
        self.content, self._send, self._classes, self._letter = content, send, tuple(classes), letter

    @classmethod
    def of_code(cls, content: Any) -> Parcel:
        """Return the parcel of a class, or of an instance or a function that makes one."""
        return cls(content, lambda: (_itself, (content,)), [_named(content)])

    @classmethod
    def of_catalog(cls, content: Catalog, used: Iterable[Any]) -> Parcel:
        """Return the parcel of a catalog, with the components of it that are registered and used."""
        parts = list(used)
        classes = [_named(found) for part in parts for found in part.objects.values()]
        return cls(content, lambda: content.pickled([part.address for part in parts]), classes)

    def __deepcopy__(self, memo: Any) -> Parcel:
        return self  # Ray copies configs, which stay in this process

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, self._letter or self._written()

    def _written(self) -> Letter:
        names = ", ".join(f"{cls.__module__}.{cls.__qualname__}" for cls in self._classes)
        sent, whole = self._send(), b""
        with _by_value(self._classes) as modules, suppress(Exception):  # what is beside a class may not come along
            whole = cloudpickle.dumps(sent) if modules else b""
        return names, cloudpickle.dumps(sent), whole


def content_of(value: Any) -> Any:
    """Return what is in a parcel; anything else as it is."""
    return value.content if isinstance(value, Parcel) else value


def packed(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model config with its classes in parcels, and a custom model of any other kind."""
    return {key: Parcel.of_code(value) if _is_code(key, value) else value for key, value in model.items()}


def unpacked(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model config with what is in its parcels."""
    return {key: content_of(value) for key, value in model.items()}


def _is_code(key: str, value: Any) -> bool:
    return isinstance(value, type) or (key == "custom_model" and not isinstance(value, str | Parcel | None))


def _named(value: Any) -> Any:
    """Return the class or function of a module; of an instance its class."""
    return value if hasattr(value, "__qualname__") else type(value)


def _itself(value: Any) -> Any:
    return value


def _opened(names: str, by_name: bytes, whole: bytes) -> Parcel:
    try:
        make, arguments = cloudpickle.loads(by_name)
    except (ImportError, AttributeError) as error:
        if not whole:
            raise MissingPluginError(
                f"{names}: cannot be imported in this process: {error}. Make the module importable here, or put the"
                " class into a plugin package, which every process finds by its name (rlcatalog new)."
            ) from error
        make, arguments = cloudpickle.loads(whole)
    return Parcel(make(*arguments), lambda: (make, arguments), (), (names, by_name, whole))


@contextmanager
def _by_value(classes: Iterable[type]) -> Iterator[list[ModuleType]]:
    """Let cloudpickle take the modules of classes along, but for those of installed packages; gives these modules."""
    installed = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib")]
    found = {cls.__module__: sys.modules.get(cls.__module__) for cls in classes if cls.__module__ != "__main__"}
    taken = [m for m in found.values() if m is not None and not _is_below(getattr(m, "__file__", None), installed)]
    for module in taken:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield taken
    finally:
        for module in taken:
            cloudpickle.unregister_pickle_by_value(module)


def _is_below(file: str | None, folders: Iterable[Path]) -> bool:
    return file is None or any(Path(file).is_relative_to(folder) for folder in folders)
