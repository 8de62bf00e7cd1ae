"""Autoregressive actions: two performers must agree on a song, but also surprise the
audience.

An evening has two rounds. In each round, both performers choose one of n songs. The
audience pays 1 if both play the same song and it was not played earlier that evening.
Observations are empty, so a policy is one joint distribution P(a1, a2), used twice.
With d_v = P(v, v), the probability that both choose song v, an evening pays on average

    sum_v d_v + sum_v d_v (1 - d_v) = sum_v (2 d_v - d_v^2).

- A joint distribution reaches 2 - 1/n: both always choose the same song (the d_v sum to
  1), and each song is equally likely.
- Independent choices, d_v = p_v q_v, stay below sqrt(32/27) < 1.09 for any n. Let s_v =
  sqrt(d_v). By Cauchy and Schwarz, the s_v sum to at most 1. The term 2 s - s^3 is
  largest at s = sqrt(2/3), so 2 s^2 - s^4 <= s sqrt(32/27). Always playing one song
  pays 1.

Run it with `python examples/autoregressive_action_dist.py`; `--framework tf` uses
TensorFlow.
"""

from __future__ import annotations

import argparse
from math import sqrt
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, Tuple

from rlcatalog_ppo import PPO

SONGS = 4
#: The best mean return of an evening, and the bound for independent choices.
OPTIMUM = 2 - 1 / SONGS
BOUND = sqrt(32 / 27)


class Duet(gym.Env):
    """Environment with two rounds; a song that both performers choose pays 1 the first
    time.
    """

    observation_space = Box(1, 1, (1,), np.float32)  # every round looks the same
    action_space = Tuple([Discrete(SONGS), Discrete(SONGS)])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an evening."""
        super().reset(seed=seed)
        self.played: list[int] = []
        self.round = 0
        return np.ones(1, np.float32), {}

    def step(
        self, action: tuple[int, int]
    ) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play a round."""
        first, second = map(int, action)
        surprised = first == second and first not in self.played
        if first == second:
            self.played.append(first)
        self.round += 1
        return np.ones(1, np.float32), float(surprised), self.round == 2, False, {}


gym.register("Duet-v0", Duet)


def train(framework: str, joint: bool, iterations: int, seed: int = 0) -> PPO:
    """Train with the autoregressive head, or with independent choices, and return the
    algorithm.
    """
    model = {"use_autoregressive": joint, "fcnet_hiddens": [16]}
    # Both rounds look the same, so a value estimate does not help; use undiscounted
    # returns.
    config = {
        "framework": framework,
        "seed": seed,
        "lr": 5e-3,
        "gamma": 1.0,
        "lambda_": 1.0,
        "model": model,
    }
    algo = PPO(env=Duet, config=config)
    for _ in range(iterations):
        result = algo.train()
    print(
        f"{result['timesteps_total']:7d} steps, mean return"
        f" {result['episode_return_mean']}"
    )
    return algo


def expected_return(algo: PPO) -> float:
    """Return the mean return of an evening, computed from the probabilities of all n *
    n actions.
    """
    raw = np.array(list(np.ndindex(SONGS, SONGS)))
    logp = algo.policy.evaluate(
        {"obs": np.ones((len(raw), 1), np.float32), "raw_action": raw}
    ).logp
    if hasattr(logp, "detach"):  # PyTorch's tensors have gradients here
        logp = logp.detach()
    p = np.exp(np.asarray(logp))
    d = p.reshape(SONGS, SONGS).diagonal()
    return float((2 * d - d**2).sum())


def main() -> None:
    """Train both policies, and print their mean returns per evening."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--framework", default="torch", choices=["torch", "tf"])
    parser.add_argument("--iterations", type=int, default=40)
    arguments = parser.parse_args()
    for joint in (True, False):
        algo = train(arguments.framework, joint, arguments.iterations)
        mean_return = expected_return(algo)
        algo.stop()
        if joint:
            print(f"joint: {mean_return:.3f} of {OPTIMUM}")
        else:
            print(f"independent: {mean_return:.3f}, never above {BOUND:.3f}")


if __name__ == "__main__":
    main()
