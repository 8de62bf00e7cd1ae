"""`configure` and `spec`, which set up RLlib algorithms with catalog parts."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.env_runner import EnvRunner

import rlcatalog_rllib
from rlcatalog import Catalog, Policy, default_catalog
from rlcatalog.catalog import close_env
from rlcatalog.errors import (
    ConfigError,
    NotServedError,
    UnreadKeysWarning,
    UnusedMaskWarning,
    shown,
)
from rlcatalog.reporting import warn_caller
from rlcatalog.spaces import env_layout
from rlcatalog_rllib import ray_config
from rlcatalog_rllib.agents import AdaptAgents, EncodeAgents, spaces_of_agents, spaces_of_modules
from rlcatalog_rllib.connectors import (
    EncodeObservations,
    EnvToModule,
    MakeConnectors,
    ModuleToEnv,
    space_behind_connectors,
)
from rlcatalog_rllib.env_runner import CatalogAgentsEnvRunner, CatalogEnvRunner, check_runners
from rlcatalog_rllib.envs import CatalogEnv, EnvMaker, batches_as_arrays, create_env, is_made_by_ray
from rlcatalog_rllib.offline import EpisodesToLearner, refuse_filter
from rlcatalog_rllib.parcels import packed
from rlcatalog_rllib.part_rates import LR_PARTS, check_lr_parts, with_part_rates
from rlcatalog_rllib.private_api import (
    given_env_to_module,
    given_learner_connector,
    given_module_to_env,
)
from rlcatalog_rllib.recipe import Recipe, choose_parts, prefix_errors
from rlcatalog_rllib.refusals import check_config, check_soft_served, learns_offline
from rlcatalog_rllib.spaces import FlatActions, Space, encoded_space
from rlcatalog_rllib.tune_search import check_encoding, search_options

_LOG = logging.getLogger(__name__)

#: Name of SAC's module class.
_SAC_MODULE = "CatalogSACModule"


def configure(
    config: AlgorithmConfig,
    env: EnvMaker | None = None,
    *,
    model: Any = None,
    models: Mapping[str, Any] | None = None,
    env_config: Mapping[str, Any] | None = None,
    catalog: Catalog | None = None,
    lr_parts: Mapping[str, float] | None = None,
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
        lr_parts: For PPO, APPO, IMPALA, BC and MARWIL: learning rates of parts of the model, such
            as `{"trunk": 1e-5}`. If `lr` is a schedule, they are meant for its largest value, and
            the schedule scales them in the same way. It sets the config's learner class.

    Returns:
        The config.

    Raises:
        NotServedError: The algorithm is not supported, or Ray's API does not support a feature.
        ConfigError: A key of `DefaultModelConfig` has no equivalent here, `models` names an unknown
            policy, or `lr_parts` a part that the model does not have.
        CatalogError: The parts cannot be built; see `rlcatalog.Catalog.build`.

    Example:
        >>> from ray.rllib.algorithms.ppo import PPOConfig
        >>> config = rlcatalog_rllib.configure(PPOConfig(), "CartPole-v1", model={"use_lstm": True})
        >>> # Next, algo = config.build_algo() starts training.
        >>> config.rl_module_spec.module_class.__name__
        'CatalogRLModule'
    """
    module_name = check_config(config, models or {})
    if lr_parts:
        _refuse_lr_parts(module_name)
        config.training(learner_class=with_part_rates(config.learner_class))
    rays_settings = ray_config.given_to_ray(config)
    request = _Request(
        module_name=module_name,
        env=_user_env(config, env, env_config, catalog),
        rays_settings=rays_settings,
        model_config={**rays_settings, **_as_config(model)},
        # Functions that create the user's own connectors, if the config has any.
        env_to_module=_users_function(given_env_to_module(config)),
        module_to_env=_users_function(given_module_to_env(config)),
        lr_parts=dict(lr_parts or {}),
    )
    if config.is_multi_agent:
        policy_configs = {name: _as_config(value) for name, value in (models or {}).items()}
        return _configure_agents(config, request, policy_configs)
    return _configure_agent(config, request)


def _refuse_lr_parts(module_name: str) -> None:
    """Raise an error if an algorithm's learner creates its optimisers in its own way."""
    if module_name != "CatalogRLModule":
        raise NotServedError(
            "lr_parts: the learners of DQN and SAC create their own optimisers. RLlib's PPO, APPO,"
            " IMPALA, BC and MARWIL serve it. Remove lr_parts."
        )


class _UserEnv(NamedTuple):
    """The environment that the user configures.

    Attributes:
        env: What it is created from; see `create_env`.
        env_config: Its config.
        catalog: The catalog for its wrappers and for the parts, or None for each process's own.
    """

    env: EnvMaker
    env_config: dict[str, Any]
    catalog: Catalog | None

    def catalog_here(self) -> Catalog:
        """Return the catalog in this process."""
        return default_catalog() if self.catalog is None else self.catalog


