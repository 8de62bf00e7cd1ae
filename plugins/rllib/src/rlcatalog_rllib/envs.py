"""Environments for Ray with the plugins' wrappers, which encode observations that Ray
cannot batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from ray.rllib.env.env_context import EnvContext

from rlcatalog import Catalog, SpaceInfo, default_catalog
from rlcatalog.catalog import EngineWrapper, make_env
from rlcatalog.errors import ConfigError
from rlcatalog_policy import Encoder, describe_env
from rlcatalog_rllib.parcels import content_of, unpacked
from rlcatalog_rllib.private_api import registered_env
from rlcatalog_rllib.recipe import prefix_errors, this_machine
from rlcatalog_rllib.spaces import MASK, OBS, Space

#: What an environment is created from: a Gymnasium id, a name registered with Ray Tune, a class or
#: a function.
EnvMaker: TypeAlias = "str | Callable[..., Any]"
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
            # Ray passes the config as an EnvContext, which also has the places of this environment.
            plain_env = create_env(config["env"], config.get("env_config"), config)
            # Masks outside the observation stay there; `configure` has warned about them.
            env = catalog.wrap_env(plain_env, model, move_masks=False)
            if not batches_as_arrays(env.observation_space):
                env = EncodedInside(env, model, catalog)
        super().__init__(env)


class EncodedInside(EngineWrapper, gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that encodes observations before the environment returns them.

    Ray splits a vector environment's batch as nested arrays. Observations from Text, Sequence,
    Graph and plugin-defined spaces are batched as tuples of values, which Ray would split
    incorrectly.

    Args:
        env: The environment.
        model: The model config.
        catalog: The catalog that encodes them.
    """

    right_order = "pass configure a function that returns rlcatalog.wrap_env(env)"

    def __init__(
        self, env: gymnasium.Env[Any, Any], model: Mapping[str, Any], catalog: Catalog
    ) -> None:
        super().__init__(env)
        # Explain instead of resolve, because `configure` has already warned about unused keys.
        resolution = catalog.explain(
            env.observation_space, env.action_space, model, "torch"
        ).resolution
        self._encoder = Encoder(catalog, resolution)
        entries: dict[str, Any] = {OBS: self._encoder.preprocessor.observation_space}
        if resolution.mask_key is not None:
            entries[MASK] = spaces.MultiBinary(self._encoder.masks.size)
        space: Any = spaces.Dict(entries)
        # Connectors read the environment's space from this attribute.
        space.original_space = env.observation_space
        self.observation_space = space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._encoded(obs, is_last=False), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        encoded = self._encoded(obs, is_last=terminated or truncated)
        return encoded, reward, terminated, truncated, info

    def _encoded(self, obs: Any, *, is_last: bool) -> dict[str, Any]:
        """Return the encoded observation together with its mask's columns.

        Args:
            obs: The environment's observation.
            is_last: Whether the episode is over. If so, no action follows, and the mask need not
                allow any.
        """
        encoded = {OBS: self._encoder.encode(obs)}
        if self._encoder.masks.key is not None:
            encoded[MASK] = self._encoder.mask_of(obs, over=is_last).astype(np.int8)
        return encoded


def create_env(
    env: EnvMaker,
    env_config: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
) -> Any:
    """Create one environment, as Ray does.

    Args:
        env: A Gymnasium id, a name registered with Ray Tune, or a class or function. Unlike in Ray,
            the class or function does not have to take a config.
        env_config: The environment's config.
        context: The worker's `EnvContext`, with the places of the environment among Ray's
            processes. Any other config has no places.

    Raises:
        UnknownNameError: The id is not registered with Gymnasium.
        ConfigError: `env` is not an id, a class or a function.
    """
    config = EnvContext(dict(env_config or {}), worker_index=0)
    if isinstance(context, EnvContext):
        config.worker_index = context.worker_index
        config.vector_index = context.vector_index
        config.remote = context.remote
        config.num_workers = context.num_workers
    if isinstance(env, str):
        create = registered_env(env)
        if create is not None:
            return create(config)
    if isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv):
        what, way = describe_env(env)
        raise ConfigError(
            "env: expected an id, a class or a function, because Ray's runners create the"
            f" environments; found {what}. Instead, {way} Set their number with"
            " config.env_runners(num_envs_per_env_runner=N)."
        )
    if not isinstance(env, str) and takes_context(env):
        return env(config)
    return make_env(env, config)


def takes_context(env: EnvMaker) -> bool:
    """Return whether a class or function takes an `EnvContext`: its first argument has no default,
    None or a dict.
    """
    if not callable(env):
        return False
    try:
        first = next(iter(inspect.signature(env).parameters.values()), None)
    except (TypeError, ValueError):  # some classes and functions have no signature
        return False
    if first is None or first.kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD):
        return False
    return first.default in (Parameter.empty, None) or isinstance(first.default, Mapping)


def is_made_by_ray(env: EnvMaker) -> bool:
    """Return whether Ray can create an environment from a value: an id, a name, or a class that
    takes its config.
    """
    if isinstance(env, str):
        return True
    return isinstance(env, type) and takes_context(env)


def batches_as_arrays(space: Space) -> bool:
    """Return whether a vector environment batches a space's observations as arrays, nested in dicts
    and tuples.
    """
    return all(_is_batched_as_array(node) for node in SpaceInfo.read(space).walk())


def _is_batched_as_array(node: SpaceInfo) -> bool:
    """Return whether a vector environment batches a node's observations as an array, or as a dict
    or tuple of its children's.
    """
    is_gymnasiums = type(node.space).__module__.startswith("gymnasium.")
    # Gymnasium's checker rejects an empty Dict or Tuple.
    has_children = node.kind in ("dict", "tuple") and bool(node.children)
    return is_gymnasiums and (has_children or node.kind in _ARRAYS)
