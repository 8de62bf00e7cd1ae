"""Refusals of policies that the algorithms cannot train."""

from __future__ import annotations

from rlcatalog import Policy
from rlcatalog.actions import DistPart, unbind
from rlcatalog.errors import NotServedError


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
    for part in _independent_parts(policy):
        dist_class, _ = unbind(part.dist)
        if not getattr(dist_class, "has_density", True):
            raise NotServedError(
                f"{part.info.path}: {algorithm} learns from the density of the actions, and {dist_class.__name__} has"
                " none (has_density is False): this part of the policy would never change. Expected a distribution"
                " that draws; leave custom_action_dist out of the model config, or name another one there."
            )


def _independent_parts(policy: Policy) -> list[DistPart]:
    action, size = policy.action_codec.info, policy.resolution.num_outputs
    dist_class, options = unbind(policy.dist_class)
    if not hasattr(dist_class, "parts"):
        return [DistPart(action, policy.dist_class, size)]
    parts: list[DistPart] = dist_class.parts(action, size, options)
    return parts
