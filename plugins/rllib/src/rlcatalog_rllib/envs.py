"""Environments for Ray with the plugins' wrappers, which encode observations that Ray
cannot batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from inspect import Parameter
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from ray.rllib.env.env_context import EnvContext

from rlcatalog import Catalog, SpaceInfo, default_catalog
from rlcatalog.catalog import make_env
from rlcatalog.errors import ConfigError
from rlcatalog_policy import Encoder, describe_env
from rlcatalog_rllib.parcels import content_of, unpacked
from rlcatalog_rllib.private_api import registered_env
from rlcatalog_rllib.recipe import prefix_errors, this_machine
from rlcatalog_rllib.spaces import MASK, OBS

#: Kinds of spaces whose observations a vector environment batches as arrays.
_ARRAYS = ("box", "discrete", "multi_discrete", "multi_binary")


class CatalogEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment with installed plugins' wrappers, which `configure` passes to Ray.

    Args:
        config: `"env"`: the argument of `create_env`; `"env_config"`: its config; `"model"`: the
            model config, for the wrappers; `"catalog"`: the catalog for the wrappers, or None.

    Raises:
        CatalogError: The environment cannot be created on this node. The message names the node.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        catalog = content_of(config.get("catalog")) or default_catalog()
        with prefix_errors(this_machine):
            model = unpacked(config["model"])
            env = catalog.wrap_env(
                create_env(config["env"], config.get("env_config"), config),
                model,
                move_masks=False,
            )
            if not batches_as_arrays(env.observation_space):
                env = EncodedInside(env, model, catalog)
        super().__init__(env)


class EncodedInside(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that encodes observations before the environment returns them.

    Ray splits a vector environment's batch as nested arrays. Observations from Text, Sequence,
    Graph and plugin-defined spaces are batched as tuples of values, which Ray would split
    incorrectly.

    Args:
        env: The environment.
        model: The model config.
        catalog: The catalog that encodes them.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], model: Mapping[str, Any], catalog: Catalog
    ) -> None:
        super().__init__(env)
        # Explain instead of resolve, because `configure` has already warned about unused keys.
        resolution = catalog.explain(
            env.observation_space, env.action_space, model, "torch"
        ).resolution
        self._encoder = Encoder(catalog, resolution)
        parts: dict[str, Any] = {OBS: self._encoder.preprocessor.observation_space}
        if resolution.mask_key is not None:
            parts[MASK] = spaces.MultiBinary(self._encoder.masks.size)
        space: Any = spaces.Dict(parts)
        space.original_space = env.observation_space
        self.observation_space = space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._encoded(obs, False), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._encoded(obs, terminated or truncated), reward, terminated, truncated, info

    def _encoded(self, obs: Any, done: bool) -> dict[str, Any]:
        """Return the encoded observation together with its mask's columns."""
        found = {OBS: self._encoder.encode(obs)}
        if self._encoder.masks.key is not None:
            found[MASK] = self._encoder.mask_of(obs, over=done).astype(np.int8)
        return found


def create_env(env: Any, env_config: Mapping[str, Any] | None = None, context: Any = None) -> Any:
    """Create one environment, as Ray does.

    Args:
        env: A Gymnasium id, a name registered with Ray Tune, or a class or function. Unlike in Ray,
            the latter need not take a config.
        env_config: The environment's config.
        context: The worker's `EnvContext`, or None.

    Raises:
        UnknownNameError: The id is not registered with Gymnasium.
        ConfigError: `env` is not an id, a class or a function.
    """
    places = {
        name: getattr(context, name)
        for name in ("worker_index", "vector_index", "remote", "num_workers")
        if hasattr(context, name)
    }
    config = EnvContext(dict(env_config or {}), **{"worker_index": 0, **places})
    if isinstance(env, str) and (create := registered_env(env)) is not None:
        return create(config)
    if isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv):
        what, way = describe_env(env)
        raise ConfigError(
            "env: expected an id, a class or a function, because Ray's runners create the"
            f" environments; found {what}. Instead, {way} Set their number with"
            " config.env_runners(num_envs_per_env_runner=N)."
        )
    return env(config) if takes_context(env) else make_env(env, config)


def takes_context(env: Any) -> bool:
    """Return whether a class or function takes an `EnvContext`: its first argument has no default,
    None or a dict.
    """
    try:
        first = next(iter(inspect.signature(env).parameters.values()), None)
    except (TypeError, ValueError):  # not callable, or without a signature
        return False
    if first is None or first.kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD):
        return False
    return first.default in (Parameter.empty, None) or isinstance(first.default, Mapping)


def is_made_by_ray(env: Any) -> bool:
    """Return whether Ray can create an environment from a value: an id, a name, or a class that
    takes its config.
    """
    return isinstance(env, str) or (isinstance(env, type) and takes_context(env))


def batches_as_arrays(space: Any) -> bool:
    """Return whether a vector environment batches a space's observations as arrays, nested in dicts
    and tuples.
    """
    for node in SpaceInfo.read(space).walk():
        # Gymnasium's checker rejects empty ones.
        nested = node.kind in ("dict", "tuple") and bool(node.children)
        if not (nested or node.kind in _ARRAYS) or not type(node.space).__module__.startswith(
            "gymnasium."
        ):
            return False
    return True
