"""Whether a run collects with a frozen policy: decided by its config alone, so that a run can be repeated."""

from __future__ import annotations

from rlcatalog import Policy
from rlcatalog_ppo.config import OnPolicyConfig

#: Measured on CartPole with two layers of 256, recording counted: a run with one environment takes 0.7 times as long,
#: one with eight 0.89, with sixteen 0.94 (with layers of 64: 0.81 and 0.84). Over shorter runs, or with fewer steps
#: between two updates, recording and taking over weights may cost more than they save.
MOST_ENVS, FEWEST_STEPS, SHORTEST_ROLLOUT = 16, 20_000, 64


def wanted(config: OnPolicyConfig, total_steps: int | None, device: str) -> bool:
    """Return whether a run is to collect with a frozen policy.

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


def collecting(policy: Policy, config: OnPolicyConfig) -> Policy:
    """Return a policy, frozen, to collect with; where it cannot be, it acts as it is."""
    return policy.freeze(config.num_envs, seed=config.seed)
