"""The work that every library does: spaces, sizes, inputs and hyperparameters.

A library is a module of this package that offers some of these functions. Each prepares its work
and returns a call that does it; a function that is missing is a cell without a number.

- `act(obs)`: observations `[B, 4]` as an array → actions, log-probabilities and values, as arrays.
- `categorical(logits)`, `gaussian(mean, log_std)`: tensors `[B, SIZE]` → a sample, its
  log-probability, the entropy.
- `preprocess(observed)`: a dict of arrays, a row for each observation → what the library gives its
  net `[B, 15]`.
- `train(columns)`: `EPOCHS` epochs of PPO over `ROWS` rows in minibatches.
- `ppo(num_envs)`: a call that trains on some rollouts of `ROWS` steps and returns the seconds per
  step.
- `envpool(num_envs)`: the same as `ppo` in EnvPool's CartPole, on rollouts of `POOL_LENGTH` steps.
- `parameters()`: number of weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

Array = np.ndarray[Any, Any]

#: Module of this package → the library's name for the reader.
LIBRARIES = {
    "ours": "rlcatalog", "sb3": "Stable-Baselines3", "rllib": "RLlib", "torchrl": "TorchRL",
    "tianshou": "tianshou", "cleanrl": "CleanRL-style file",
}  # fmt: skip
#: Work: a function and a size → what the reader calls it.
WORK = {
    "act 1": "act on one observation",
    "act 64": "act on 64 observations",
    "categorical": "Categorical: sample, log-probability, entropy",
    "gaussian": "diagonal Gaussian: the same",
    "preprocess": "preprocess 256 Dict observations",
    "train": "PPO's training step, minibatch of 256",
    "ppo 1": "PPO on CartPole, 1 environment",
    "ppo 8": "PPO on CartPole, 8 environments",
    "ppo 64": "PPO on CartPole, 64 environments",
    "memory": "memory after acting once",
}
#: Work that is measured only if asked for, because it needs EnvPool, which takes 700 MB.
POOL_WORK = {
    "envpool 64": "PPO on EnvPool's CartPole, 64 environments",
    "envpool 256": "PPO on EnvPool's CartPole, 256 environments",
}
#: All work.
ALL_WORK = {**WORK, **POOL_WORK}

ENV, HIDDENS = "CartPole-v1", (64, 64)
#: Rows of a rollout and of a minibatch; a rollout has as many steps from each environment.
ROWS, EPOCHS, MINIBATCH = 1024, 10, 256
MINIBATCHES = EPOCHS * ROWS // MINIBATCH
#: Rollouts of one measurement of PPO.
ROLLOUTS = 3
#: Steps of each environment in a rollout with EnvPool, passes over it, and minibatches of a pass.
POOL_LENGTH, POOL_EPOCHS, POOL_MINIBATCHES = 32, 4, 4
POOL_ROLLOUTS = 10
#: Steps of the run that is measured in part.
POOL_TOTAL_STEPS = 1_000_000
LR, GAMMA, LAMBDA, CLIP, VALUE_WEIGHT, GRAD_CLIP = 3e-4, 0.99, 0.95, 0.2, 0.5, 0.5
#: Choices, and dimensions of the Gaussian.
SIZE, DIST_BATCH = 6, 64
OBSERVATIONS = 256
OBSERVED = spaces.Dict(
    {
        "gear": spaces.Discrete(5),
        "lamps": spaces.MultiBinary(4),
        "position": spaces.Box(-10, 10, (3,), np.float32),
        "velocity": spaces.Box(-10, 10, (3,), np.float32),
    }
)


def per_step(train: Callable[[int], int | None], rollouts: int) -> float:
    """Return the seconds per step of a call that trains and returns the number of steps, or None
    for `ROWS` each.
    """
    start = time.perf_counter()
    steps = train(rollouts) or rollouts * ROWS
    return (time.perf_counter() - start) / steps


def make_pool(num_envs: int) -> Any:
    """Return EnvPool's CartPole."""
    import envpool

    return envpool.make(ENV, env_type="gymnasium", num_envs=num_envs, seed=0)


def pool_steps(num_envs: int, rollouts: int) -> int:
    """Return the number of steps in some rollouts with EnvPool."""
    return rollouts * num_envs * POOL_LENGTH


def some_obs(rows: int) -> Array:
    """Return observations of CartPole `[rows, 4]`."""
    return np.random.default_rng(0).uniform(-0.05, 0.05, (rows, 4)).astype(np.float32)


def some_observed() -> dict[str, Array]:
    """Return a batch of `OBSERVED`, as a vector environment returns it."""
    OBSERVED.seed(0)
    rows = [OBSERVED.sample() for _ in range(OBSERVATIONS)]
    return {name: np.stack([row[name] for row in rows]) for name in OBSERVED}


def some_inputs() -> tuple[Array, Array]:
    """Return logits or means, and log standard deviations `[DIST_BATCH, SIZE]`."""
    first, second = np.random.default_rng(1).normal(size=(2, DIST_BATCH, SIZE)).astype(np.float32)
    return first, second / 4


def some_columns() -> dict[str, Array]:
    """Return what PPO learns from: obs, action, logp, value, advantage and target,
    `[ROWS]` each.
    """
    rng = np.random.default_rng(2)
    value, advantage = rng.normal(size=(2, ROWS)).astype(np.float32)
    return {
        "obs": some_obs(ROWS),
        "action": rng.integers(0, 2, ROWS),
        "logp": np.full(ROWS, -np.log(2), np.float32),
        "value": value,
        "advantage": advantage,
        "target": value + advantage,
    }


def drawn(make: Callable[[], Any]) -> Callable[[], tuple[Any, Any, Any]]:
    """Return a call that makes a distribution, samples, and returns the sample, its log-probability
    and the entropy.
    """
    import torch

    @torch.no_grad()
    def run() -> tuple[Any, Any, Any]:
        dist = make()
        sample = dist.sample()
        return sample, dist.log_prob(sample), dist.entropy()

    return run


class Dicts(gym.Env[Any, Any]):
    """An environment that does nothing, for libraries that read observations through one."""

    observation_space, action_space = OBSERVED, spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Return any observation."""
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return any observation."""
        return self.observation_space.sample(), 0.0, False, False, {}
