"""Check for the conformance kit: what skrl's training loops require.

The kit imports this module for every part. skrl and PyTorch take seconds to import, so only the
functions that need them import them.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

import rlcatalog_testing as kit
from rlcatalog import Catalog
from rlcatalog.errors import NotServedError
from rlcatalog.observations import stack
from rlcatalog.spaces import SpaceInfo, map_tensors

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
def skrl_moves_every_weight(subject: kit.Subject) -> None:
    """A single update of skrl's PPO or PPO_RNN changes every weight; skips unsupported parts."""
    if "torch" not in subject.part.frameworks:
        raise kit.NotApplicable("skrl runs only PyTorch")
    if find_spec("skrl") is None:
        raise kit.NotApplicable("skrl is not installed")
    example = kit.update_example(subject)
    with kit.refusing(NotServedError):
        env = _ExampleEnv(example)
        agent, wrapped_env = _make_agent(example, env, subject.catalog)
        model = agent.policy.model
        weights_before = kit.trained_weights(model)
        _train(agent, wrapped_env)
    kit.every_weight_moved(weights_before, kit.trained_weights(model))


class _ExampleEnv:
    """Vector environment with an example's observations, as tensors, and random rewards."""

    def __init__(self, example: kit.Example) -> None:
        import torch

        self.num_envs = _ENV_COUNT
        self.observation_space = example.obs
        self.action_space = example.action
        self.device = torch.device("cpu")
        self._observations = iter(kit.observations_of(example, _ENV_COUNT * (_STEPS + 1)))
        self._generator = torch.Generator().manual_seed(0)

    def reset(self) -> tuple[Any, dict[str, Any]]:
        """Return the first observations."""
        return self._observe(), {}

    def step(self, _actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Return the next observations; no episode ends."""
        import torch

        rewards = torch.randn(_ENV_COUNT, generator=self._generator)
        never = torch.zeros(_ENV_COUNT, dtype=torch.bool)
        return self._observe(), rewards, never, never, {}

    def _observe(self) -> Any:
        import torch

        info = SpaceInfo.read(self.observation_space)
        batch = stack(info, [next(self._observations) for _ in range(_ENV_COUNT)])
        return map_tensors(batch, lambda array: torch.from_numpy(np.array(array)))


def _make_agent(example: kit.Example, env: _ExampleEnv, catalog: Catalog) -> tuple[Any, Any]:
    """Return skrl's PPO for an example, and the wrapped environment."""
    from skrl.memories.torch import RandomMemory

    from rlcatalog_skrl import PPO, PPO_RNN, CatalogEnv, CatalogModel

    wrapped_env = CatalogEnv(env, dict(example.config), catalog=catalog)
    model = CatalogModel(wrapped_env)
    agent_class = PPO_RNN if wrapped_env.policy.memory else PPO
    agent = agent_class(
        models={"policy": model, "value": model},
        memory=RandomMemory(memory_size=_STEPS, num_envs=_ENV_COUNT, device="cpu"),
        observation_space=wrapped_env.observation_space,
        action_space=wrapped_env.action_space,
        device="cpu",
        # A single update, with a large learning rate and the entropy in the loss, so that no weight
        # stays the same by chance.
        cfg={
            "rollouts": _STEPS,
            "learning_epochs": 1,
            "mini_batches": 1,
            "learning_rate": 1e-2,
            "entropy_loss_scale": 0.01,
            "experiment": {"write_interval": 0, "checkpoint_interval": 0},
        },
    )
    return agent, wrapped_env


def _train(agent: Any, env: Any) -> None:
    """Collect a rollout, and update the weights once."""
    from skrl.trainers.torch import SequentialTrainer

    options = {
        "timesteps": _STEPS,
        "headless": True,
        "disable_progressbar": True,
        "close_environment_at_exit": False,
    }
    SequentialTrainer(env=env, agents=agent, cfg=options).train()
