"""Configs of algorithms that run with parts of the catalog, in one line for users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rlcatalog import Catalog, Policy, default_catalog
from rlcatalog.errors import ConfigError
from rlcatalog_rllib.connectors import env_to_module, module_to_env
from rlcatalog_rllib.env_runner import CatalogEnvRunner
from rlcatalog_rllib.envs import CatalogEnv, batches_as_arrays, create_env
from rlcatalog_rllib.rays_config import engine_defaults, given_to_ray
from rlcatalog_rllib.recipe import Recipe, choose_parts
from rlcatalog_rllib.refusals import check_config
from rlcatalog_rllib.spaces import encoded_space


def configure(
    config: Any,
    env: Any = None,
    *,
    model: Mapping[str, Any] | None = None,
    env_config: Mapping[str, Any] | None = None,
    catalog: Catalog | None = None,
) -> Any:
    """Set up an algorithm of Ray RLlib with preprocessor, model and action distribution from the catalog.

    The parts are chosen here, once; every worker builds these and no others. Ray's own `normalize_actions` and
    `clip_actions` have no effect: `action_bounds` says how actions meet their bounds.

    Args:
        config: `PPOConfig()`, `APPOConfig()`, `IMPALAConfig()` or `DQNConfig()`, or a subclass's; changed and returned.
        env: A Gymnasium id, a name registered with Ray Tune, or a class; the config's own when missing.
        model: The flat model config of rlcatalog; its keys go before those that `config` was given in
            `training(model=...)` and `rl_module(model_config=...)`. Keys that are in neither have the catalog's
            defaults, but `vf_share_layers`, which has that of the algorithm's own nets.
        env_config: The environment's config; the config's own when missing.
        catalog: The catalog the parts come from, with what is registered in it; each process's own when None. Ray
            pickles it for its workers.

    Returns:
        The config.

    Raises:
        NotServedError: The algorithm is not served, or something that Ray's API has no place for is asked.
        ConfigError: A key of `DefaultModelConfig` has no equal here.
        CatalogError: The parts cannot be built; see `rlcatalog.Catalog.build`.

    Example:
        >>> algo = rlcatalog_rllib.configure(PPOConfig(), "CartPole-v1", model={"use_lstm": True}).build_algo()
    """
    kind = check_config(config)
    for name in ("env_to_module_connector", "module_to_env_connector"):
        if getattr(config, f"_{name}") is not None and not _is_ours(getattr(config, f"_{name}")):
            raise ConfigError(
                f"{name} is set already. Leave it to configure(), or set up the three parts yourself:"
                " rlcatalog_rllib.spec, env_to_module and module_to_env."
            )
    env = config.env if env is None else env
    env_config = dict(config.env_config if env_config is None else env_config)
    if env is CatalogEnv:  # configured before
        catalog = env_config.get("catalog") if catalog is None else catalog
        env, env_config = env_config["env"], dict(env_config["env_config"])
    theirs = given_to_ray(config)
    model = {**theirs, **(model or {})}
    made = create_env(env, env_config)
    try:
        wrapped = (default_catalog() if catalog is None else catalog).wrap_env(made, model)
        obs_space, action_space = wrapped.observation_space, wrapped.action_space
    finally:
        made.close()
    if wrapped is not made or not batches_as_arrays(obs_space):
        env, env_config = CatalogEnv, {"env": env, "env_config": env_config, "model": model, "catalog": catalog}
    recipe, policy = choose_parts(obs_space, action_space, model, catalog, engine_defaults(config))
    config.environment(env, env_config=env_config)
    # Ray's DQN looks for max_seq_len here; what the user gave stays for a second configure().
    given = {**theirs, "max_seq_len": recipe.model["max_seq_len"]}
    config.rl_module(rl_module_spec=_spec(recipe, policy, kind), model_config=given)
    if config.env_runner_cls is None and config.output is None:
        config.env_runners(env_runner_cls=CatalogEnvRunner)
    return config.env_runners(
        env_to_module_connector=env_to_module(recipe),
        module_to_env_connector=module_to_env,
        add_default_connectors_to_module_to_env_pipeline=False,
    )


def spec(
    obs_space: Any,
    action_space: Any,
    model: Mapping[str, Any] | None = None,
    *,
    q_values: bool = False,
    catalog: Catalog | None = None,
) -> Any:
    """Return the `RLModuleSpec` of a module with parts of the catalog, for those who put a config together themselves.

    Args:
        obs_space: The environment's observation space.
        action_space: Its action space.
        model: The flat model config.
        q_values: For DQN.
        catalog: The catalog the parts come from; each process's own when None.

    Raises:
        CatalogError: The parts cannot be built.
    """
    kind = "q_learning" if q_values else "actor_critic"
    return _spec(*choose_parts(obs_space, action_space, model, catalog), kind)


def _spec(recipe: Recipe, policy: Policy, kind: str) -> RLModuleSpec:
    from rlcatalog_rllib import CatalogQModule, CatalogRLModule

    return RLModuleSpec(
        module_class=CatalogQModule if kind == "q_learning" else CatalogRLModule,
        observation_space=encoded_space(policy),
        action_space=policy.action_space,
        model_config=recipe.model_config(),
    )


def _is_ours(connector: Any) -> bool:
    return connector is module_to_env or type(connector) is type(env_to_module())
