"""Outputs of an algorithm of Stable-Baselines3 for an environment's observations, by its own code."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rlcatalog.errors import NotServedError
from rlcatalog.observations import rows
from rlcatalog.spaces import SpaceInfo
from rlcatalog.testing import OutputFunction, PolicyOutputs
from rlcatalog_sb3.flattening import Flattening
from rlcatalog_sb3.policies import CatalogPolicy
from rlcatalog_sb3.spaces import origin_of


def outputs(algorithm: Any) -> OutputFunction:
    """Return a PPO or A2C over a `CatalogPolicy` as an engine for `rlcatalog.testing.check_same_outputs`.

    Actions come from `algorithm.predict`, densities, entropies and values from `policy.evaluate_actions`.

    Args:
        algorithm: The algorithm; its environment may be flattened (`for_sb3`).

    Raises:
        NotServedError: Its policy is no `CatalogPolicy`.
    """
    policy = algorithm.policy
    if not isinstance(policy, CatalogPolicy):
        raise NotServedError(f"outputs: expected an algorithm over a CatalogPolicy, found {type(policy).__name__}.")
    info = SpaceInfo.read(policy.catalog_policy.observation_space)
    origin = origin_of(policy.observation_space, policy.action_space)
    inside = None
    if origin is not None:
        inside = Flattening(origin.observation_space, origin.action_space, origin.config, catalog=origin.catalog)

    def run(observations: Any, raw_actions: Any) -> PolicyOutputs:
        shown, width = observations, raw_actions.shape[1]
        if inside is not None:
            flat = [inside.observe(row) for row in rows(info, observations)]
            shown = {key: np.stack([row[key] for row in flat]) for key in flat[0]} if inside.masked else np.stack(flat)
        stored = torch.from_numpy(raw_actions.reshape(len(raw_actions), *(policy.action_space.shape or ())))
        with torch.no_grad():
            values, logp, entropy = policy.evaluate_actions(policy.obs_to_tensor(shown)[0], stored)
        action = algorithm.predict(shown, deterministic=True)[0]
        if inside is not None:
            action = inside.action_codec.adapt(action.reshape(-1, width))
        return PolicyOutputs(action, logp.numpy(), entropy.numpy(), values[:, 0].numpy())

    return run
