"""Stable-Baselines3's PPO: steps per second with the catalog's policy, against its own policies of
the same nets.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from benchmarks.harness import Figure, wanted

BUDGET = 0.97


class Frames(gym.Env):
    """Frames of noise, 84x84x4 bytes, drawn beforehand: an environment that costs
    next to nothing.
    """

    observation_space, action_space = (
        gym.spaces.Box(0, 255, (84, 84, 4), np.uint8),
        gym.spaces.Discrete(6),
    )

    def __init__(self) -> None:
        """Draws the frames."""
        self._frames = np.random.default_rng(0).integers(0, 256, (16, 84, 84, 4), np.uint8)
        self._step = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode of 100 steps."""
        self._step = 0
        return self._frames[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Pays for action 0."""
        self._step += 1
        return self._frames[self._step % 16], float(action == 0), False, self._step == 100, {}


def speed(
    env: Any, policy: Any, kwargs: dict[str, Any], hyper: dict[str, Any], steps: int, seed: int
) -> float:
    """Return the steps per second of learning, set-up left out."""
    from stable_baselines3 import PPO

    env.seed(seed)
    model = PPO(policy, env, policy_kwargs=kwargs, seed=seed, device="cpu", **hyper)
    start = time.perf_counter()
    model.learn(steps)
    return model.num_timesteps / (time.perf_counter() - start)


def vectors(num_envs: int) -> tuple[Callable[[int], float], Callable[[int], float]]:
    """CartPole: two hidden layers of 64 for policy and value each, tanh."""
    from stable_baselines3.common.env_util import make_vec_env

    from rlcatalog_sb3 import CatalogPolicy

    hyper = {"n_steps": 1024 // num_envs, "batch_size": 256, "n_epochs": 10}
    config = {"fcnet_hiddens": [64, 64], "fcnet_activation": "tanh", "vf_share_layers": False}

    def run(policy: Any, kwargs: dict[str, Any], seed: int) -> float:
        return speed(make_vec_env("CartPole-v1", num_envs), policy, kwargs, hyper, 12_288, seed)

    return (
        lambda seed: run(CatalogPolicy, {"model_config": config}, seed),
        lambda seed: run("MlpPolicy", {"net_arch": {"pi": [64, 64], "vf": [64, 64]}}, seed),
    )


def images(num_envs: int) -> tuple[Callable[[int], float], Callable[[int], float]]:
    """Frames of 84x84x4 bytes: the "nature" net, shared by policy and value."""
    from stable_baselines3.common.env_util import make_vec_env

    from rlcatalog_sb3 import CatalogPolicy

    hyper = {"n_steps": 256 // num_envs, "batch_size": 64, "n_epochs": 2}

    def run(policy: Any, kwargs: dict[str, Any], seed: int) -> float:
        return speed(make_vec_env(Frames, num_envs), policy, kwargs, hyper, 512, seed)

    return (
        lambda seed: run(CatalogPolicy, {"model_config": {"conv_filters": "nature"}}, seed),
        lambda seed: run("CnnPolicy", {}, seed),
    )


def run(rounds: int = 5) -> list[Figure]:
    """Print the ratios of steps per second; larger is faster."""
    torch.set_num_threads(1)
    print(
        "\n| Stable-Baselines3's PPO, environments | ours | its own | ratio (lowest to highest) |"
        " budget | |"
    )
    print("|---|---:|---:|---:|---:|---|")
    cases = [("CartPole, MlpPolicy", vectors, n) for n in (1, 8)] + [
        ("84x84x4, CnnPolicy", images, n) for n in (1, 8)
    ]
    found = []
    for name, sides, num_envs in cases:
        title = f"Stable-Baselines3's PPO, {name}, environments {num_envs}"
        if not wanted(title):
            continue
        ours, own = sides(num_envs)
        ours(0), own(0)  # the first runs pay for imports and memory
        pairs = []
        for turn in range(rounds):
            if turn % 2:
                a, b = ours(turn), own(turn)
            else:
                b, a = own(turn), ours(turn)
            pairs.append((a, b))
        ratios = [a / b for a, b in pairs]
        median = statistics.median(ratios)
        figures = " | ".join(
            f"{statistics.median(side):.0f}/s" for side in zip(*pairs, strict=True)
        )
        spread = f"{median:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        mark = "met" if median >= BUDGET else "**missed**"
        print(f"| {name}, {num_envs} | {figures} | {spread} | {BUDGET} | {mark} |", flush=True)
        found.append(Figure(title, ratios, "higher"))
    return found


if __name__ == "__main__":
    run()
