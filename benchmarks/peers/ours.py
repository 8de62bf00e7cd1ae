"""rlcatalog: a policy's `act` and `preprocess`, its distributions, and rlcatalog-ppo, all with
their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

import rlcatalog
from benchmarks.peers import work

PACKAGES = ("rlcatalog",)
MODEL = {"fcnet_hiddens": list(work.HIDDENS), "vf_share_layers": False}


def policy_of(obs_space: gym.Space[Any]) -> rlcatalog.Policy:
    return rlcatalog.build(obs_space, gym.spaces.Discrete(2), MODEL, "torch")


def act(obs: work.Array) -> Callable[[], Any]:
    policy = policy_of(gym.make(work.ENV).observation_space)

    def run() -> tuple[Any, ...]:
        step = policy.act(obs)
        return step.action, step.logp, step.value

    return run


def parameters() -> int:
    policy = policy_of(gym.make(work.ENV).observation_space)
    return sum(weight.size for weight in policy.model.get_weights().values())


def drawn(space: gym.Space[Any], inputs: Tensor) -> Callable[[], tuple[Tensor, Tensor, Tensor]]:
    dist_class, _ = rlcatalog.ModelCatalog.get_action_dist(space, {}, framework="torch")

    @torch.no_grad()
    def run() -> tuple[Tensor, Tensor, Tensor]:
        dist = dist_class(inputs, None)
        sample = dist.sample()
        return sample, dist.logp(sample), dist.entropy()

    return run


def categorical(logits: Tensor) -> Callable[[], Any]:
    return drawn(gym.spaces.Discrete(work.SIZE), logits)


def gaussian(mean: Tensor, log_std: Tensor) -> Callable[[], Any]:
    return drawn(gym.spaces.Box(-np.inf, np.inf, (work.SIZE,)), torch.cat((mean, log_std), 1))


def preprocess(observed: dict[str, work.Array]) -> Callable[[], work.Array]:
    return partial(policy_of(work.OBSERVED).preprocess, observed)


def config(num_envs: int) -> dict[str, Any]:
    return {
        "framework": "torch",
        "model": MODEL,
        "num_envs": num_envs,
        "rollout_length": work.ROWS // num_envs,
        "num_epochs": work.EPOCHS,
        "minibatch_size": work.MINIBATCH,
        "lr": work.LR,
        "anneal_lr": False,
        "gamma": work.GAMMA,
        "lambda_": work.LAMBDA,
        "clip_param": work.CLIP,
        "vf_loss_coeff": 2 * work.VALUE_WEIGHT,
        "grad_clip": work.GRAD_CLIP,
        "total_steps": 100_000,
    }


def train(columns: Mapping[str, work.Array]) -> Callable[[], Any]:
    from rlcatalog_ppo.config import PPOConfig
    from rlcatalog_ppo.optimizer import minibatch_optimizer_of
    from rlcatalog_ppo.update import RolloutLearner

    policy = policy_of(gym.make(work.ENV).observation_space)
    settings = PPOConfig(**config(8))
    learner = RolloutLearner(
        policy,
        settings,
        np.random.default_rng(0),
        minibatch_optimizer_of("torch")(policy, settings),
    )
    batch = {name: columns[name] for name in ("obs", "logp", "advantage", "target")}
    batch |= {"raw_action": columns["action"][:, None], "reward": columns["advantage"]}
    return lambda: learner.update(batch, work.LR)


def ppo(num_envs: int) -> Callable[[int], float]:
    from rlcatalog_ppo import PPO

    algo = PPO(work.ENV, config(num_envs))

    def run(rollouts: int) -> None:
        for _ in range(rollouts):
            algo.train()

    return partial(work.per_step, run)


def envpool(num_envs: int) -> Callable[[int], float]:
    from rlcatalog_ppo import PPO

    rows = num_envs * work.POOL_LENGTH
    changes = {
        "rollout_length": work.POOL_LENGTH,
        "num_epochs": work.POOL_EPOCHS,
        "minibatch_size": rows // work.POOL_MINIBATCHES,
        # Of a whole run, of which the measurement is a part.
        "total_steps": work.POOL_TOTAL_STEPS,
    }
    algo = PPO(work.make_pool(num_envs), config(num_envs) | changes)

    def run(rollouts: int) -> int:
        for _ in range(rollouts):
            algo.train()
        return work.pool_steps(num_envs, rollouts)

    return partial(work.per_step, run)
