"""Errors for features that Ray's API does not support, raised before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from rlcatalog import Policy
from rlcatalog.errors import ConfigError, NotServedError, nearest


def check_served(policy: Policy) -> None:
    """Raise an error if a model needs features that Ray's learners do not have.

    Raises:
        NotServedError: The model needs such a feature. The message names it.
    """
    who = policy.model_name
    if policy.views.ahead:
        names = ", ".join(repr(view.name) for view in policy.views.ahead)
        raise NotServedError(
            f"{who} requests the view {names}, which needs a finished rollout, but RLlib's"
            " learners get only what was known when the action was taken. Train it with"
            " rlcatalog-ppo, or remove the view."
        )
    if policy.memory.skips:
        raise NotServedError(
            f"{who} has a view of its states that skips some of them. RLlib cannot store the"
            " skipped states. Request all states, shift='-n:-1', or train it with rlcatalog-ppo."
        )
    if policy.model.update_ops():
        raise NotServedError(
            f"{who}.update_ops() must run after each optimiser step, but RLlib's learners do not"
            " call the module at that point. Train it with rlcatalog-ppo, or update in forward()"
            " if input_dict['is_training'] is set."
        )


def check_q_served(policy: Policy, settings: Mapping[str, Any]) -> None:
    """Raise an error unless the model returns one value for each action of a Discrete, as DQN
    requires.

    Args:
        policy: The parts.
        settings: DQN's entries in the module's `model_config`.

    Raises:
        NotServedError: The model does not; the message gives the reason.
    """
    if policy.resolution.critic is not None:
        raise NotServedError(
            "critic: RLlib's DQN learns the values of actions with the policy's own model, and"
            " would not train a critic. Use PPO, APPO, IMPALA or SAC, or remove critic and"
            " obs_groups from the model config."
        )
    if not _has_value_per_action(policy):
        raise NotServedError(
            f"DQN needs one value for each action of a Discrete; found {policy.action_space} with"
            f" the distribution {policy.resolution.dists.part.name!r}. Use PPO, APPO or"
            " IMPALA."
        )
    if int(settings.get("num_atoms") or 1) > 1:
        raise NotServedError(
            f"num_atoms={settings['num_atoms']}: a distribution over returns needs num_atoms"
            " outputs for each action, but the catalog's models have only one. Keep num_atoms at"
            " 1."
        )


def check_soft_served(policy: Policy) -> None:
    """Raise an error unless SAC supports the policy's actions and model.

    Args:
        policy: The parts.

    Raises:
        NotServedError: The model does not; the message gives the reason.
    """
    if policy.frozen_parts:
        raise NotServedError(
            "freeze_parts: SAC's critics are built like the policy, and its learner trains all of"
            " their weights. Remove freeze_parts."
        )
    if policy.memory or policy.views:
        raise NotServedError(
            f"SAC trains on single steps, but {policy.model_name} has a memory or views of the"
            " past."
        )
    if not _has_value_per_action(policy) and not _is_bounded_and_differentiable(policy):
        raise NotServedError(
            "SAC needs a Discrete, or a bounded Box of floats, or a Tuple or Dict of them, whose"
            " distributions have bounded samples with gradients; found"
            f" {policy.action_space} with the distribution"
            f" {policy.resolution.dists.part.name!r}."
            " For Boxes, use custom_action_dist='squashed_gaussian' (rlcatalog-gaussian)."
        )


def _has_value_per_action(policy: Policy) -> bool:
    """Return whether the actions are a Discrete, and the model returns one value for each."""
    resolution = policy.resolution
    return policy.action_codec.scalar and resolution.num_outputs == resolution.action.n


def _is_bounded_and_differentiable(policy: Policy) -> bool:
    """Return whether a policy without a head draws numbers within bounds, through which gradients
    flow.
    """
    has_head = policy.resolution.choices["head"].part is not None
    codec = policy.action_codec
    draws_bounded_numbers = not codec.scalar
    for leaf in codec.leaves:
        if leaf.counts is not None or leaf.raw_kind != "bounded":
            draws_bounded_numbers = False
    # A user's distribution may lack this method.
    has_gradients = hasattr(policy.dist_class, "rsample")
    return draws_bounded_numbers and has_gradients and not has_head


def check_config(config: AlgorithmConfig, models: Mapping[str, Any]) -> str:
    """Return the name of the module class that an algorithm needs.

    Args:
        config: Ray's AlgorithmConfig.
        models: Model configs, by policy id.

    Raises:
        NotServedError: The algorithm or one of its settings is not supported. The message names it.
        ConfigError: A model config belongs to an unknown policy.
    """
    module = None
    for cls in type(config).__mro__:
        if cls.__name__ in _MODULES:
            module = _MODULES[cls.__name__]
            break
    if module is None:
        raise NotServedError(
            f"{type(config).__name__} is not supported. Supported: PPO, APPO, IMPALA, DQN, SAC, BC"
            " and MARWIL."
        )
    if config.framework_str != "torch":
        raise NotServedError(
            f"framework={config.framework_str!r}: RLlib's new API stack runs only PyTorch."
        )
    if not (config.enable_rl_module_and_learner and config.enable_env_runner_and_connector_v2):
        raise NotServedError(
            "RLlib's old API stack is not supported: keep enable_rl_module_and_learner and"
            " enable_env_runner_and_connector_v2 set to True in config.api_stack(...)."
        )
    # Of the configs, only that of DQN has this attribute.
    if getattr(config, "noisy", False):
        raise NotServedError(
            "noisy=True: RLlib's new API stack has no noisy layers, so only epsilon would explore."
        )
    for name in models:
        if name not in config.policies:
            raise ConfigError(
                f"models: there is no policy {name!r}.{nearest(name, config.policies)}"
                " config.multi_agent(policies=...) sets them:"
                f" {', '.join(sorted(map(str, config.policies)))}."
            )
    return module


def learns_offline(config: AlgorithmConfig) -> bool:
    """Return whether an algorithm is trained on recorded data (BC, MARWIL).

    Args:
        config: Ray's AlgorithmConfig.
    """
    return any(cls.__name__ == "MARWILConfig" for cls in type(config).__mro__)


#: Name of a Ray config class → the module that it and its subclasses need; None if the catalog has
#: none, although their base class is in this table.
_MODULES = {
    "DQNConfig": "CatalogQModule",
    "SACConfig": "CatalogSACModule",
    "CQLConfig": None,
    "TQCConfig": None,
    "IQLConfig": None,
    "PPOConfig": "CatalogRLModule",
    "IMPALAConfig": "CatalogRLModule",
    "MARWILConfig": "CatalogRLModule",
}
