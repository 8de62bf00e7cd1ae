"""The default catalog, and its lookups as functions."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from rlcatalog.catalog.catalog import Catalog
from rlcatalog.config.flat import FlatConfig, ReadOnlyConfig
from rlcatalog.plugins.loader import refuse_while_loading

if TYPE_CHECKING:
    from rlcatalog.plugins.request import PartsCatalog

P = ParamSpec("P")
T = TypeVar("T")

_CREATING = threading.RLock()


@cache
def _default() -> Catalog:
    return Catalog()


def default_catalog() -> Catalog:
    """Return the default catalog of this process.

    The first call creates it; concurrent first calls create only one.

    Raises:
        PluginError: A plugin calls this function while it is being loaded.
    """
    refuse_while_loading()
    with _CREATING:
        return _default()


def catalog_of(config: Mapping[str, Any] | None) -> PartsCatalog:
    """Return the catalog of the lookup that parsed a model config, or the default catalog for any
    other config.

    Args:
        config: The config that a part received; None has no catalog.
    """
    catalog = None
    if isinstance(config, FlatConfig | ReadOnlyConfig):
        catalog = config.catalog
    return catalog or default_catalog()


#: For tests: the next call creates a new one.
default_catalog.cache_clear = _default.cache_clear  # type: ignore[attr-defined]


def _of_default(method: Callable[Concatenate[Catalog, P], T]) -> Callable[P, T]:
    """Return a `Catalog` method as a function that uses the default catalog."""

    @wraps(method)
    def function(*args: P.args, **kwargs: P.kwargs) -> T:
        return method(default_catalog(), *args, **kwargs)

    # Pickle finds the function under this name.
    function.__module__ = __name__
    function.__qualname__ = method.__name__
    signature = inspect.signature(method)
    _, *parameters = signature.parameters.values()  # without self
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


explain = _of_default(Catalog.explain)
wrap_env = _of_default(Catalog.wrap_env)
refresh = _of_default(Catalog.refresh)
register_model = _of_default(Catalog.register_model)
register_action_dist = _of_default(Catalog.register_action_dist)
register_preprocessor = _of_default(Catalog.register_preprocessor)
register_filter = _of_default(Catalog.register_filter)
