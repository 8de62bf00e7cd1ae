"""Check that an algorithm can train a policy in an environment."""

from __future__ import annotations

from typing import Any

from gymnasium import Space

from rlcatalog import Policy
from rlcatalog.errors import ConfigError, NotServedError


def check_policy(
    policy: Policy,
    *,
    observation_space: Space[Any],
    action_space: Space[Any],
    algorithm: str,
    needs_values: bool,
) -> None:
    """Raise an error unless an algorithm can train the policy in an environment.

    Args:
        policy: The policy.
        observation_space: The environment's observation space.
        action_space: The environment's action space.
        algorithm: The algorithm's name.
        needs_values: Whether the algorithm learns from value estimates.

    Raises:
        ConfigError: The policy was built for different spaces.
        NotServedError: The model has no value branch, or the actions have no density.
    """
    _check_space("observation_space", of_policy=policy.observation_space, of_env=observation_space)
    _check_space("action_space", of_policy=policy.action_space, of_env=action_space)
    if needs_values and not policy.has_value:
        raise NotServedError(
            f"{algorithm} needs a value estimate; {policy.model_name} has no value_function()."
        )
    # A nested action has a distribution for each of its parts.
    for dist_plan in policy.resolution.dists.walk():
        dist_class = dist_plan.part.load(policy.framework)  # imports the class
        # The class may be a user's, which need not declare this.
        if not getattr(dist_class, "has_density", True):
            raise NotServedError(
                f"{dist_plan.info.path}: {algorithm} learns from the density of actions, but"
                f" {dist_class.__name__} has none (has_density is False), so this part of the"
                " policy would never change. Expected a distribution with a density; remove"
                " custom_action_dist from the model config, or set a different one there."
            )


def _check_space(name: str, *, of_policy: Space[Any], of_env: Space[Any]) -> None:
    if of_policy != of_env:
        raise ConfigError(f"policy: its {name} is {of_policy}, but the environment has {of_env}.")
