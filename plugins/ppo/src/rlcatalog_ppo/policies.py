"""What the algorithms make of a policy: whether they can train it, and whether a frozen one collects."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from rlcatalog import Policy
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog_ppo.config import OnPolicyConfig

#: Measured on CartPole with two layers of 256, recording counted: a run with one environment takes 0.7 times as long,
#: one with eight 0.89, with sixteen 0.94 (with layers of 64: 0.81 and 0.84). Over shorter runs, or with fewer steps
#: between two updates, recording and taking over weights may cost more than they save.
MOST_ENVS, FEWEST_STEPS, SHORTEST_ROLLOUT = 16, 20_000, 64


def check_policy(policy: Policy, algorithm: str, needs_values: bool) -> None:
    """Raise unless an algorithm can train the policy.

    Args:
        policy: The policy.
        algorithm: The algorithm's name.
        needs_values: Whether it learns from value estimates.

    Raises:
        NotServedError: Its model has no value branch, or its actions have no density.
    """
    if needs_values and not policy.has_value:
        raise NotServedError(f"{algorithm} needs a value estimate; {policy.model_name} has no value_function().")
    for part in policy.resolution.actions.walk():
        dist_class = part.component.load(policy.framework)
        if not getattr(dist_class, "has_density", True):
            raise NotServedError(
                f"{part.info.path}: {algorithm} learns from the density of the actions, and {dist_class.__name__} has"
                " none (has_density is False): this part of the policy would never change. Expected a distribution"
                " that draws; leave custom_action_dist out of the model config, or name another one there."
            )


def collects_frozen(config: OnPolicyConfig, total_steps: int | None, device: str) -> bool:
    """Return whether a run is to collect with a frozen policy: by its config alone, so that it can be repeated.

    Args:
        config: The config.
        total_steps: How many steps it will take in all, or None where that is not known.
        device: Where the policy is.
    """
    if config.frozen != "auto":
        return config.frozen == "always"
    return (
        device == "cpu"
        and config.num_envs <= MOST_ENVS
        and config.rollout_length >= SHORTEST_ROLLOUT
        and (total_steps or 0) >= FEWEST_STEPS
    )


def check_spaces(policy: Policy, observation_space: Any, action_space: Any) -> None:
    """Raise unless a policy was built for the spaces of an environment.

    Raises:
        ConfigError: It was not.
    """
    for name, space in (("observation_space", observation_space), ("action_space", action_space)):
        if getattr(policy, name) != space:
            raise ConfigError(f"policy: its {name} is {getattr(policy, name)}, that of the environment {space}.")


def numbers_of(policy: Policy) -> dict[str, Any]:
    """Return copies of a policy's weights and of its filter's statistics."""
    weights = {name: array.copy() for name, array in policy.model.get_weights().items()}
    return {"weights": weights, "filter": None if policy.filter is None else deepcopy(policy.filter.saved_state())}
