"""The default catalog, its lookups as functions, and environments by id."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from rlcatalog.catalog.catalog import Catalog
from rlcatalog.errors import UnknownNameError, reason, shown
from rlcatalog.plugins.loader import refuse_while_loading

P = ParamSpec("P")
T = TypeVar("T")

_making = threading.RLock()


@cache
def _default() -> Catalog:
    return Catalog()


def default_catalog() -> Catalog:
    """Return the catalog of the process, made at the first call; of several threads' first calls one makes it.

    Raises:
        PluginError: A plugin asks for it while it is loaded.
    """
    refuse_while_loading()
    with _making:
        return _default()


#: For tests: the next call makes another.
default_catalog.cache_clear = _default.cache_clear  # type: ignore[attr-defined]


def _of_default(method: Callable[Concatenate[Catalog, P], T]) -> Callable[P, T]:
    """Return a method of catalogs as a function: the default catalog's."""

    @wraps(method)
    def function(*args: P.args, **kwargs: P.kwargs) -> T:
        return method(default_catalog(), *args, **kwargs)

    function.__module__, function.__qualname__ = __name__, method.__name__  # where pickle finds it
    signature = inspect.signature(method)
    _, *parameters = signature.parameters.values()
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


explain = _of_default(Catalog.explain)
wrap_env = _of_default(Catalog.wrap_env)
refresh = _of_default(Catalog.refresh)
register_model = _of_default(Catalog.register_model)
register_action_dist = _of_default(Catalog.register_action_dist)
register_preprocessor = _of_default(Catalog.register_preprocessor)
register_filter = _of_default(Catalog.register_filter)


def look_here(module: str) -> None:
    """Let a module that was named and lies in the working folder be found, as `python` finds it; others come first."""
    root, here = module.partition(".")[0], Path.cwd()
    if not root.isidentifier() or not ((here / f"{root}.py").is_file() or (here / root / "__init__.py").is_file()):
        return
    if str(here) not in sys.path and importlib.util.find_spec(root) is None:
        sys.path.append(str(here))


def make_env(env_id: str, **arguments: Any) -> Any:
    """Make a Gymnasium environment.

    Raises:
        UnknownNameError: Gymnasium does not know it, or cannot make it.
    """
    import gymnasium

    module, colon, _ = env_id.partition(":")
    if colon:
        look_here(module)
    try:
        return gymnasium.make(env_id, **arguments)
    except (Exception, SystemExit) as error:  # of Gymnasium about the id, of a module it names, of the environment
        hint = ""
        if isinstance(error, gymnasium.error.UnregisteredEnv) and ":" not in env_id:
            hint = f" Where a package registers it when imported, name the package: PACKAGE:{env_id}."
        text = f"Environment {shown(env_id)} cannot be made: {reason(error)}{hint}"
        raise UnknownNameError(text) from error
