"""PPO in one file, in the style of CleanRL, in PyTorch; `rlcatalog.build` creates the
policy in one line.

The script supports any observation and action space, action masks inside Dict
observations, and any model without memory. Copy it if you want to change the algorithm
itself. Run it with `python examples/ppo_single_file.py --env CartPole-v1 --seed 1`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import rlcatalog


@dataclass(frozen=True)
class Hyper:
    """Hyperparameters; counts are environment steps."""

    steps: int = 100_000
    num_envs: int = 8
    length: int = 128  # per rollout and environment
    epochs: int = 10
    minibatch: int = 256
    lr: float = 1e-3  # falls linearly to zero
    gamma: float = 0.99
    lambda_: float = 0.95
    clip: float = 0.2
    value_weight: float = 0.1
    entropy_weight: float = 0.0
    largest_gradient: float = 0.5


class Player:
    """Steps environments with a policy."""

    def __init__(
        self,
        policy: rlcatalog.Policy,
        envs: gym.vector.VectorEnv,
        hyper: Hyper,
        seed: int,
    ) -> None:
        self.policy = policy
        self.envs = envs
        self.hyper = hyper
        obs, _ = envs.reset(seed=seed)
        self.obs = policy.preprocess(obs, update=True)
        self.mask = policy.action_mask(obs)
        self.running = np.zeros(envs.num_envs)
        self.returns = []

    def rollout(self) -> dict[str, np.ndarray]:
        """Return the rows to learn from, `[T * N, ...]`."""
        policy = self.policy
        hyper = self.hyper
        steps = []
        for _ in range(hyper.length):
            step = policy.act_encoded(self.obs, mask=self.mask)
            row = {
                "obs": self.obs,
                "raw_action": step.raw_action,
                "logp": step.logp,
                "value": step.value,
            }
            if self.mask is not None:
                row["mask"] = self.mask
            obs, reward, terminated, truncated, _ = self.envs.step(step.action)
            done = terminated | truncated
            self.running += reward
            self.returns += self.running[done].tolist()
            self.running[done] = 0.0
            # After a time limit, the value of the last observation replaces the missing
            # rewards.
            row["reward"] = reward.astype(np.float32)
            row["done"] = done
            cut = truncated & ~terminated
            if cut.any():
                values = policy.values(policy.preprocess(obs))
                row["reward"][cut] += hyper.gamma * values[cut]
            # Only now, because a reset may overwrite the last observation.
            if done.any():
                obs, _ = self.envs.reset(options={"reset_mask": done})
            self.obs = policy.preprocess(obs, update=True)
            self.mask = policy.action_mask(obs)
            steps.append(row)
        columns = {name: np.stack([row[name] for row in steps]) for name in steps[0]}
        columns |= self.advantages(columns, policy.values(self.obs))
        return {
            name: column.reshape(-1, *column.shape[2:])
            for name, column in columns.items()
        }

    def advantages(
        self, columns: Mapping[str, np.ndarray], last_value: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return generalised advantage estimates and value targets, `[T, N]` (Schulman
        et al. 2016, equation 16).
        """
        value = columns["value"]
        advantage = np.zeros_like(columns["value"])
        following = last_value
        running = np.zeros_like(last_value)
        for t in reversed(range(len(value))):
            goes_on = 1.0 - columns["done"][t]
            error = (
                columns["reward"][t] + self.hyper.gamma * following * goes_on - value[t]
            )
            running = error + self.hyper.gamma * self.hyper.lambda_ * goes_on * running
            advantage[t] = running
            following = value[t]
        return {"advantage": advantage, "target": advantage + value}