def _user_env(
    config: AlgorithmConfig,
    env: EnvMaker | None,
    env_config: Mapping[str, Any] | None,
    catalog: Catalog | None,
) -> _UserEnv:
    """Return the user's environment from the arguments of `configure` and Ray's config."""
    given_env: Any = config.env if env is None else env
    given_config = dict(config.env_config if env_config is None else env_config)
    if given_env is not CatalogEnv:
        return _UserEnv(given_env, given_config, catalog)
    # An earlier configure() has put the user's environment into a CatalogEnv.
    earlier_catalog = given_config.get("catalog")
    if catalog is None and isinstance(earlier_catalog, Catalog):
        catalog = earlier_catalog
    return _UserEnv(given_config["env"], dict(given_config["env_config"]), catalog)


class _Request(NamedTuple):
    """What the user asks `configure` for.

    Attributes:
        module_name: Name of the module class that the algorithm needs.
        env: The environment.
        rays_settings: The model keys that the user gave to Ray, under the catalog's names.
        model_config: The model config: these keys, and those of the argument `model`.
        env_to_module: The user's function for the env-to-module pipeline, or None.
        module_to_env: The user's function for the module-to-env pipeline, or None.
        lr_parts: Learning rates of parts of the model.
    """

    module_name: str
    env: _UserEnv
    rays_settings: Mapping[str, Any]
    model_config: Mapping[str, Any]
    env_to_module: MakeConnectors | None
    module_to_env: MakeConnectors | None
    lr_parts: dict[str, float]

    @property
    def has_action_critics(self) -> bool:
        """Whether the algorithm has critics that are not part of the policy."""
        return self.module_name == _SAC_MODULE


class _EnvFacts(NamedTuple):
    """What is read from an environment that is created once, and closed again.

    Attributes:
        observation_space: Its observation space, with the installed plugins' wrappers.
        action_space: Its action space, with these wrappers.
        module_observation_space: The observation space after the user's connectors.
        image_layout: The layout of its images, if known.
        has_wrappers: Whether installed plugins wrap it.
    """

    observation_space: Space
    action_space: Space
    module_observation_space: Space
    image_layout: str | None
    has_wrappers: bool


def _read_env(request: _Request, model: Mapping[str, Any]) -> _EnvFacts:
    """Create the environment once, and read what the driver needs to know about it.

    Args:
        request: The user's request.
        model: The model config, for the wrappers.
    """
    catalog = request.env.catalog_here()
    env = create_env(request.env.env, request.env.env_config)
    try:
        # Masks stay where they are, so that a warning can be given about masks outside the
        # observation.
        wrapped_env = catalog.wrap_env(env, model, move_masks=False)
        observation_space = wrapped_env.observation_space
        action_space = wrapped_env.action_space
        module_observation_space = space_behind_connectors(
            request.env_to_module,
            wrapped_env,
            obs_space=observation_space,
            action_space=action_space,
        )
        image_layout = env_layout(wrapped_env)
        _warn_of_masks(wrapped_env, model, catalog)
    finally:
        close_env(env)
    return _EnvFacts(
        observation_space=observation_space,
        action_space=action_space,
        module_observation_space=module_observation_space,
        image_layout=image_layout,
        has_wrappers=wrapped_env is not env,
    )


def _configure_agent(config: AlgorithmConfig, request: _Request) -> AlgorithmConfig:
    """Set up an algorithm with one agent.

    Args:
        config: Ray's config, which is modified and returned.
        request: The user's request. Ray Tune may search over values of its model config.
    """
    # The values of a distribution are random, so this call is made once.
    options = search_options(request.model_config)
    first_values = {key: values[0] for key, values in options.items()}
    first_model = {**request.model_config, **first_values}
    facts = _read_env(request, first_model)
    defaults = ray_config.engine_defaults(config, facts.action_space)
    if facts.image_layout is not None:
        defaults["image_layout"] = facts.image_layout

    def choose(model: Mapping[str, Any]) -> tuple[Recipe, Policy]:
        return choose_parts(
            facts.module_observation_space,
            facts.action_space,
            model,
            request.env.catalog,
            defaults,
            has_action_critics=request.has_action_critics,
        )

    def build_with(values: Mapping[str, Any]) -> Policy:
        _, policy = choose({**first_model, **values})
        return policy

    with warnings.catch_warnings():
        if options:  # a key may be unused with one value but read with another
            warnings.simplefilter("ignore", UnreadKeysWarning)
        recipe, policy = choose(first_model)
        check_encoding(options, policy, build_with)
    env = request.env.env
    env_config = request.env.env_config
    suits_ray = is_made_by_ray(env) and batches_as_arrays(facts.observation_space)
    if facts.has_wrappers or not suits_ray:
        env_config = {
            "env": request.env.env,
            "env_config": request.env.env_config,
            "model": packed(first_model),
            "catalog": recipe.catalog,
        }
        env = CatalogEnv
    if learns_offline(config):
        refuse_filter(policy)
        own_connector = _users_function(given_learner_connector(config))
        config.training(learner_connector=EpisodesToLearner(own_connector))
        # There may be no runner to query.
        config.environment(
            observation_space=facts.observation_space, action_space=facts.action_space
        )
    searched_settings = {key: request.model_config[key] for key in options}
    encode = partial(EncodeObservations, recipe=recipe)
    return _set_up(
        config,
        env,
        env_config,
        settings={**request.rays_settings, **searched_settings},
        recipes=[recipe],
        spec=_spec(recipe, policy, request.module_name, options, request.lr_parts),
        env_to_module=EnvToModule(encode, request.env_to_module),
        module_to_env=ModuleToEnv(request.module_to_env),
        runner=CatalogEnvRunner,
    )


