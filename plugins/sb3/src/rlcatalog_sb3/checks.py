"""Checks for the conformance kit: what Stable-Baselines3's training loops require, and outputs to
compare.

The kit imports this module for every part. Stable-Baselines3 and PyTorch take seconds to import, so
only the functions that need them import them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import rlcatalog_testing as kit
from rlcatalog.errors import MissingPluginError, NotServedError
from rlcatalog.observations import rows
from rlcatalog.spaces import SpaceInfo
from rlcatalog_sb3.algorithms import make
from rlcatalog_sb3.spaces import origin_of


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

    model = dict(example.config)
    with kit.refusing(NotServedError, MissingPluginError):
        recurrent = (
            subject.catalog.resolve(example.obs, example.action, model, "torch")
            .choices["memory"]
            .part
        )
        name = "PPO" if recurrent is None else "RecurrentPPO"
        env = for_sb3(kit.ExampleEnv(example), model, catalog=subject.catalog)
        algo = make(
            name,
            env,
            model,
            seed=0,
            device="cpu",
            n_steps=16,
            batch_size=16,
            n_epochs=1,
            learning_rate=1e-2,
            ent_coef=0.01,
        )
    before = kit.trained_weights(algo.policy.model)
    algo.learn(16)
    kit.every_weight_moved(before, kit.trained_weights(algo.policy.model))


def outputs(algorithm: Any) -> kit.OutputFunction:
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
    inside = None
    if origin is not None:
        inside = Flattening(
            origin.observation_space, origin.action_space, origin.config, catalog=origin.catalog
        )

    def run(observations: Any, raw_actions: Any) -> kit.PolicyOutputs:
        shown, width = observations, raw_actions.shape[1]
        if inside is not None:
            flat = [inside.observe(row) for row in rows(info, observations)]
            shown = (
                {key: np.stack([row[key] for row in flat]) for key in flat[0]}
                if inside.masked
                else np.stack(flat)
            )
        stored = torch.from_numpy(
            raw_actions.reshape(len(raw_actions), *(policy.action_space.shape or ()))
        )
        with torch.no_grad():
            values, logp, entropy = policy.evaluate_actions(policy.obs_to_tensor(shown)[0], stored)
        action = algorithm.predict(shown, deterministic=True)[0]
        if inside is not None:
            action = inside.action_codec.adapt(action.reshape(-1, width))
        return kit.PolicyOutputs(action, logp.numpy(), entropy.numpy(), values[:, 0].numpy())

    return run
