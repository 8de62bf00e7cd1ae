"""Advantages for a rollout: generalised advantage estimation (GAE)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog.errors import NonFiniteError

if TYPE_CHECKING:
    from rlcatalog_ppo.rollout import Rollout

Array = np.ndarray[Any, Any]


def estimate_advantages(rollout: Rollout, gamma: float, lambda_: float) -> Array:
    """Return a rollout's advantage estimates `[T, N]` (Schulman et al. 2016, equation 16).

    Args:
        rollout: The rollout; its scaled rewards are used if it has any.
        gamma: Discount.
        lambda_: Lambda of the estimate: 0 gives the one-step TD error, and 1 gives the discounted
            return minus the value.
    """
    advantages, running = np.zeros_like(rollout.value), np.zeros_like(rollout.last_value)
    rewards, goes_on = (
        rollout.reward if rollout.scaled is None else rollout.scaled,
        1.0 - rollout.done,
    )
    next_value = np.concatenate([rollout.value[1:], rollout.last_value[None]])
    # check_finite rejects rewards that are too large.
    with np.errstate(over="ignore", invalid="ignore"):
        delta = rewards + rollout.bootstrap + gamma * next_value * goes_on - rollout.value
        decay = gamma * lambda_ * goes_on
        for t in range(len(advantages) - 1, -1, -1):
            running = delta[t] + decay[t] * running
            advantages[t] = running
    return advantages


def refuse_infinite(advantages: Array, rewards: Array, values: Array) -> None:
    """Raise an error if an advantage or a value target is not finite; all arrays are `[T, N]`.

    Raises:
        NonFiniteError: A number is NaN or infinite. The message names the environment and the step.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        wrong = np.argwhere(~np.isfinite(advantages + values).T)
    if len(wrong):
        i, t = (int(place) for place in wrong[0])
        raise NonFiniteError(
            f"environment {i} of {advantages.shape[1]}, step {t} of the rollout: the advantage is"
            f" {advantages[t, i]}, with a reward of {rewards[t, i]:.6g} and a value estimate of"
            f" {values[t, i]:.6g}; the largest reward there is {np.abs(rewards[:, i]).max():.6g}."
            " Scale the rewards, or fix them in the environment.",
            i,
        )
