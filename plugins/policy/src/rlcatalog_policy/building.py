"""Building a policy from the parts that a lookup chose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import gymnasium

from rlcatalog.catalog import Catalog, default_catalog
from rlcatalog.choice import PartAddresses
from rlcatalog.config import same
from rlcatalog.errors import ConfigError, UnsupportedSpaceError, shown
from rlcatalog_policy.policy import Policy

if TYPE_CHECKING:
    # A name of the kernel that only annotations need.
    from rlcatalog.internals import AnyEnv

#: A model: a registered name, a class, an instance, or a function that creates one.
ModelArgument: TypeAlias = str | Callable[..., Any]


def build(
    obs_space: gymnasium.Space[Any] | None = None,
    action_space: gymnasium.Space[Any] | None = None,
    config: Mapping[str, Any] | None = None,
    framework: str | None = None,
    *,
    model: ModelArgument | None = None,
    memory: ModelArgument | None = None,
    env: AnyEnv | None = None,
    catalog: Catalog | None = None,
    pins: PartAddresses | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Policy:
    """Build a policy for an environment's observation and action spaces.

    rlcatalog chooses a preprocessor, a model and an action distribution that fit the spaces, unless
    the config names them. `policy.explain()` shows the choice with its reasons.

    Args:
        obs_space: The environment's observation space. Leave out both spaces if you pass `env`.
        action_space: The environment's action space.
        config: The model config: a dictionary of config keys, all of which are optional.
        framework: `"torch"` or `"tf"`. If None, the framework of a custom class in the config, or
            otherwise PyTorch if it is installed, and TensorFlow if it is not.
        model: The model to use, as under `"custom_model"` in the config: a name, a class, or a
            plain `torch.nn.Module` or `keras.Layer` (its class, an instance or a function that
            creates one).
        memory: The memory after the model, as under `"memory"` in the config: a name, a class such
            as `torch.nn.GRU`, a recurrent layer, or a function that creates one.
        env: The environment, instead of its two spaces: an id, a class, a function that creates
            it, an environment or a vector environment. Its spaces are read after `wrap_env`, so let
            the policy act on observations of `policy.wrap_env(env)`.
        catalog: The catalog that chooses the parts. If None, the process's default catalog.
        pins: Addresses of the parts of an earlier lookup, which are used instead of choosing again.
        defaults: Defaults of an engine for config keys that `config` does not set; see
            `Catalog.resolve`.

    Raises:
        CatalogError: The config is wrong, no part fits a space, or a package or framework is not
            installed; see `Catalog.resolve`.

    Example:
        >>> policy = rlcatalog.build(env="CartPole-v1", config={"fcnet_hiddens": [64, 64]})
        >>> step = policy.act([[0.0, 0.0, 0.0, 0.0]])  # a batch of one observation
        >>> step.action.shape
        (1,)
    """
    config = config_with_model(config, model, memory=memory)
    if catalog is None:
        catalog = default_catalog()
    if env is not None:
        if obs_space is not None or action_space is not None:
            raise UnsupportedSpaceError(
                "build() needs two spaces or env=, but both were given. Remove one."
            )
        env_properties = catalog.read_env(env, config)
        obs_space = env_properties.observation_space
        action_space = env_properties.action_space
        defaults = {**env_properties.config_defaults, **(defaults or {})}
    if obs_space is None or action_space is None:
        raise UnsupportedSpaceError(
            "build() needs an observation space and an action space, or env=."
        )
    # `build_from_lookup` calls this with the lookup's choice, and again with another choice if the
    # policy rejects one of the defaults.
    create_policy = partial(Policy, catalog, observation_space=obs_space, action_space=action_space)
    return catalog.build_from_lookup(
        create_policy, obs_space, action_space, config, framework, pins=pins, defaults=defaults
    )


def config_with_model(
    config: Mapping[str, Any] | None,
    model: ModelArgument | Mapping[str, Any] | None,
    way: str = "config={}",
    memory: ModelArgument | Mapping[str, Any] | None = None,
) -> Mapping[str, Any] | None:
    """Return a model config with the arguments `model=` and `memory=` under `"custom_model"` and
    `"memory"`; None changes nothing.

    Args:
        config: The config.
        model: The argument `model`.
        way: How a user of the calling function passes a dictionary of config keys, with `{}` in
            place of the dictionary.
        memory: The argument `memory`.

    Raises:
        ConfigError: An argument is a dictionary, or the config names a different model or memory.
    """
    if model is not None:
        config = _with_code(config, "model", model, key="custom_model", way=way)
    if memory is not None:
        config = _with_code(config, "memory", memory, key="memory", way=way)
    return config


def _with_code(
    config: Mapping[str, Any] | None,
    argument: str,
    code: ModelArgument | Mapping[str, Any],
    *,
    key: str,
    way: str,
) -> Mapping[str, Any]:
    """Return a model config with the value of an argument under a key.

    Args:
        config: The config.
        argument: Name of the argument.
        code: Its value.
        key: The key.
        way: See `config_with_model`.
    """
    if isinstance(code, Mapping):
        raise ConfigError(
            f"{argument}={shown(code)}: expected a {argument}, such as a registered name or a"
            " class; found a dictionary. Pass keys of the model config as"
            f" {way.format(shown(code))}."
        )
    config = config or {}
    value = config.get(key)
    if value is not None and not same(value, code):
        setting = f"{key}={shown(value)}"
        if key == argument:
            setting += " in the config"
        raise ConfigError(
            f"{argument}={shown(code)} and {setting} are both given. Give one of them."
        )
    return {**config, key: code}
