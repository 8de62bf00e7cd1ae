"""Refusals of what Ray's API does not support, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcatalog import Policy
from rlcatalog.errors import ConfigError, NotServedError, nearest


def check_served(policy: Policy) -> None:
    """Raise if a model needs something that Ray's learners do not do.

    Raises:
        NotServedError: It does; the message names it.
    """
    who = policy.model_name
    if policy.views.ahead:
        names = ", ".join(repr(view.name) for view in policy.views.ahead)
        raise NotServedError(
            f"{who} asks for the view {names}, which only a finished rollout has: RLlib's learners get only"
            " what was known when the action was taken. Train it with rlcatalog-ppo, or leave the view out."
        )
    if policy.memory.skips:
        raise NotServedError(
            f"{who} has a view of its states that skips some of the last ones. RLlib cannot store the skipped states."
            " Request all of them, shift='-n:-1', or train it with rlcatalog-ppo."
        )
    if policy.model.update_ops():
        raise NotServedError(
            f"{who}.update_ops() must run after each optimiser step; RLlib's learners call no method of a module"
            " there. Train it with rlcatalog-ppo, or do the update in forward() while input_dict['is_training']."
        )


def check_q_served(policy: Policy, settings: Mapping[str, Any]) -> None:
    """Raise unless DQN gets one value per action of a Discrete.

    Args:
        policy: The parts.
        settings: DQN's entries in the module's `model_config`.

    Raises:
        NotServedError: It does not; the message says why.
    """
    if not policy.action_codec.scalar or policy.resolution.num_outputs != policy.resolution.action.n:
        raise NotServedError(
            f"DQN needs one value for each action of a Discrete; {policy.action_space} with the distribution"
            f" {policy.resolution.dists.component.name!r} is something else. Use PPO, APPO or IMPALA."
        )
    if int(settings.get("num_atoms") or 1) > 1:
        raise NotServedError(
            f"num_atoms={settings['num_atoms']}: a distribution over returns needs num_atoms outputs for each action;"
            " the catalog's models have one. Leave num_atoms at 1."
        )


def check_soft_served(policy: Policy) -> None:
    """Raise unless SAC can weigh the policy's actions by their values.

    Args:
        policy: The parts.

    Raises:
        NotServedError: It cannot; the message says why.
    """
    if policy.memory or policy.views:
        raise NotServedError(f"SAC weighs single steps; {policy.model_name} has a memory, or views of the past.")
    codec, dist = policy.action_codec, policy.resolution.dists.component.name
    if codec.scalar and policy.resolution.num_outputs == policy.resolution.action.n:
        return
    alone = policy.resolution.choices["head"].component is None
    if codec.scalar or codec.raw_kind != "bounded" or not hasattr(policy.dist_class, "rsample") or not alone:
        raise NotServedError(
            "SAC needs a Discrete, or a Box of floats with bounds and draws within them that have gradients; found"
            f" {policy.action_space} with the distribution {dist!r}. For a Box take"
            " custom_action_dist='squashed_gaussian' (rlcatalog-bounded)."
        )


def check_config(config: Any, models: Mapping[str, Any]) -> str:
    """Return the name of the module's class that an algorithm needs.

    Args:
        config: Ray's AlgorithmConfig.
        models: The model configs of single policies, by their ids.

    Raises:
        NotServedError: The algorithm, or a setting of it, is not supported; the message names it.
        ConfigError: A model config is for an unknown policy.
    """
    known = (_MODULES[cls.__name__] for cls in type(config).__mro__ if cls.__name__ in _MODULES)
    if (module := next(known, None)) is None:
        raise NotServedError(f"{type(config).__name__}: served are PPO, APPO, IMPALA, DQN, SAC, BC and MARWIL.")
    if config.framework_str != "torch":
        raise NotServedError(f"framework={config.framework_str!r}: RLlib's new API stack runs only PyTorch.")
    if not (config.enable_rl_module_and_learner and config.enable_env_runner_and_connector_v2):
        raise NotServedError(
            "RLlib's old API stack is not supported: leave enable_rl_module_and_learner and"
            " enable_env_runner_and_connector_v2 of config.api_stack(...) at True."
        )
    if getattr(config, "noisy", False):
        raise NotServedError("noisy=True: RLlib's new API stack has no noisy layers; only epsilon would explore.")
    for name in models:
        if name not in config.policies:
            raise ConfigError(
                f"models: there is no policy {name!r}.{nearest(name, config.policies)} config.multi_agent(policies=...)"
                f" sets them: {', '.join(sorted(map(str, config.policies)))}."
            )
    return module


def learns_offline(config: Any) -> bool:
    """Return whether an algorithm learns from recorded data: BC and MARWIL.

    Args:
        config: Ray's AlgorithmConfig.
    """
    return any(cls.__name__ == "MARWILConfig" for cls in type(config).__mro__)


#: Name of a Ray config class → the module it needs, or None; a subclass needs the same.
_MODULES = {
    "DQNConfig": "CatalogQModule", "SACConfig": "CatalogSACModule",
    **dict.fromkeys(("CQLConfig", "TQCConfig", "IQLConfig")),
    **dict.fromkeys(("PPOConfig", "IMPALAConfig", "MARWILConfig"), "CatalogRLModule"),
}  # fmt: skip
