"""Structured observations with repeated fields, and a model that reads them, in PyTorch
and TensorFlow.

An observation describes a player and a varying number of enemies, each with a position,
health and items. The agent is rewarded when it moves towards the nearest enemy, so its
model has to read the list of enemies. Run the example with `python
examples/complex_struct_space.py --framework tf`.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple

import rlcatalog
from rlcatalog.spaces import Repeated, RepeatedValues

ITEM = Dict({"kind": Discrete(5), "strength": Box(0.0, 1.0, (1,), np.float32)})
ENEMY = Dict(
    {
        "position": Box(-1.0, 1.0, (2,), np.float32),
        "health": Box(0.0, 1.0, (1,), np.float32),
        "items": Repeated(ITEM, max_len=3),
    }
)
OBSERVATION = Dict(
    {
        "player": Tuple([Box(-1.0, 1.0, (2,), np.float32), Discrete(4)]),
        "enemies": Repeated(ENEMY, max_len=4),
    }
)


class Arena(gym.Env):
    """Arena with enemies at random places; actions are moves to the left, right, down
    or up.
    """

    observation_space = OBSERVATION
    action_space = Discrete(4)
    directions = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]], np.float32)

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        """Show a first scene."""
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Reward a direction by how directly it leads to the nearest enemy, and show
        the next scene.
        """
        here = self.seen["player"][0]
        enemies = self.seen["enemies"]
        ways = [enemy["position"] - here for enemy in enemies]
        nearest = min(ways, key=np.linalg.norm) if ways else np.zeros(2, np.float32)
        self.steps += 1
        return (
            self._look(),
            float(nearest @ self.directions[action]),
            self.steps == 20,
            False,
            {},
        )

    def _look(self) -> Any:
        self.seen = self.observation_space.sample()
        return self.seen


def describe(values: Any, name: str = "obs") -> None:
    """Print the structure of `input_dict["obs"]`."""
    if isinstance(values, RepeatedValues):
        print(
            f"  {name}: at most {values.max_len} items, lengths"
            f" {tuple(values.lengths.shape)}"
        )
        describe(values.values, f"{name}.values")
    elif isinstance(values, dict | tuple):
        for key, value in (
            values.items() if isinstance(values, dict) else enumerate(values)
        ):
            describe(value, f"{name}[{key!r}]")
    else:
        print(f"  {name}: {tuple(values.shape)}")


def train(iterations: int) -> None:
    """Train a model that encodes enemies one by one and adds the results (PyTorch)."""
    import torch
    from torch import nn

    from rlcatalog_ppo import PPO
    from rlcatalog_torch import TorchModelV2

    class SceneNet(TorchModelV2, nn.Module):
        def __init__(
            self,
            obs_space: Any,
            action_space: Any,
            num_outputs: int,
            model_config: Any,
            name: str,
        ) -> None:
            TorchModelV2.__init__(
                self, obs_space, action_space, num_outputs, model_config, name
            )
            nn.Module.__init__(self)
            self.look = nn.Sequential(
                nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()
            )
            self.logits = nn.Linear(64, num_outputs)
            self.value = nn.Linear(64, 1)

        def forward(self, input_dict: Any, state: Any, seq_lens: Any) -> Any:
            player = input_dict["obs"]["player"]
            enemies = input_dict["obs"]["enemies"]
            # [B, enemies].
            there = torch.arange(enemies.max_len) < enemies.lengths[:, None]
            here = player[0][:, None].expand(-1, enemies.max_len, -1)
            seen = self.look(torch.cat([here, enemies.values["position"]], dim=-1))
            self.features = (seen * there[..., None]).sum(dim=1)
            return self.logits(self.features), state

        def value_function(self) -> Any:
            return self.value(self.features).squeeze(1)

    algo = PPO(env=Arena, config={"model": {"custom_model": SceneNet}, "seed": 0})
    for _ in range(iterations):
        result = algo.train()
        print(
            f"{result['timesteps_total']:7d} steps, mean return"
            f" {result['episode_return_mean']}"
        )
    algo.stop()


def main() -> None:
    """Print one batch as models see it, then act in four arenas."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", default="torch", choices=["torch", "tf"])
    parser.add_argument(
        "--iterations", type=int, default=0, help="PPO iterations (torch)"
    )
    arguments = parser.parse_args()
    envs = gym.vector.SyncVectorEnv([Arena] * 4)
    policy = rlcatalog.build(
        env=envs, config={"fcnet_hiddens": [64, 64]}, framework=arguments.framework
    )
    obs, _ = envs.reset(seed=0)
    space = policy.preprocessor.observation_space
    seen = rlcatalog.restore_original_dimensions(policy.preprocess(obs), space)
    print(f"a batch of 4 observations, encoded as {policy.preprocess(obs).shape}:")
    describe(seen)
    print(
        "enemies without padding:",
        [len(enemies) for enemies in seen["enemies"].unbatch_all()],
    )
    for _ in range(10):
        step = policy.act(obs)
        obs, *_ = envs.step(step.action)
    print(f"values after ten steps: {step.value}")
    envs.close()
    if arguments.iterations:
        train(arguments.iterations)


if __name__ == "__main__":
    main()
