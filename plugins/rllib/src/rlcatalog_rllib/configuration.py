"""`configure` and `spec`, which set up RLlib algorithms with catalog parts."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

import rlcatalog_rllib
from rlcatalog import Catalog, Policy, default_catalog
from rlcatalog.catalog import close_env
from rlcatalog.errors import ConfigError, UnreadKeysWarning, UnusedMaskWarning, shown
from rlcatalog.reporting import warn_caller
from rlcatalog.spaces import env_layout
from rlcatalog_rllib import ray_config
from rlcatalog_rllib.agents import AdaptAgents, EncodeAgents, spaces_of_agents, spaces_of_modules
from rlcatalog_rllib.connectors import (
    EncodeObservations,
    EnvToModule,
    ModuleToEnv,
    behind,
    module_to_env,
)
from rlcatalog_rllib.env_runner import CatalogAgentsEnvRunner, CatalogEnvRunner, check_runners
from rlcatalog_rllib.envs import CatalogEnv, batches_as_arrays, create_env, is_made_by_ray
from rlcatalog_rllib.offline import EpisodesToLearner, refuse_filter
from rlcatalog_rllib.parcels import packed
from rlcatalog_rllib.private_api import (
    given_env_to_module,
    given_learner_connector,
    given_module_to_env,
)
from rlcatalog_rllib.recipe import Recipe, choose_parts, prefix_errors
from rlcatalog_rllib.refusals import check_config, learns_offline
from rlcatalog_rllib.spaces import encoded_space
from rlcatalog_rllib.tune_search import check_encoding, search_options

_LOG = logging.getLogger(__name__)


def configure(
    config: Any,
    env: Any = None,
    *,
    model: Any = None,
    models: Mapping[str, Any] | None = None,
    env_config: Mapping[str, Any] | None = None,
    catalog: Catalog | None = None,
) -> Any:
    """Set up a Ray RLlib algorithm with a preprocessor, model and action distribution from the
    catalog.

    This call chooses the parts once, and every worker builds the same ones. `action_bounds` selects
    how actions are mapped to their bounds; with Ray's `normalize_actions=False`, its default is
    `"clip"`. Ray's `clip_actions` has no effect. Connectors in the config are kept. They run before
    the catalog's connectors, both on the way to the module and on the way to the environment.

    Args:
        config: `PPOConfig()`, `APPOConfig()`, `IMPALAConfig()`, `DQNConfig()`, `SACConfig()`,
            `BCConfig()` or `MARWILConfig()`, or an instance of a subclass. It is modified in place
            and returned. For BC and MARWIL, the recorded data, which is in the environment's
            format, is encoded. After `multi_agent(...)`, each policy has its own parts.
        env: A Gymnasium id, a name registered with Ray Tune, a class or a function. If None, the
            environment in the config.
        model: rlcatalog's flat model config; its keys override those in `training(model=...)` and
            `rl_module(model_config=...)`. Unset keys have the catalog's defaults, except
            `vf_share_layers`, `action_bounds` and the initialisers of fcnet, which default to the
            values that match Ray's nets. Any other object, such as a plain `torch.nn.Module`,
            becomes the `"custom_model"`. With one agent, a value may be `tune.grid_search([...])`
            or a Ray Tune distribution.
        models: With several agents, model configs by policy id; their keys override those in
            `model`.
        env_config: The environment's config. If None, the environment in `config`.
        catalog: The catalog for the parts, with its registrations, which Ray pickles for its
            workers. If None, each process uses its own catalog.

    Returns:
        The config.

    Raises:
        NotServedError: The algorithm is not supported, or Ray's API does not support a feature.
        ConfigError: A key of `DefaultModelConfig` has no equivalent here, or `models` names an
            unknown policy.
        CatalogError: The parts cannot be built; see `rlcatalog.Catalog.build`.

    Example:
        >>> from ray.rllib.algorithms.ppo import PPOConfig
        >>> config = rlcatalog_rllib.configure(PPOConfig(), "CartPole-v1", model={"use_lstm": True})
        >>> # Next, algo = config.build_algo() starts training.
        >>> config.rl_module_spec.module_class.__name__
        'CatalogRLModule'
    """
    module = check_config(config, models or {})
    model, models = (
        _as_config(model),
        {name: _as_config(value) for name, value in (models or {}).items()},
    )
    env = config.env if env is None else env
    env_config = dict(config.env_config if env_config is None else env_config)
    if env is CatalogEnv:  # already configured
        before = env_config.get("catalog")
        catalog = before if catalog is None and isinstance(before, Catalog) else catalog
        env, env_config = env_config["env"], dict(env_config["env_config"])
    theirs = ray_config.given_to_ray(config)
    asked = {**theirs, **model}
    own = _own(given_env_to_module(config)), _own(given_module_to_env(config))
    if config.is_multi_agent:
        return _configure_agents(
            config, module, env, env_config, theirs, asked, models, catalog, own
        )
    options = search_options(asked)  # sampled once only
    first = {**asked, **{key: values[0] for key, values in options.items()}}
    made = create_env(env, env_config)
    try:
        wrapped = (default_catalog() if catalog is None else catalog).wrap_env(
            made, first, move_masks=False
        )
        obs_space, action_space = wrapped.observation_space, wrapped.action_space
        seen = behind(own[0], wrapped, obs_space, action_space)
        layout = env_layout(wrapped)
        _warn_of_masks(wrapped, first, catalog)
    finally:
        close_env(made)
    defaults = ray_config.engine_defaults(config, action_space)
    if layout is not None:
        defaults["image_layout"] = layout
    with warnings.catch_warnings():
        if options:  # a key may be unused with one value but read with another
            warnings.simplefilter("ignore", UnreadKeysWarning)
        recipe, policy = choose_parts(seen, action_space, first, catalog, defaults)
        check_encoding(
            options,
            policy,
            lambda other: choose_parts(seen, action_space, {**first, **other}, catalog, defaults)[
                1
            ],
        )
    if wrapped is not made or not batches_as_arrays(obs_space) or not is_made_by_ray(env):
        given = {
            "env": env,
            "env_config": env_config,
            "model": packed(first),
            "catalog": recipe.catalog,
        }
        env, env_config = CatalogEnv, given
    if learns_offline(config):
        refuse_filter(policy)
        config.training(learner_connector=EpisodesToLearner(_own(given_learner_connector(config))))
        # There may be no runner to query.
        config.environment(observation_space=obs_space, action_space=action_space)
    spec = _spec(recipe, policy, module, options)
    connectors = (
        EnvToModule(partial(EncodeObservations, recipe=recipe), own[0]),
        ModuleToEnv(own[1]),
    )
    theirs |= {key: asked[key] for key in options}
    return _set_up(config, env, env_config, theirs, [recipe], spec, connectors, CatalogEnvRunner)


def _warn_of_masks(env: Any, model: Mapping[str, Any], catalog: Catalog | None) -> None:
    """Warn if an environment gives action masks that are not in its observations.

    The check is made here, with an environment that is closed again, because a warning in one of
    Ray's processes may not be seen.
    """
    catalog = default_catalog() if catalog is None else catalog
    if catalog.wrap_env(env, model) is not env:
        warn_caller(
            "the environment gives an action mask, in its info or from action_masks(), but RLlib"
            " reads only observations, so the policy may choose forbidden actions. Move the mask"
            " into the observation: pass a function that returns rlcatalog.wrap_env(env).",
            UnusedMaskWarning,
        )


def _as_config(model: Any) -> Mapping[str, Any]:
    """Return a model config unchanged, or, for a model, a config that selects it."""
    return model if isinstance(model, Mapping) else {} if model is None else {"custom_model": model}


def _configure_agents(
    config: Any,
    module: str,
    env: Any,
    env_config: Any,
    theirs: Any,
    asked: Any,
    models: Any,
    catalog: Any,
    own: Any,
) -> Any:
    if not is_made_by_ray(env):
        raise ConfigError(
            "env: expected an environment class whose first argument is its config, found"
            f" {shown(env)}."
        )
    made = create_env(env, env_config)
    try:
        observations, actions = spaces_of_agents(made)
        observations = behind(own[0], made, observations, actions)
    finally:
        close_env(made)
    module_spaces = spaces_of_modules(config, observations, actions)
    recipes, specs = dict[str, Recipe](), dict[str, RLModuleSpec]()
    masked: list[str] = []
    for name, (obs_space, action_space) in module_spaces.items():
        given = ray_config.spec_of(config, name)
        if ray_config.is_the_users(given):  # a different kind of module, such as a random one
            specs[name] = given
            continue
        model = {**asked, **ray_config.given_in_spec(config, given), **models.get(name, {})}
        with prefix_errors(partial("policy {!r}".format, name)):
            recipes[name], policy = choose_parts(
                obs_space,
                action_space,
                model,
                catalog,
                ray_config.engine_defaults(config, action_space),
            )
        if policy.masks.key is not None:
            masked.append(name)
        specs[name] = _spec(recipes[name], policy, module)
    if masked:
        _skip_env_check(config, masked)
    encode = partial(EncodeAgents, recipes=recipes, module_spaces=module_spaces)
    adapt = partial(
        AdaptAgents, normalize_actions=config.normalize_actions, clip_actions=config.clip_actions
    )
    connectors = EnvToModule(encode, own[0]), ModuleToEnv(own[1], adapt, by_agent=True)
    spec = MultiRLModuleSpec(rl_module_specs=specs)
    return _set_up(
        config,
        env,
        env_config,
        theirs,
        list(recipes.values()),
        spec,
        connectors,
        CatalogAgentsEnvRunner,
    )


def _skip_env_check(config: Any, masked: Sequence[str]) -> None:
    """Switch off Ray's check of multi-agent environments, and log that.

    The check takes random actions, which ignore the masks, and blames the environment if it refuses
    one.

    Args:
        config: Ray's config, which is modified.
        masked: The policies whose actions are masked.
    """
    if config.disable_env_checking:
        return
    config.environment(disable_env_checking=True)
    _LOG.warning(
        "configure() sets disable_env_checking=True, because Ray's check of environments takes"
        " random actions without their masks (policies with masks: %s). To check the environment"
        " nevertheless, call config.environment(disable_env_checking=False) after configure().",
        ", ".join(masked),
    )


def _set_up(
    config: Any,
    env: Any,
    env_config: Any,
    theirs: Any,
    recipes: list[Recipe],
    spec: Any,
    connectors: Any,
    runner: Any,
) -> Any:
    config.environment(env, env_config=env_config)
    # Ray's DQN reads max_seq_len here. The user's keys are kept for a second configure().
    longest = max((recipe.model["max_seq_len"] for recipe in recipes), default=20)
    config.rl_module(rl_module_spec=spec, model_config={"max_seq_len": longest, **theirs})
    if config.env_runner_cls is None and config.output is None:
        config.env_runners(env_runner_cls=runner)
    config.callbacks(
        on_algorithm_init=_with_check(config.callbacks_on_algorithm_init),
        on_env_runners_recreated=_with_check(config.callbacks_on_env_runners_recreated),
    )
    to_module, to_env = connectors
    return config.env_runners(
        env_to_module_connector=to_module,
        module_to_env_connector=to_env,
        add_default_connectors_to_module_to_env_pipeline=False,
    )


def _with_check(callbacks: Any) -> list[Any]:
    """Return the user's callbacks for an event, followed by the check of remote runners."""
    given = callbacks if isinstance(callbacks, list) else [] if callbacks is None else [callbacks]
    return [*(callback for callback in given if callback is not check_runners), check_runners]


