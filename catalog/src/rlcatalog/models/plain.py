"""Plain modules: their frameworks, their names, and copies of their instances."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from rlcatalog import public_index
from rlcatalog.errors import MissingPluginError
from rlcatalog.frameworks import frameworks, require_framework
from rlcatalog.frameworks.table import framework_of
from rlcatalog.plugins import install_hints
from rlcatalog.plugins.loader import condition_of

#: Whether models are built from deep copies of instances, so that a second model has separate
#: weights.
_COPYING: ContextVar[bool] = ContextVar("rlcatalog_copying", default=False)


@contextmanager
def copying_instances() -> Iterator[None]:
    """Return a context manager in which new models use deep copies of the module instances in a
    config.
    """
    before = _COPYING.set(True)
    try:
        yield
    finally:
        _COPYING.reset(before)


def copies_instances() -> bool:
    """Return whether a new model uses a deep copy of a module instance."""
    return _COPYING.get()


def frameworks_of_plain(source: Callable[..., Any]) -> list[str]:
    """Return the frameworks of a plain module: one for a class or instance, all for a factory, none
    for anything else.

    Raises:
        MissingPluginError: The package that supports plain modules is missing, disabled or failed
            to load.
        NotServedError: Its framework does not support plain modules.
    """
    cls = source if isinstance(source, type) else type(source)
    # A model class, ours or RLlib's, or an instance of one is no plain module.
    if "ModelV2" in [base.__name__ for base in cls.__mro__]:
        return []
    framework = framework_of(cls)
    if framework is not None:
        # The class belongs to a framework, but need not be a module.
        require_framework(framework.name)
        if framework.target("plain") is not None:
            is_module = framework.load("plain").is_module(source)
            return [framework.name] if is_module else []
        provider = public_index.provider_of("framework", f"{framework.name}: plain")
        if provider is not None:
            hint = install_hints.how_to_get(provider, condition_of(provider))
            raise MissingPluginError(f"a plain module as a model {hint}")
    is_factory = inspect.isroutine(source) or isinstance(source, functools.partial)
    if is_factory:
        return [name for name, spec in frameworks().items() if spec.target("plain") is not None]
    return []


def code_of(source: Callable[..., Any]) -> Any:
    """Return the class or function after which a plain module is named; for an
    instance, its class.
    """
    while isinstance(source, functools.partial):
        source = source.func
    # Classes and functions have the attribute; a user's instance has not.
    if hasattr(source, "__qualname__"):
        return source
    framework = framework_of(type(source))
    if framework is None:
        return type(source)
    module = framework.load("plain").unwrapped(source)
    return type(module)
