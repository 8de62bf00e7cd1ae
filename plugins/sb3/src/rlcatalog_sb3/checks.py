"""Checks for the conformance kit: what Stable-Baselines3's training loops require, and outputs to
compare.

The kit imports this module for every part. Stable-Baselines3 and PyTorch take seconds to import, so
only the functions that need them import them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

import rlcatalog_testing as kit
from rlcatalog.errors import MissingPluginError, NotServedError
from rlcatalog.frameworks import Array
from rlcatalog.observations import rows
from rlcatalog.spaces import SpaceInfo
from rlcatalog_sb3.algorithms import make
from rlcatalog_sb3.spaces import origin_of

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

    from rlcatalog_sb3.flat_spaces import Flattening


@kit.check(
    "trunk",
    "memory",
    "head",
    "action_dist",
    every_framework=False,
    hint="use every weight in the outputs or the value, and store it where the model finds it",
)
def sb3_moves_every_weight(subject: kit.Subject) -> None:
    """A single update of Stable-Baselines3's PPO or RecurrentPPO changes every weight; skips
    unsupported parts.
    """
    if "torch" not in subject.part.frameworks:
        raise kit.NotApplicable("Stable-Baselines3 runs only PyTorch")
    example = kit.update_example(subject)
    from rlcatalog_sb3.flat_spaces import for_sb3

    model_config = dict(example.config)
    # The check is skipped if Stable-Baselines3 does not support the part, or if sb3-contrib is not
    # installed.
    with kit.refusing(NotServedError, MissingPluginError):
        resolution = subject.catalog.resolve(example.obs, example.action, model_config, "torch")
        has_memory = resolution.choices["memory"].part is not None
        algorithm = make(
            "RecurrentPPO" if has_memory else "PPO",
            for_sb3(kit.ExampleEnv(example), model_config, catalog=subject.catalog),
            model_config,
            seed=0,
            device="cpu",
            # One rollout is one batch, so that there is a single update.
            n_steps=16,
            batch_size=16,
            n_epochs=1,
            # With a large learning rate and the entropy in the loss, no weight stays the same by
            # chance.
            learning_rate=1e-2,
            ent_coef=0.01,
        )
    weights_before = kit.trained_weights(algorithm.policy.model)
    algorithm.learn(total_timesteps=16)
    weights_after = kit.trained_weights(algorithm.policy.model)
    kit.every_weight_moved(weights_before, weights_after)


def outputs(algorithm: BaseAlgorithm) -> kit.OutputFunction:
    """Return an engine that wraps PPO or A2C with a `CatalogPolicy`, for
    `rlcatalog_testing.check_same_outputs`.

    Actions come from `algorithm.predict`; densities, entropies and values come from
    `policy.evaluate_actions`.

    Args:
        algorithm: The algorithm; its environment may be wrapped with `for_sb3`.

    Raises:
        NotServedError: The algorithm's policy is not a `CatalogPolicy`.
    """
    import torch

    from rlcatalog_sb3.flat_spaces import Flattening
    from rlcatalog_sb3.policies import CatalogPolicy

    policy = algorithm.policy
    if not isinstance(policy, CatalogPolicy):
        raise NotServedError(
            f"outputs: expected an algorithm with a CatalogPolicy, found {type(policy).__name__}."
        )
    info = SpaceInfo.read(policy.catalog_policy.observation_space)
    origin = origin_of(policy.observation_space, policy.action_space)
    flattening = None  # unless `for_sb3` has flattened the environment
    if origin is not None:
        flattening = Flattening(
            origin.observation_space, origin.action_space, origin.config, catalog=origin.catalog
        )

    def compute_outputs(observations: Any, raw_actions: Array) -> kit.PolicyOutputs:
        sb3_observations = observations
        if flattening is not None:
            sb3_observations = _flatten_batch(flattening, rows(info, observations))
        action_shape = policy.action_space.shape or ()
        sb3_actions = torch.from_numpy(raw_actions.reshape(len(raw_actions), *action_shape))
        tensors, _ = policy.obs_to_tensor(sb3_observations)
        with torch.no_grad():
            values, logp, entropy = policy.evaluate_actions(tensors, sb3_actions)
        action, _ = algorithm.predict(sb3_observations, deterministic=True)
        if flattening is not None:
            raw_width = raw_actions.shape[1]
            action = flattening.action_codec.adapt(action.reshape(-1, raw_width))
        return kit.PolicyOutputs(action, logp.numpy(), entropy.numpy(), values[:, 0].numpy())

    return compute_outputs


def _flatten_batch(flattening: Flattening, observations: Iterable[Any]) -> Any:
    """Return a batch of observations in Stable-Baselines3's format."""
    flat = [flattening.observe(obs) for obs in observations]
    if not flattening.masked:
        return np.stack(flat)
    return {key: np.stack([obs[key] for obs in flat]) for key in flat[0]}
