"""Outputs of a module of Ray RLlib for an environment's observations, by its own code."""

from __future__ import annotations

from typing import Any

import torch

from rlcatalog.errors import NotServedError
from rlcatalog.testing import OutputFunction, PolicyOutputs
from rlcatalog_rllib.actor_critic import CatalogRLModule
from rlcatalog_rllib.spaces import MASK, OBS


def outputs(module: Any) -> OutputFunction:
    """Return a `CatalogRLModule` without memory as an engine for `rlcatalog.testing.check_same_outputs`.

    Actions come from `forward_inference`; densities and entropies from Ray's distribution over what `forward_train`
    returns, as Ray's learners compute them; values from `compute_values`.

    Args:
        module: The module.

    Raises:
        NotServedError: It is another kind of module, or looks back.
    """
    if not isinstance(module, CatalogRLModule) or module.policy.memory or module.policy.views:
        raise NotServedError(f"outputs: expected a CatalogRLModule without memory, found {type(module).__name__}.")
    policy = module.policy

    def run(observations: Any, raw_actions: Any) -> PolicyOutputs:
        encoded, mask = torch.from_numpy(policy.preprocess(observations)), policy.action_mask(observations)
        obs: Any = encoded if mask is None else {OBS: encoded, MASK: torch.from_numpy(mask.astype("int8"))}
        actions = torch.from_numpy(raw_actions[:, 0] if policy.action_codec.scalar else raw_actions)
        with torch.no_grad():
            batch = {"obs": obs, "actions": actions}
            params = module.forward_train(batch)["action_dist_inputs"]
            dist: Any = module.get_train_action_dist_cls().from_logits(params)
            drawn = module.forward_inference({"obs": obs})["actions"].numpy()
            return PolicyOutputs(
                policy.action_codec.adapt(drawn.reshape(raw_actions.shape)),
                dist.logp(actions).numpy(),
                dist.entropy().numpy(),
                module.compute_values(batch).numpy(),
            )

    return run