class Learner:
    """Improves a policy's weights with the PPO loss (Schulman et al. 2017, equations 7
    and 9).
    """

    def __init__(self, policy: rlcatalog.Policy, hyper: Hyper) -> None:
        self.policy = policy
        self.hyper = hyper
        self.weights = list(policy.model.parameters())
        self.optimizer = torch.optim.Adam(self.weights, lr=hyper.lr, eps=1e-5)

    def step(self, batch: Mapping[str, np.ndarray], lr: float) -> None:
        """Take one optimiser step."""
        hyper = self.hyper
        evaluation = self.policy.evaluate(batch)
        logp, advantage, target = (
            torch.from_numpy(batch[name]) for name in ("logp", "advantage", "target")
        )
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = (evaluation.logp - logp).exp()
        clipped = ratio.clamp(1 - hyper.clip, 1 + hyper.clip)
        gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
        error = (evaluation.value - target).square().mean()
        loss = hyper.value_weight * 0.5 * error - gain
        if hyper.entropy_weight:
            loss = loss - hyper.entropy_weight * evaluation.entropy.mean()
        self.optimizer.param_groups[0]["lr"] = lr
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights, hyper.largest_gradient)
        self.optimizer.step()


def environments(env: str, count: int, **config: Any) -> gym.vector.VectorEnv:
    """Return a vector environment; the caller resets ended episodes."""
    how = {"autoreset_mode": gym.vector.AutoresetMode.DISABLED}
    return gym.make_vec(
        env, count, vectorization_mode="sync", vector_kwargs=how, **config
    )


def train(
    env: str = "CartPole-v1",
    seed: int = 0,
    *,
    model: Mapping[str, Any] | None = None,
    hyper: Hyper | None = None,
    env_config: Mapping[str, Any] | None = None,
) -> rlcatalog.Policy:
    """Train a policy.

    `env` is an environment's id, `env_config` contains its keyword arguments, and
    `model` is the model config.
    """
    hyper = hyper or Hyper()
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    envs = environments(env, hyper.num_envs, **(env_config or {}))
    policy = rlcatalog.build(env=envs, config=model, framework="torch")
    if policy.memory or policy.views:
        raise ValueError(
            "This example replays single steps; a model that looks back needs"
            " sequences."
        )
    player = Player(policy, envs, hyper, seed)
    learner = Learner(policy, hyper)
    begin = time.perf_counter()
    size = hyper.num_envs * hyper.length
    for done in range(0, hyper.steps, size):
        batch = player.rollout()
        lr = hyper.lr * (1 - done / hyper.steps)
        for _ in range(hyper.epochs):
            for rows in np.split(
                rng.permutation(size), range(hyper.minibatch, size, hyper.minibatch)
            ):
                learner.step({name: column[rows] for name, column in batch.items()}, lr)
        if player.returns and (done // size) % 10 == 9:
            seconds = time.perf_counter() - begin
            recent = np.mean(player.returns[-20:])
            print(f"{done + size:7d} steps, {seconds:4.0f} s, mean return {recent:.1f}")
    envs.close()
    return policy


def play(policy: rlcatalog.Policy, env: str, episodes: int, seed: int) -> list[float]:
    """Play new episodes with the most likely actions and return their returns."""
    envs = environments(env, 1)
    obs, _ = envs.reset(seed=seed)
    returns = []
    running = 0.0
    while len(returns) < episodes:
        obs, reward, terminated, truncated, _ = envs.step(
            policy.act(obs, explore=False).action
        )
        running += float(reward[0])
        if terminated[0] or truncated[0]:
            returns.append(running)
            running = 0.0
            obs, _ = envs.reset()
    envs.close()
    return returns


def main() -> None:
    """Train, play, and print the mean return."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=Hyper.steps)
    parser.add_argument(
        "--episodes",
        type=int,
        default=100,
        help="number of episodes to play at the end",
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # small nets: more threads wait for one another
    policy = train(arguments.env, arguments.seed, hyper=Hyper(steps=arguments.steps))
    returns = play(policy, arguments.env, arguments.episodes, arguments.seed + 10_000)
    print(
        f"mean return over {len(returns)} episodes: {np.mean(returns):.1f} (lowest"
        f" {np.min(returns):.0f})"
    )


if __name__ == "__main__":
    main()
