"""Modules that a user names with `--import`."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from rlcatalog.errors import UnknownNameError
from rlcatalog.internals import look_here


def import_modules(names: Iterable[str], env_id: str | None = None) -> str | None:
    """Import the modules, named by the user, that register environments or parts on import, or
    environments in `register_envs()`.

    Args:
        names: The modules.
        env_id: An environment, or None.

    Returns:
        The environment. If one of the modules has just registered the environment, its name
        includes the module.

    Raises:
        UnknownNameError: A module cannot be imported.
    """
    from gymnasium import registry

    for name in names:
        look_here(name)  # as `python` does, also look in the current folder
        was_unknown = env_id not in registry
        try:
            module = importlib.import_module(name)
            register_envs = getattr(module, "register_envs", None)  # of a user's module
            if register_envs is not None:
                register_envs()
        except (ImportError, ValueError, TypeError) as error:
            raise UnknownNameError(f"--import {name}: {type(error).__name__}: {error}") from error
        if was_unknown and env_id in registry:
            env_id = f"{name}:{env_id}"
    return env_id
