"""A thermostat whose bounds are far from [-1, 1], beside the same task rescaled to [-1, 1].

    python -m benchmarks.thermostat [--engines ppo sb3 rllib] [--seeds 0 1 2 3 4]

Each engine trains with its defaults in both tasks. The script prints the mean reward of 4,000 steps
without exploration, and the share of the gain over random actions that the thermostat reaches. The
engine `ppo-clip` is our PPO with `action_bounds="clip"`, which cannot leave the lower bound.

The task, its sizes and the seeds were fixed before the first run. tests/learning/test_thermostat.py
holds what must come out.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from rlcatalog import Policy

#: Lowest and highest temperature of the thermostat, in degrees Celsius.
COLDEST, WARMEST = 15.0, 30.0
EPISODE_LENGTH = 10
STEPS = 20_000
EVALUATION_STEPS = 4_000
MODEL = {"fcnet_hiddens": [32, 32]}


class Thermostat(gym.Env[Any, Any]):
    """Thermostat: the best temperature depends on the weather and on who is in the room.

    The reward is minus the distance to it, in units of half the range, so that both tasks pay the
    same for the same temperature.

    Args:
        is_rescaled: Whether actions are in [-1, 1] instead of degrees.
    """

    observation_space = Box(-1, 1, (3,), np.float32)

    def __init__(self, is_rescaled: bool = False) -> None:
        self.is_rescaled = is_rescaled
        low, high = (-1, 1) if is_rescaled else (COLDEST, WARMEST)
        self.action_space = Box(low, high, (1,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        reward = float(rewards(self.obs[None], np.asarray(action)[None], self.is_rescaled)[0])
        return self._observe(), reward, False, self.steps == EPISODE_LENGTH, {}

    def _observe(self) -> Any:
        self.obs = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return self.obs


def rewards(observations: Any, actions: Any, is_rescaled: bool) -> Any:
    """Return the rewards `[B]` of actions `[B, 1]` after observations `[B, 3]`."""
    setting = actions[:, 0].astype(np.float64)
    if not is_rescaled:
        setting = (setting - (COLDEST + WARMEST) / 2) / ((WARMEST - COLDEST) / 2)
    weather, people, _ = observations.T.astype(np.float64)
    best = 0.5 * weather * people - 0.3 * weather
    return -np.abs(setting - best)


def evaluate(policy: Policy, is_rescaled: bool) -> float:
    """Return the mean reward of a policy that does not explore."""
    observations = _evaluation_observations()
    actions = policy.act(observations, explore=False).action
    return float(rewards(observations, actions, is_rescaled).mean())


def evaluate_random() -> float:
    """Return the mean reward of random actions, which is the same in both tasks."""
    actions = np.random.default_rng(1).uniform(-1, 1, (EVALUATION_STEPS, 1))
    return float(rewards(_evaluation_observations(), actions, is_rescaled=True).mean())


def _evaluation_observations() -> Any:
    numbers = np.random.default_rng(0).uniform(-1, 1, (EVALUATION_STEPS, 3))
    return numbers.astype(np.float32)


# --- engines --------------------------------------------------------------------------------------


def train_ppo(is_rescaled: bool, seed: int, **model: Any) -> Policy:
    """Train with rlcatalog's PPO."""
    from rlcatalog_ppo import PPO

    config = {"seed": seed, "num_envs": 8, "lr": 1e-3, "model": {**MODEL, **model}}
    algo = PPO(lambda: Thermostat(is_rescaled), config)
    algo.learn(STEPS)
    algo.stop()
    return algo.policy


def train_ppo_clip(is_rescaled: bool, seed: int) -> Policy:
    """Train with rlcatalog's PPO and the former default of `action_bounds`."""
    return train_ppo(is_rescaled, seed, action_bounds="clip")


def train_sb3(is_rescaled: bool, seed: int) -> Policy:
    """Train with Stable-Baselines3's PPO in an environment wrapped by `for_sb3`."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    from rlcatalog_sb3 import CatalogPolicy, for_sb3, to_policy

    envs = make_vec_env(lambda: for_sb3(Thermostat(is_rescaled), MODEL), n_envs=8, seed=seed)
    algo = PPO(CatalogPolicy, envs, n_steps=256, learning_rate=1e-3, seed=seed, device="cpu")
    return to_policy(algo.learn(STEPS))


def train_rllib(is_rescaled: bool, seed: int) -> Policy:
    """Train with RLlib's PPO."""
    from ray.rllib.algorithms.ppo import PPOConfig

    from rlcatalog_rllib import configure, to_policy

    config = PPOConfig().debugging(seed=seed, log_level="ERROR")
    config.reporting(min_time_s_per_iteration=0)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=8)
    config.training(train_batch_size_per_learner=2048, minibatch_size=256, num_epochs=8, lr=1e-3)
    algo = configure(config, RescaledForRay if is_rescaled else ForRay, model=MODEL).build_algo()
    while algo.train()["num_env_steps_sampled_lifetime"] < STEPS:
        pass
    policy = to_policy(algo)
    algo.stop()
    return policy


class ForRay(Thermostat):
    """The thermostat as Ray creates environments."""

    def __init__(self, config: Any = None) -> None:
        super().__init__()


class RescaledForRay(Thermostat):
    """The rescaled task as Ray creates environments."""

    def __init__(self, config: Any = None) -> None:
        super().__init__(is_rescaled=True)


ENGINES: dict[str, Callable[[bool, int], Policy]] = {
    "ppo": train_ppo,
    "ppo-clip": train_ppo_clip,
    "sb3": train_sb3,
    "rllib": train_rllib,
}


def main() -> None:
    """Train, and print a row for each run and the mean of each engine."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    chance = evaluate_random()
    print(f"random actions: {chance:.3f}", flush=True)
    for engine in arguments.engines:
        gains: dict[bool, list[float]] = {False: [], True: []}
        for seed in arguments.seeds:
            for is_rescaled in gains:
                reward = evaluate(ENGINES[engine](is_rescaled, seed), is_rescaled)
                gains[is_rescaled].append(reward - chance)
            own, rescaled = gains[False][-1], gains[True][-1]
            print(
                f"{engine}, seed {seed}: thermostat {own + chance:.3f}, rescaled"
                f" {rescaled + chance:.3f}, share of the gain {own / rescaled:.3f}",
                flush=True,
            )
        share = np.mean(gains[False]) / np.mean(gains[True])
        print(f"{engine}: share of the mean gain {share:.3f}", flush=True)


if __name__ == "__main__":
    main()
