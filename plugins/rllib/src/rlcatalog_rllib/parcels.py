"""Parcels, which carry the running program's classes, and catalogs with such classes, to other
processes.
"""

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

#: Function and arguments that rebuild a parcel's content.
Sent = tuple[Callable[..., Any], tuple[Any, ...]]
#: Pickled form: names of the classes, the content with classes by name, and the content with
#: classes by value (or empty).
Letter = tuple[str, bytes, bytes]


class Parcel:
    """Object that another process imports by path or, if that fails, rebuilds from a copy of its
    code.

    Ray's workers usually have the same modules as the driver, but a process that restores a
    checkpoint may lack them.

    Args:
        content: The object in this process.
        send: Callable that returns a function, and arguments with which it rebuilds the object in
            another process.
        classes: The object's classes that belong to the running program.
        letter: The object's pickled form, if it came from another process, so that it can be passed
            on unchanged.
    """

    def __init__(
        self,
        content: Any,
        send: Callable[[], Sent],
        classes: Iterable[type],
        letter: Letter | None = None,
    ) -> None:
        self.content, self._send, self._classes, self._letter = (
            content,
            send,
            tuple(classes),
            letter,
        )

    @classmethod
    def of_code(cls, content: Any) -> Parcel:
        """Return a parcel that contains a class, an instance or a function that creates one."""
        return cls(content, lambda: (_itself, (content,)), [_named(content)])

    @classmethod
    def of_catalog(cls, content: Catalog, used: Iterable[Any]) -> Parcel:
        """Return a parcel that contains a catalog and the registered parts that are used."""
        parts = list(used)
        classes = [_named(found) for part in parts for found in part.objects.values()]
        return cls(content, lambda: content.pickled([part.address for part in parts]), classes)

    def __deepcopy__(self, memo: Any) -> Parcel:
        return self  # copies of configs stay in this process

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, self._letter or self._written()

    def _written(self) -> Letter:
        names = ", ".join(f"{cls.__module__}.{cls.__qualname__}" for cls in self._classes)
        sent, whole = self._send(), b""
        # a class's module may not be picklable.
        with _by_value(self._classes) as modules, suppress(Exception):
            whole = cloudpickle.dumps(sent) if modules else b""
        return names, cloudpickle.dumps(sent), whole


def content_of(value: Any) -> Any:
    """Return a parcel's content; return other values unchanged."""
    return value.content if isinstance(value, Parcel) else value


def packed(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model config with its classes and any custom model wrapped in parcels."""
    return {
        key: Parcel.of_code(value) if _is_code(key, value) else value
        for key, value in model.items()
    }


def unpacked(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model config with its parcels replaced by their content."""
    return {key: content_of(value) for key, value in model.items()}


def _is_code(key: str, value: Any) -> bool:
    return isinstance(value, type) or (
        key == "custom_model" and not isinstance(value, str | Parcel | None)
    )


def _named(value: Any) -> Any:
    """Return a class or function unchanged; for an instance, return its class."""
    return value if hasattr(value, "__qualname__") else type(value)


def _itself(value: Any) -> Any:
    return value


def _opened(names: str, by_name: bytes, whole: bytes) -> Parcel:
    try:
        make, arguments = cloudpickle.loads(by_name)
    except (ImportError, AttributeError) as error:
        if not whole:
            raise MissingPluginError(
                f"{names}: cannot be imported in this process: {error}. Make the module importable"
                " here, or put the class into a plugin package, which any process can find by"
                " name (`rlcatalog new`)."
            ) from error
        make, arguments = cloudpickle.loads(whole)
    return Parcel(make(*arguments), lambda: (make, arguments), (), (names, by_name, whole))


@contextmanager
def _by_value(classes: Iterable[type]) -> Iterator[list[ModuleType]]:
    """Let cloudpickle send the modules of classes by value, except those in installed packages;
    yield these modules.
    """
    installed = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib")]
    found = {
        cls.__module__: sys.modules.get(cls.__module__)
        for cls in classes
        if cls.__module__ != "__main__"
    }
    taken = [
        m
        for m in found.values()
        if m is not None and not _is_below(getattr(m, "__file__", None), installed)
    ]
    for module in taken:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield taken
    finally:
        for module in taken:
            cloudpickle.unregister_pickle_by_value(module)


def _is_below(file: str | None, folders: Iterable[Path]) -> bool:
    return file is None or any(Path(file).is_relative_to(folder) for folder in folders)
