"""Check for the conformance kit: what rsl_rl's training loop requires.

The kit imports this module for every part. rsl_rl and PyTorch take seconds to import, so only the
function that needs them imports them.
"""

from __future__ import annotations

import contextlib
import io
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np

import rlcatalog_testing as kit
from rlcatalog.errors import NotServedError, UnsupportedSpaceError
from rlcatalog.observations import stack
from rlcatalog.spaces import SpaceInfo

_ENV_COUNT = 4
_STEPS = 6


@kit.check(
    "trunk",
    "memory",
    "head",
    "action_dist",
    every_framework=False,
    hint="use every weight in the outputs or the value, and store it where the model finds it",
)
def rsl_rl_moves_every_weight(subject: kit.Subject) -> None:
    """A single update of rsl_rl's PPO changes every weight; skips unsupported parts."""
    if "torch" not in subject.part.frameworks:
        raise kit.NotApplicable("rsl_rl runs only PyTorch")
    if find_spec("rsl_rl") is None:
        raise kit.NotApplicable("rsl_rl is not installed")
    example = kit.update_example(subject)
    with kit.refusing(NotServedError, UnsupportedSpaceError):
        algorithm, batches = _make_algorithm(example, subject.catalog)
        weights_before = kit.trained_weights(algorithm.actor.model)
        _train(algorithm, batches)
    kit.every_weight_moved(weights_before, kit.trained_weights(algorithm.actor.model))


def _make_algorithm(example: kit.Example, catalog: Any) -> tuple[Any, list[Any]]:
    """Return rsl_rl's PPO for an example, and a batch of observations for each step and the one
    after.
    """
    from rlcatalog_rsl_rl.algorithm import CatalogPPO
    from rlcatalog_rsl_rl.env import CatalogEnv

    batches = _observation_batches(example)
    inner: Any = SimpleNamespace(num_envs=_ENV_COUNT)
    env = CatalogEnv(inner, example.action, example.obs)
    names = list(batches[0].keys())
    cfg = {
        "num_steps_per_env": _STEPS,
        "obs_groups": {"actor": names, "critic": names},
        "multi_gpu": None,
        "actor": {"model_config": dict(example.config), "catalog": catalog},
        "critic": {},
        # A single update, with a large learning rate and the entropy in the loss, so that no
        # weight stays the same by chance.
        "algorithm": {
            "class_name": CatalogPPO,
            "num_learning_epochs": 1,
            "num_mini_batches": 1,
            "learning_rate": 1e-2,
            "schedule": "fixed",
        },
    }
    with contextlib.redirect_stdout(io.StringIO()):  # rsl_rl prints the models
        algorithm = CatalogPPO.construct_algorithm(batches[0], env, cfg, "cpu")
    return algorithm, batches


def _observation_batches(example: kit.Example) -> list[Any]:
    """Return batches of an example's observations, as rsl_rl's groups.

    Raises:
        NotServedError: An observation is neither a tensor nor a dict of tensors.
    """
    import torch
    from tensordict import TensorDict

    info = SpaceInfo.read(example.obs)
    count = _ENV_COUNT * (_STEPS + 1)
    batch = stack(info, list(kit.observations_of(example, count)))
    groups = batch if isinstance(batch, dict) else {"policy": batch}
    for group in groups.values():
        if not isinstance(group, np.ndarray) or group.dtype.kind not in "biuf":
            raise NotServedError("rsl_rl's observation groups are tensors")
    tensors = {name: torch.from_numpy(np.array(group)) for name, group in groups.items()}
    whole = TensorDict(tensors, [count])
    return list(whole.reshape(_STEPS + 1, _ENV_COUNT).unbind(0))


def _train(algorithm: Any, batches: list[Any]) -> None:
    """Collect a rollout with random rewards, and update the weights once."""
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        for obs in batches[:-1]:
            algorithm.act(obs)
            rewards = torch.randn(_ENV_COUNT, generator=generator)
            dones = torch.zeros(_ENV_COUNT, dtype=torch.int64)
            algorithm.process_env_step(obs, rewards, dones, {})
        algorithm.compute_returns(batches[-1])
    algorithm.update()
