"""Environments as people have them: an id, a class, a function, or an environment itself."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlcatalog.errors import ConfigError, UnknownNameError, reason, shown


def look_here(module: str) -> None:
    """Let a module that was named and lies in the working folder be found, as `python` finds it; others come first."""
    root, here = module.partition(".")[0], Path.cwd()
    if not root.isidentifier() or not ((here / f"{root}.py").is_file() or (here / root / "__init__.py").is_file()):
        return
    if str(here) not in sys.path and importlib.util.find_spec(root) is None:
        sys.path.append(str(here))


def make_env(env: Any, config: Mapping[str, Any] | None = None) -> Any:
    """Make an environment, or return the one that was given.

    Args:
        env: A Gymnasium id, a class or function that makes an environment, or an environment, single or vector.
        config: Keyword arguments for the environment that is made. A class or function that requires an argument, or
            has no parameters of these names, is called with the config itself.

    Raises:
        UnknownNameError: Gymnasium does not know the id, or cannot make it.
        ConfigError: `env` is none of these.
    """
    import gymnasium

    config = {} if config is None else config
    if isinstance(env, gymnasium.Env) or (hasattr(env, "single_action_space") and not isinstance(env, type)):
        return env
    if callable(env):
        return _call(env, config)
    if not isinstance(env, str):
        expected = "a Gymnasium id, a class or function that makes an environment, or an environment"
        raise ConfigError(f"env: expected {expected}; found {shown(env)}.")
    module, colon, _ = env.partition(":")
    if colon:
        look_here(module)
    try:
        return gymnasium.make(env, **config)
    except (Exception, SystemExit) as error:  # of Gymnasium about the id, of a module it names, of the environment
        unknown = isinstance(error, gymnasium.error.UnregisteredEnv) and not colon
        hint = f" Where a package registers it when imported, name the package: PACKAGE:{env}." * unknown
        raise UnknownNameError(f"Environment {shown(env)} cannot be made: {reason(error)}{hint}") from error


def _call(make: Callable[..., Any], config: Mapping[str, Any]) -> Any:
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return make(**config)
    positional = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = any(p.default is p.empty for p in positional)
    return make(config) if required or (positional and config.keys() - parameters) else make(**config)
