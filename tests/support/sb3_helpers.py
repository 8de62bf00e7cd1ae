"""Helpers of tests under Stable-Baselines3."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import torch
from gymnasium.spaces import Discrete


class RandomEnv(gym.Env):
    """Random observations of a space, without end; takes any action."""

    def __init__(self, observation_space, action_space):
        self.observation_space = observation_space
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def extractor_kwargs(model_config: dict[str, Any], **policy_kwargs: Any) -> dict[str, Any]:
    """Return `policy_kwargs` with a catalog trunk as the features extractor."""
    from rlcatalog_sb3 import CatalogExtractor

    return {
        "features_extractor_class": CatalogExtractor,
        "features_extractor_kwargs": {"model_config": model_config},
        **policy_kwargs,
    }


class RolloutScores(NamedTuple):
    """What a recurrent policy computes for the steps of its rollout, and what was stored when they
    were sampled.
    """

    logp: torch.Tensor
    stored_logp: torch.Tensor
    values: torch.Tensor
    stored_values: torch.Tensor
    entropy: torch.Tensor


def score_rollout(algorithm) -> RolloutScores:
    """Score the rollout of RecurrentPPO in batches of 50 steps, and leave out padding."""
    scores = []
    for batch in algorithm.rollout_buffer.get(50):
        actions = batch.actions
        if isinstance(algorithm.action_space, Discrete):
            actions = actions.long().flatten()
        values, logp, entropy = algorithm.policy.evaluate_actions(
            batch.observations, actions, batch.lstm_states, batch.episode_starts
        )
        rows = [logp, batch.old_log_prob, values.flatten(), batch.old_values, entropy]
        is_real = batch.mask > 0
        scores.append([row[is_real] for row in rows])
    return RolloutScores(*[torch.cat(parts) for parts in zip(*scores, strict=True)])