def _warn_of_masks(
    env: gymnasium.Env[Any, Any], model: Mapping[str, Any], catalog: Catalog
) -> None:
    """Warn if an environment gives action masks that are not in its observations.

    The check is made here, with an environment that is closed again, because a warning in one of
    Ray's processes may not be seen.
    """
    # Without `move_masks=False`, the catalog wraps the environment again if it has such masks.
    if catalog.wrap_env(env, model) is not env:
        warn_caller(
            "the environment gives an action mask, in its info or from action_masks(), but RLlib"
            " reads only observations, so the policy may choose forbidden actions. Move the mask"
            " into the observation: pass a function that returns rlcatalog.wrap_env(env).",
            UnusedMaskWarning,
        )


def _as_config(model: Any) -> Mapping[str, Any]:
    """Return a model config unchanged, or, for a model, a config that selects it."""
    if model is None:
        return {}
    return model if isinstance(model, Mapping) else {"custom_model": model}


def _configure_agents(
    config: AlgorithmConfig,
    request: _Request,
    policy_configs: Mapping[str, Mapping[str, Any]],
) -> AlgorithmConfig:
    """Set up an algorithm with several agents.

    Args:
        config: Ray's config, which is modified and returned.
        request: The user's request.
        policy_configs: Model configs by policy id, whose keys override the request's model config.
    """
    user_env = request.env
    if not is_made_by_ray(user_env.env):
        raise ConfigError(
            "env: expected an environment class whose first argument is its config, found"
            f" {shown(user_env.env)}."
        )
    env = create_env(user_env.env, user_env.env_config)
    try:
        observations, actions = spaces_of_agents(env)
        module_observations: Any = space_behind_connectors(
            request.env_to_module, env, obs_space=observations, action_space=actions
        )
    finally:
        close_env(env)
    module_spaces = spaces_of_modules(config, module_observations, actions)
    recipes: dict[str, Recipe] = {}
    specs: dict[str, RLModuleSpec] = {}
    policies_with_masks: list[str] = []
    for name, (obs_space, action_space) in module_spaces.items():
        users_spec = ray_config.spec_of(config, name)
        if users_spec is not None and ray_config.users_module_class(users_spec) is not None:
            specs[name] = users_spec  # a different kind of module, such as a random one
            continue
        policy_config = {
            **request.model_config,
            **ray_config.given_in_spec(config, users_spec),
            **policy_configs.get(name, {}),
        }
        defaults = ray_config.engine_defaults(config, action_space)
        with prefix_errors(partial("policy {!r}".format, name)):
            recipe, policy = choose_parts(
                obs_space,
                action_space,
                policy_config,
                user_env.catalog,
                defaults,
                has_action_critics=request.has_action_critics,
            )
        recipes[name] = recipe
        specs[name] = _spec(recipe, policy, request.module_name, lr_parts=request.lr_parts)
        if policy.masks.key is not None:
            policies_with_masks.append(name)
    if policies_with_masks:
        _skip_env_check(config, policies_with_masks)
    encode = partial(EncodeAgents, recipes=recipes, module_spaces=module_spaces)
    adapt = partial(
        AdaptAgents, normalize_actions=config.normalize_actions, clip_actions=config.clip_actions
    )
    return _set_up(
        config,
        user_env.env,
        user_env.env_config,
        settings=request.rays_settings,
        recipes=list(recipes.values()),
        spec=MultiRLModuleSpec(rl_module_specs=specs),
        env_to_module=EnvToModule(encode, request.env_to_module),
        module_to_env=ModuleToEnv(request.module_to_env, adapt, by_agent=True),
        runner=CatalogAgentsEnvRunner,
    )


