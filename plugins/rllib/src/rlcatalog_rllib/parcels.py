"""Parcels, which carry the running program's classes, and catalogs with such classes, to other
processes.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from ray import cloudpickle as untyped

from rlcatalog import Catalog
from rlcatalog.errors import MissingPluginError
from rlcatalog.plugins import Part

cloudpickle: Any = untyped

#: Code that users bring: a class, an instance of one, or a function that creates one.
Code: TypeAlias = "type | Callable[..., Any]"
#: Function and arguments that rebuild a parcel's content.
Sent = tuple[Callable[..., Any], tuple[Any, ...]]
#: Pickled form: names of the classes, the content with classes by name, and the content with
#: classes by value (or empty).
Letter = tuple[str, bytes, bytes]
#: Config keys whose values contain code in turn: the config of a critic, and nets by path.
_CRITIC = "critic"
_NETS = "input_nets"


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
        self.content = content
        self._send = send
        self._classes = tuple(classes)
        self._letter = letter

    @classmethod
    def of_code(cls, content: Code) -> Parcel:
        """Return a parcel that contains a class, an instance or a function that creates one."""
        return cls(content, partial(_send_itself, content), [_class_or_function(content)])

    @classmethod
    def of_catalog(cls, content: Catalog, used: Iterable[Part]) -> Parcel:
        """Return a parcel that contains a catalog and the registered parts that are used."""
        parts = list(used)
        classes = []
        for part in parts:
            classes += [_class_or_function(code) for code in part.objects.values()]
        addresses = [part.address for part in parts]
        return cls(content, partial(content.pickled, addresses), classes)

    def __deepcopy__(self, memo: dict[int, Any]) -> Parcel:
        return self  # copies of configs stay in this process

    def __reduce__(self) -> tuple[Any, ...]:
        # Checkpoints contain the names of this function and of `_itself`.
        return _opened, self._letter or self._write()

    def _write(self) -> Letter:
        """Pickle the content."""
        names = ", ".join(f"{cls.__module__}.{cls.__qualname__}" for cls in self._classes)
        sent = self._send()
        by_value = b""
        # A class's module may not be picklable. The letter then has no copy of the code, which is
        # enough for a process that can import the class.
        with _pickle_modules_by_value(self._classes) as modules, suppress(Exception):
            if modules:
                by_value = cloudpickle.dumps(sent)
        return names, cloudpickle.dumps(sent), by_value


def content_of(value: Any) -> Any:
    """Return a parcel's content; return other values unchanged."""
    return value.content if isinstance(value, Parcel) else value


def packed(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model config with its classes, and any model or memory, wrapped in parcels."""
    return {key: _packed_value(key, value) for key, value in model.items()}


def _packed_value(key: str, value: Any) -> Any:
    """Return the value of a config key with its code wrapped in parcels."""
    if key == _CRITIC and isinstance(value, Mapping):
        return packed(value)
    if key == _NETS and isinstance(value, Mapping):
        # Each net is named as a custom model is.
        return {path: _packed_value("custom_model", net) for path, net in value.items()}
    names_code = key in ("custom_model", "memory")
    is_code = names_code and not isinstance(value, str | Parcel | None)
    if is_code or isinstance(value, type):
        return Parcel.of_code(value)
    return value


def unpacked(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model config with its parcels replaced by their content."""
    config = {}
    for key, value in model.items():
        if key in (_CRITIC, _NETS) and isinstance(value, Mapping):
            config[key] = unpacked(value)
        else:
            config[key] = content_of(value)
    return config


def _class_or_function(code: Code) -> Any:
    """Return a class or function unchanged; for an instance, return its class."""
    # Classes and functions have this attribute, instances of users' classes do not.
    return code if hasattr(code, "__qualname__") else type(code)


def _send_itself(code: Code) -> Sent:
    """Return a function and an argument that rebuild code that pickles itself."""
    return _itself, (code,)


def _itself(code: Code) -> Code:
    return code


def _opened(names: str, by_name: bytes, by_value: bytes) -> Parcel:
    """Return the parcel for a letter from another process.

    Args:
        names: Names of the content's classes, for error messages.
        by_name: The pickled content, which refers to its classes by name.
        by_value: The pickled content with a copy of the classes' code; empty if there is none.

    Raises:
        MissingPluginError: A class cannot be imported here, and the letter has no copy of its code.
    """
    try:
        make, arguments = cloudpickle.loads(by_name)
    except (ImportError, AttributeError) as error:
        if not by_value:
            raise MissingPluginError(
                f"{names}: cannot be imported in this process: {error}. Make the module importable"
                " here, or put the class into a plugin package, which any process can find by"
                " name (`rlcatalog new`)."
            ) from error
        make, arguments = cloudpickle.loads(by_value)

    def send_again() -> Sent:
        return make, arguments

    # The letter can be passed on unchanged, so the content's classes are not needed.
    letter = (names, by_name, by_value)
    return Parcel(make(*arguments), send_again, classes=(), letter=letter)


@contextmanager
def _pickle_modules_by_value(classes: Iterable[type]) -> Iterator[list[ModuleType]]:
    """Let cloudpickle send the modules of classes by value, except those in installed packages;
    yield these modules.
    """
    modules: list[ModuleType] = []
    # Cloudpickle always sends the classes of `__main__` by value. A dict keeps the names' order.
    names = dict.fromkeys(cls.__module__ for cls in classes if cls.__module__ != "__main__")
    # What the program itself registered stays registered.
    registered_names = cloudpickle.list_registry_pickle_by_value()
    for name in names:
        module = sys.modules.get(name)
        if module is None or name in registered_names or _is_installed(module):
            continue
        modules.append(module)
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield modules
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _is_installed(module: ModuleType) -> bool:
    """Return whether a module belongs to Python or to an installed package."""
    file = getattr(module, "__file__", None)  # a module that is compiled into Python has no file
    if file is None:
        return True
    folders = [sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")]
    return any(Path(file).is_relative_to(folder) for folder in folders)
