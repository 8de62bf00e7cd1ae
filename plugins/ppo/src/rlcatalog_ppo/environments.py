"""Environments, made from an id or a callable."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlcatalog import Catalog
from rlcatalog.cli import make_env
from rlcatalog.errors import ConfigError
from rlcatalog.policy import Manifest
from rlcatalog_ppo.env_state import Resumable


def maker(
    env: str | Callable[..., Any], env_config: Mapping[str, Any], model: Mapping[str, Any], catalog: Catalog
) -> Callable[[], Any]:
    """Return a function that makes one environment, with the wrappers of the installed plugins.

    Args:
        env: A Gymnasium id, or a callable that takes the environment's config, or nothing.
        env_config: The environment's config.
        model: The model config, for the wrappers.
        catalog: Where the wrappers are looked up.
    """
    if not isinstance(env, str) and not callable(env):
        raise ConfigError(f"env: expected a Gymnasium id or a callable, found {env!r}.")

    def make() -> Any:
        if isinstance(env, str):
            made = make_env(env, **env_config)
        else:
            made = env(dict(env_config)) if _takes_config(env, required=not env_config) else env()
        return catalog.wrap_env(made, model)

    return make


def vector(make: Callable[[], Any], n: int, first: Callable[[], Any] | None = None) -> SyncVectorEnv:
    """Return `n` environments stepped side by side.

    `first` makes the first of them, where that is another one.
    An episode's last observation stands in `info["final_obs"]`; the observation returned is the next episode's first.
    """
    # Observations are encoded at once, so the environments may write the next ones over them.
    makes = [partial(_resumable, one, i) for i, one in enumerate((first or make, *[make] * (n - 1)))]
    return SyncVectorEnv(makes, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)


def _resumable(make: Callable[[], Any], index: int) -> Resumable:
    return Resumable(make(), index)


def unwritten_spaces(manifest: Manifest, make: Callable[[], Any]) -> dict[str, Any]:
    """Return the environment's spaces that a saved policy could not write down, by name."""
    names = [name for name in ("observation_space", "action_space") if getattr(manifest, name) is None]
    if not names:
        return {}
    env = make()
    env.close()
    return {name: getattr(env, name) for name in names}


def _takes_config(env: Callable[..., Any], required: bool) -> bool:
    """Whether the callable has a positional parameter (one without default, where `required`)."""
    try:
        parameters = inspect.signature(env).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return any(p.default is p.empty for p in positional) if required else bool(positional)
