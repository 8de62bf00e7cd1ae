"""Action masks in Taxi, where the environment knows which of the six actions have an
effect.

Gymnasium's Taxi returns an action mask in its `info`: the taxi cannot drive through
walls, and a passenger can only be picked up where it is waiting. A wrapper moves the
mask into the observation, under `"action_mask"`, where the catalog finds it. PPO then
never tries a forbidden action.

Each step costs 1 and a delivery pays 20, so an episode of 200 steps without a delivery
returns -200. The first mean is higher than the next ones because at first, only
episodes that ended early with a delivery have finished.

To use TensorFlow, run `python examples/action_masking.py --framework tf`.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
from gymnasium.spaces import Dict, MultiBinary

from rlcatalog_ppo import PPO


class MaskedTaxi(gym.Wrapper):
    """Taxi with the action mask in the observation; a forbidden action
    raises an error.
    """

    def __init__(self) -> None:
        super().__init__(gym.make("Taxi-v4"))
        self.observation_space = Dict(
            {"action_mask": MultiBinary(6), "state": self.env.observation_space}
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], Any]:
        """Begin an episode."""
        return self._shown(*self.env.reset(seed=seed, options=options))

    def step(
        self, action: Any
    ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Check the action against the last mask, and then take it."""
        if not self.mask[action]:
            raise ValueError(f"action {action} is forbidden; the mask is {self.mask}")
        state, reward, terminated, truncated, info = self.env.step(action)
        obs, info = self._shown(state, info)
        return obs, float(reward), terminated, truncated, info

    def _shown(
        self, state: Any, info: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        self.mask = info["action_mask"]
        return {"action_mask": self.mask, "state": state}, info


def main() -> None:
    """Train a policy and print its mean return."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", default="torch", choices=["torch", "tf"])
    parser.add_argument("--iterations", type=int, default=80)
    arguments = parser.parse_args()
    # A Discrete reaches the network as a one-hot, so one layer has separate values for
    # each of the 500 states.
    config = {
        "framework": arguments.framework,
        "seed": 0,
        "lr": 3e-3,
        "reward_scale": True,
        # The learning rate falls to 0 over these steps.
        "total_steps": 1024 * arguments.iterations,
        "model": {"fcnet_hiddens": [64]},
    }
    algo = PPO(env=MaskedTaxi, config=config)
    for _ in range(arguments.iterations):
        result = algo.train()
        print(
            f"{result['timesteps_total']:7d} steps, mean return"
            f" {result['episode_return_mean']}"
        )
    algo.stop()


if __name__ == "__main__":
    main()