def _own(make: Any) -> Any:
    """Return the user's function for a pipeline, even if `configure` was called before."""
    if isinstance(make, EnvToModule | ModuleToEnv | EpisodesToLearner):
        return make.own
    return None if make is module_to_env else make


def spec(
    obs_space: Any,
    action_space: Any,
    model: Mapping[str, Any] | None = None,
    *,
    q_values: bool = False,
    catalog: Catalog | None = None,
) -> Any:
    """Return the `RLModuleSpec` for a module with catalog parts, for use in your own config.

    Args:
        obs_space: The environment's observation space.
        action_space: Its action space.
        model: The flat model config.
        q_values: Whether to create a module for DQN.
        catalog: The catalog for the parts. If None, each process uses its own.

    Raises:
        CatalogError: The parts cannot be built.
    """
    module = "CatalogQModule" if q_values else "CatalogRLModule"
    defaults = ray_config.modules_defaults()
    return _spec(*choose_parts(obs_space, action_space, model, catalog, defaults), module)


def _spec(
    recipe: Recipe, policy: Policy, module: str, searched: Collection[str] = ()
) -> RLModuleSpec:
    return RLModuleSpec(
        module_class=getattr(rlcatalog_rllib, module),
        observation_space=encoded_space(policy),
        action_space=policy.action_space,
        model_config=recipe.model_config(searched),
    )
