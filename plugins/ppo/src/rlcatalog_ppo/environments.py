"""Environments, made from an id or a callable."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from rlcatalog import Catalog, default_catalog
from rlcatalog.catalog import make_env
from rlcatalog.errors import ConfigError
from rlcatalog_ppo.env_state import Resumable


class EnvConfig(dict[str, Any]):
    """An environment's config, as it is passed to a callable.

    Args:
        config: The config.
        index: The environment's place among those stepped side by side.
    """

    def __init__(self, config: Mapping[str, Any], index: int) -> None:
        super().__init__(config)
        self.index = index


class EnvMaker:
    """Makes one environment, with the wrappers of the installed plugins.

    It can be pickled where its parts can, and finds the same environment elsewhere.

    Args:
        env: A Gymnasium id, or a callable that takes the environment's config, or nothing.
        env_config: The environment's config.
        model: The model config, for the wrappers.
        catalog: Where the wrappers are looked up.

    Raises:
        ConfigError: `env` is neither.
    """

    def __init__(
        self, env: str | Callable[..., Any], env_config: Mapping[str, Any], model: Mapping[str, Any], catalog: Catalog
    ) -> None:
        if not isinstance(env, str) and not callable(env):
            raise ConfigError(f"env: expected a Gymnasium id or a callable, found {env!r}.")
        self._env, self._config, self._model, self._catalog = env, env_config, model, catalog

    def __call__(self, index: int = 0) -> Any:
        """Return an environment, for a place among those stepped side by side."""
        env, config = self._env, self._config
        if isinstance(env, str):
            made = make_env(env, **config)
        else:
            takes = takes_config(env, required=not config)
            made = env(EnvConfig(config, index)) if takes else env()
        return self._catalog.wrap_env(made, self._model)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state; the default catalog is that of the process, and an id comes with what is registered.

        Custom classes stay behind: no wrapper needs them, and with them their framework would be imported.
        """
        spec = gymnasium.registry.get(self._env) if isinstance(self._env, str) else None
        catalog = None if self._catalog is default_catalog() else self._catalog
        model = {key: value for key, value in self._model.items() if not key.startswith("custom_")}
        return {**self.__dict__, "_catalog": catalog, "_model": model, "spec": spec}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set the state."""
        spec = state.pop("spec")
        if spec is not None:
            gymnasium.registry.setdefault(spec.id, spec)
        self.__dict__ |= {**state, "_catalog": state["_catalog"] or default_catalog()}


def vector(
    make: Callable[[], Any], n: int, first: Callable[[], Any] | None = None, *, how: str = "sync"
) -> SyncVectorEnv | AsyncVectorEnv:
    """Return `n` environments stepped side by side.

    An episode's last observation stands in `info["final_obs"]`; the observation returned is the next episode's first.

    Args:
        make: Makes one environment.
        n: How many.
        first: Makes the first of them, where that is another one.
        how: `"sync"`: in turn, in this process; `"async"`: at once, each in a process of its own.
    """
    # Observations are encoded at once, so the environments may write the next ones over them.
    makes = [partial(_resumable, one, i, n) for i, one in enumerate((first or make, *[make] * (n - 1)))]
    if how == "async":
        from rlcatalog_ppo.workers import Workers

        return Workers(makes)
    return SyncVectorEnv(makes, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)


def _resumable(make: Callable[[], Any], index: int, count: int) -> Resumable:
    return Resumable(make(index) if isinstance(make, EnvMaker) else make(), index, count)


def takes_config(env: Callable[..., Any], required: bool) -> bool:
    """Whether the callable has a positional parameter (one without default, where `required`)."""
    try:
        parameters = inspect.signature(env).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return any(p.default is p.empty for p in positional) if required else bool(positional)


def registered_id(folder: Path, env: str | None) -> str:
    """Return the id of an environment that a checkpoint names; nothing is imported because it stands there.

    Raises:
        ConfigError: It names none, or one that no installed package has registered.
    """
    if env is None:
        raise ConfigError(f"{folder}: the environment was no id of Gymnasium; pass it: restore(directory, env).")
    module, _, name = env.rpartition(":")
    if module and name not in gymnasium.registry:
        raise ConfigError(
            f"{folder}: its environment {name!r} was registered by the module {module!r}, which is not imported because"
            " a file names it. If you trust that module, import it, or pass the environment: restore(directory, env)."
        )
    return name