def _skip_env_check(config: AlgorithmConfig, policies: Sequence[str]) -> None:
    """Switch off Ray's check of multi-agent environments, and log that.

    The check takes random actions, which ignore the masks, and blames the environment if it refuses
    one.

    Args:
        config: Ray's config, which is modified.
        policies: The policies whose actions are masked.
    """
    if config.disable_env_checking:
        return
    config.environment(disable_env_checking=True)
    _LOG.warning(
        "configure() sets disable_env_checking=True, because Ray's check of environments takes"
        " random actions without their masks (policies with masks: %s). To check the environment"
        " nevertheless, call config.environment(disable_env_checking=False) after configure().",
        ", ".join(policies),
    )


def _set_up(
    config: AlgorithmConfig,
    env: EnvMaker,
    env_config: Mapping[str, Any],
    *,
    settings: Mapping[str, Any],
    recipes: Sequence[Recipe],
    spec: RLModuleSpec | MultiRLModuleSpec,
    env_to_module: MakeConnectors,
    module_to_env: MakeConnectors,
    runner: type[EnvRunner],
) -> AlgorithmConfig:
    """Write what `configure` has chosen into Ray's config, and return the config.

    Args:
        config: Ray's config.
        env: What Ray creates the environment from.
        env_config: The environment's config.
        settings: The keys that the user gave to Ray, and the keys that Ray Tune searches over.
        recipes: The recipes for all policies.
        spec: The spec for the modules.
        env_to_module: The factory for the env-to-module connectors.
        module_to_env: The factory for the module-to-env connectors.
        runner: The class of environment runners.
    """
    config.environment(env, env_config=dict(env_config))
    # Ray's DQN reads max_seq_len here. The user's keys are kept for a second configure().
    rays_max_seq_len = 20  # Ray's default, for a config in which no policy has catalog parts
    max_seq_len = max((recipe.model["max_seq_len"] for recipe in recipes), default=rays_max_seq_len)
    config.rl_module(rl_module_spec=spec, model_config={"max_seq_len": max_seq_len, **settings})
    # With an output for recorded episodes, Ray chooses a runner that writes them.
    records_episodes = config.output is not None
    if config.env_runner_cls is None and not records_episodes:
        config.env_runners(env_runner_cls=runner)
    config.callbacks(
        on_algorithm_init=_with_check_of_runners(config.callbacks_on_algorithm_init),
        on_env_runners_recreated=_with_check_of_runners(config.callbacks_on_env_runners_recreated),
    )
    return config.env_runners(
        env_to_module_connector=env_to_module,
        module_to_env_connector=module_to_env,
        add_default_connectors_to_module_to_env_pipeline=False,
    )


def _with_check_of_runners(
    callbacks: Callable[..., Any] | list[Callable[..., Any]] | None,
) -> list[Any]:
    """Return the user's callbacks for an event, followed by the check of remote runners."""
    if callbacks is None:
        callbacks = []
    elif not isinstance(callbacks, list):
        callbacks = [callbacks]
    # An earlier configure() has added the check.
    users_callbacks = [callback for callback in callbacks if callback is not check_runners]
    return [*users_callbacks, check_runners]


def _users_function(make: MakeConnectors | None) -> MakeConnectors | None:
    """Return the user's function for a pipeline, even if `configure` was called before."""
    if isinstance(make, EnvToModule | ModuleToEnv | EpisodesToLearner):
        return make.own
    return None if make is rlcatalog_rllib.module_to_env else make


def spec(
    obs_space: Space,
    action_space: Space,
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
    recipe, policy = choose_parts(obs_space, action_space, model, catalog, defaults)
    return _spec(recipe, policy, module)


def _spec(
    recipe: Recipe,
    policy: Policy,
    module: str,
    searched: Collection[str] = (),
    lr_parts: Mapping[str, float] | None = None,
) -> RLModuleSpec:
    """Return the spec for a module with a policy's parts.

    Args:
        recipe: The recipe for the policy.
        policy: The policy, built in this process.
        module: Name of the module class.
        searched: Keys that Ray Tune searches over.
        lr_parts: Learning rates of parts of the model.

    Raises:
        ConfigError: `lr_parts` names a part that the model does not have.
    """
    model_config = recipe.model_config(searched)
    if lr_parts:
        check_lr_parts(lr_parts, policy.model)
        model_config[LR_PARTS] = dict(lr_parts)
    action_space = policy.action_space
    if module == _SAC_MODULE and policy.resolution.action.is_composite:
        check_soft_served(policy)
        action_space = FlatActions(policy)
    return RLModuleSpec(
        module_class=getattr(rlcatalog_rllib, module),  # a class of this package
        observation_space=encoded_space(policy),
        action_space=action_space,
        model_config=model_config,
    )
