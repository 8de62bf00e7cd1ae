"""Parametric actions: a CartPole whose observation lists the available actions, as
embeddings and a mask.

An action is an index into the list. Two entries push the cart to the left and to the
right, and the mask forbids all others. Each step shuffles the list, so an index means
nothing by itself, and the policy has to recognise an action by its embedding. rlcatalog
chooses a head that compares the network's output with every embedding.

Run it with `python examples/parametric_actions_cartpole.py --framework tf`, with
`--dqn` for Q-values, or from this folder with `python -m rlcatalog_cli train
parametric_actions_cartpole:ParametricCartPole-v0`.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from rlcatalog_ppo import PPO

#: Length of an embedding.
WIDTH = 4
#: The embeddings of pushing left and right, the same in all environments.
EMBEDDINGS = np.random.default_rng(0).uniform(-1, 1, (2, WIDTH)).astype(np.float32)


class ParametricCartPole(gym.Wrapper):
    """CartPole with a list of available actions.

    Args:
        max_avail_actions: Length of the list.
    """

    def __init__(self, max_avail_actions: int = 10) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.n = max_avail_actions
        self.action_space = Discrete(self.n)
        self.observation_space = Dict(
            {
                "action_mask": MultiBinary(self.n),
                "avail_actions": Box(-1, 1, (self.n, WIDTH), np.float32),
                "cart": self.env.observation_space,
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], Any]:
        """Begin an episode."""
        cart, info = self.env.reset(seed=seed, options=options)
        return self._shown(cart), info

    def step(
        self, action: Any
    ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Push the cart in the direction given by the action's embedding.

        Raises:
            ValueError: The action is forbidden.
        """
        if action not in self.places:
            raise ValueError(
                f"action {action} is forbidden; allowed: {sorted(self.places)}"
            )
        cart, reward, *ended, info = self.env.step(self.places.index(action))
        return self._shown(cart), float(reward), *ended, info

    def _shown(self, cart: np.ndarray) -> dict[str, Any]:
        random = self.env.np_random
        self.places = random.choice(self.n, 2, replace=False).tolist()
        # Anything, where nothing is available.
        embeddings = random.uniform(-1, 1, (self.n, WIDTH)).astype(np.float32)
        embeddings[self.places] = EMBEDDINGS
        mask = np.zeros(self.n, np.int8)
        mask[self.places] = 1
        return {"action_mask": mask, "avail_actions": embeddings, "cart": cart}


gym.register("ParametricCartPole-v0", lambda **options: ParametricCartPole(**options))


def main() -> None:
    """Train a policy and print its mean return."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", default="torch", choices=["torch", "tf"])
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument(
        "--dqn",
        action="store_true",
        help="learn Q-values with examples/dqn.py instead of PPO",
    )
    arguments = parser.parse_args()
    if arguments.dqn:
        import dqn

        # Q-values are dot products, so a dueling head is impossible.
        returns = dqn.train(ParametricCartPole, arguments.framework, dueling=False)
        print(f"mean return over {len(returns)} episodes: {np.mean(returns):.1f}")
        return
    total = 1024 * arguments.iterations
    model = {"fcnet_hiddens": [64, 64]}
    config = {
        "framework": arguments.framework,
        "lr": 3e-3,
        "total_steps": total,
        "seed": 0,
        "model": model,
    }
    algo = PPO(env=ParametricCartPole, config=config)
    for _ in range(arguments.iterations):
        result = algo.train()
        print(
            f"{result['timesteps_total']:7d} steps, mean return"
            f" {result['episode_return_mean']}"
        )
    algo.stop()


if __name__ == "__main__":
    main()
