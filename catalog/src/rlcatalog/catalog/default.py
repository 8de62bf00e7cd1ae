"""The default catalog's lookups as functions, and environments by id."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rlcatalog.catalog.catalog import default_catalog
from rlcatalog.choice import Explanation
from rlcatalog.errors import UnknownNameError, reason, shown

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.vector import VectorEnv

    from rlcatalog.plugins.registry import PluginRecord

C = TypeVar("C", bound=type)


def explain(
    obs_space: gymnasium.Space[Any] | None = None,
    action_space: gymnasium.Space[Any] | None = None,
    config: Mapping[str, Any] | None = None,
    framework: str | None = None,
    *,
    env: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any] | None = None,
) -> Explanation:
    """Say what a lookup chooses and why; see `Catalog.explain`."""
    return default_catalog().explain(obs_space, action_space, config, framework, env=env)


def wrap_env(env: gymnasium.Env[Any, Any], config: Mapping[str, Any] | None = None) -> gymnasium.Env[Any, Any]:
    """Apply the environment wrappers of the installed plugins that match; see `Catalog.wrap_env`."""
    return default_catalog().wrap_env(env, config)


def refresh() -> list[PluginRecord]:
    """Find plugins that were installed since the program began; see `Catalog.refresh`."""
    return default_catalog().refresh()


def register_model(name: str, **options: Any) -> Callable[[C], C]:
    """Return a decorator that registers a model class for `custom_model`; see `Catalog.register_model` for the options.

    Example:
        >>> @rlcatalog.register_model("mine")
        ... class Mine(TorchModelV2, nn.Module): ...
    """
    return default_catalog().register_model(name, **options)  # type: ignore[no-any-return]


def register_action_dist(name: str, **options: Any) -> Callable[[C], C]:
    """Return a decorator that registers a distribution for `custom_action_dist`; see `Catalog.register_action_dist`."""
    return default_catalog().register_action_dist(name, **options)  # type: ignore[no-any-return]


def register_preprocessor(name: str, **options: Any) -> Callable[[C], C]:
    """Return a decorator that registers a preprocessor; see `Catalog.register_preprocessor`."""
    return default_catalog().register_preprocessor(name, **options)  # type: ignore[no-any-return]


def register_filter(name: str, **options: Any) -> Callable[[C], C]:
    """Return a decorator that registers a filter for `observation_filter`; see `Catalog.register_filter`."""
    return default_catalog().register_filter(name, **options)  # type: ignore[no-any-return]


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
