"""PPO by hand, in one file and without the catalog: the floor that `rlcatalog-ppo` is compared to.

It handles environments with a one-dimensional Box observation and a Discrete action. Run it with
`python benchmarks/plain_ppo.py --env CartPole-v1 --steps 100000 --seed 0`.
"""

from __future__ import annotations

import argparse
import itertools
import time
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn


@dataclass(frozen=True)
class Hyper:
    """Hyperparameters; `rollout_length` counts steps of one environment, `minibatch_size` steps of
    any.
    """

    num_envs: int = 8
    rollout_length: int = 128
    epochs: int = 10
    minibatch_size: int = 256
    lr: float = 1e-3
    anneal_lr: bool = True
    gamma: float = 0.99
    lambda_: float = 0.95
    clip: float = 0.2
    # Of half the squared error; low enough not to drown the policy where the layers are shared.
    vf_coef: float = 0.1
    ent_coef: float = 0.0
    max_grad_norm: float = 0.5
    hiddens: tuple[int, ...] = (256, 256)
    share: bool = False


def linear(n_in: int, n_out: int, std: float) -> nn.Linear:
    """A linear layer whose weight rows have L2 norm `std` and whose bias is zero."""
    layer = nn.Linear(n_in, n_out)
    with torch.no_grad():
        layer.weight.copy_(nn.functional.normalize(torch.randn(n_out, n_in), dim=1) * std)
        layer.bias.zero_()
    return layer


def trunk(obs_size: int, hiddens: tuple[int, ...]) -> nn.Sequential:
    """A stack of tanh layers."""
    sizes = itertools.pairwise((obs_size, *hiddens))
    return nn.Sequential(
        *(m for n_in, n_out in sizes for m in (linear(n_in, n_out, 1.0), nn.Tanh()))
    )


class Agent(nn.Module):
    """Policy and value function; with `share` both heads read the same hidden layers."""

    def __init__(
        self, obs_size: int, n_actions: int, hiddens: tuple[int, ...], share: bool
    ) -> None:
        """Builds the layers for observations of `obs_size` numbers."""
        super().__init__()
        width = (obs_size, *hiddens)[-1]
        self.trunk = trunk(obs_size, hiddens)
        self.value_trunk = None if share else trunk(obs_size, hiddens)
        self.logits_head, self.value_head = linear(width, n_actions, 0.01), linear(width, 1, 0.01)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps observations `[B, obs]` to logits `[B, n]` and values `[B]`."""
        features = self.trunk(obs)
        value_features = features if self.value_trunk is None else self.value_trunk(obs)
        return self.logits_head(features), self.value_head(value_features).squeeze(-1)

    @torch.inference_mode()
    def act(self, obs: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Samples actions `[B]`; returns them with their log-probabilities and the values."""
        logits, value = self(obs)
        logps = logits.log_softmax(-1)
        # Clocks that ring after Exp(p) time: the first one to ring is a categorical draw. In logs,
        # Exp(p) = Exp(1) / p.
        action = (logps - torch.empty_like(logps).exponential_().log_()).argmax(-1, keepdim=True)
        return (
            action.squeeze(-1).numpy(),
            logps.gather(-1, action).squeeze(-1).numpy(),
            value.numpy(),
        )


def advantages(
    rewards: np.ndarray, values: np.ndarray, dones: np.ndarray, gamma: float, lambda_: float
) -> np.ndarray:
    """Generalised advantage estimates `[T, N]` from rewards and dones `[T, N]` and values
    `[T + 1, N]`.
    """
    alive = gamma * (1.0 - dones)
    out = rewards + alive * values[1:] - values[:-1]
    for t in reversed(range(len(out) - 1)):
        out[t] += lambda_ * alive[t] * out[t + 1]
    return out


def update(
    agent: Agent, optimizer: torch.optim.Optimizer, batch: list[torch.Tensor], hyper: Hyper
) -> None:
    """Runs the minibatch epochs of one rollout: observations, actions, logps, advantages and value
    targets.
    """
    params = list(agent.parameters())
    for _ in range(hyper.epochs):
        for index in torch.randperm(len(batch[0])).split(hyper.minibatch_size):
            obs, action, old_logp, advantage, target = (column[index] for column in batch)
            advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
            logits, value = agent(obs)
            logps = logits.log_softmax(-1)
            ratio = (logps.gather(-1, action.unsqueeze(-1)).squeeze(-1) - old_logp).exp()
            clipped = ratio.clamp(1.0 - hyper.clip, 1.0 + hyper.clip)
            loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
            loss = loss + hyper.vf_coef * 0.5 * (value - target).square().mean()
            if hyper.ent_coef:
                loss = loss + hyper.ent_coef * (logps.exp() * logps).sum(-1).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(params, hyper.max_grad_norm)
            optimizer.step()


def run(env_id: str, hyper: Hyper, total_steps: int, seed: int) -> dict[str, Any]:
    """Trains for `total_steps`, rounded up to whole rollouts; `seconds` leave out set-up, `returns`
    is per episode.
    """
    envs = SyncVectorEnv(
        [lambda: gym.make(env_id)] * hyper.num_envs,
        copy=False,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    return train(envs, hyper, total_steps, seed)


def train(envs: Any, hyper: Hyper, total_steps: int, seed: int | None) -> dict[str, Any]:
    """Trains in a vector environment, in either mode of autoreset, and closes it; see `run`.

    In mode NEXT_STEP, the step that resets an environment is trained on like any other.
    """
    torch.manual_seed(0 if seed is None else seed)
    t_max, n = hyper.rollout_length, hyper.num_envs
    resets_at_once = envs.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    obs_shape, start = envs.single_observation_space.shape, envs.single_action_space.start
    agent = Agent(obs_shape[0], int(envs.single_action_space.n), hyper.hiddens, hyper.share)
    optimizer = torch.optim.Adam(agent.parameters(), lr=hyper.lr, eps=1e-5, fused=True)

    obs, values = (
        np.zeros((t_max + 1, n, *obs_shape), np.float32),
        np.zeros((t_max + 1, n), np.float32),
    )
    actions = np.zeros((t_max, n), np.int64)
    logps, rewards, dones = (np.zeros((t_max, n), np.float32) for _ in range(3))
    obs_tensor = torch.from_numpy(obs)  # the same memory
    returns, running_return = [], np.zeros(n)

    rollouts = -(-total_steps // (t_max * n))
    begin = time.perf_counter()
    obs[0] = envs.reset()[0] if seed is None else envs.reset(seed=seed)[0]
    for rollout in range(rollouts):
        cut_at, cut_obs = [], []  # (t, env) of the truncated episodes and their last observations
        for t in range(t_max):
            actions[t], logps[t], values[t] = agent.act(obs_tensor[t])
            obs[t + 1], rewards[t], terminated, truncated, info = envs.step(actions[t] + start)
            running_return += rewards[t]
            dones[t] = done = terminated | truncated
            if done.any():
                returns.extend(running_return[done].tolist())
                running_return[done] = 0.0
                for i in np.flatnonzero(truncated & ~terminated):
                    cut_at.append((t, i))
                    cut_obs.append(info["final_obs"][i] if resets_at_once else obs[t + 1][i])
        with torch.inference_mode():
            values[-1] = agent(obs_tensor[-1])[1].numpy()
            # a time limit is no end: the value of what would have followed is added to the reward.
            if cut_at:
                final = torch.from_numpy(np.stack(cut_obs).astype(np.float32))
                rewards[tuple(zip(*cut_at, strict=True))] += hyper.gamma * agent(final)[1].numpy()

        advantage = advantages(rewards, values, dones, hyper.gamma, hyper.lambda_)
        columns = (obs[:-1], actions, logps, advantage, advantage + values[:-1])
        if hyper.anneal_lr:
            optimizer.param_groups[0]["lr"] = hyper.lr * (1.0 - rollout / rollouts)
        update(
            agent,
            optimizer,
            [torch.from_numpy(x.reshape(t_max * n, *x.shape[2:])) for x in columns],
            hyper,
        )
        obs[0] = obs[-1]
    seconds, steps = time.perf_counter() - begin, rollouts * t_max * n
    envs.close()
    return {
        "steps": steps,
        "seconds": seconds,
        "sps": steps / seconds,
        "returns": returns,
        "agent": agent,
    }


@torch.inference_mode()
def evaluate(agent: Agent, env_id: str, episodes: int, seed: int) -> np.ndarray:
    """Returns of fresh episodes under the likeliest actions, each played to its end in an
    environment of its own.
    """
    envs = [gym.make(env_id) for _ in range(episodes)]
    obs = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(envs)]).astype(np.float32)
    returns, running = np.zeros(episodes), np.arange(episodes)
    while len(running):
        actions = (
            agent(torch.from_numpy(obs[running]))[0].argmax(-1).numpy() + envs[0].action_space.start
        )
        alive = np.ones(len(running), bool)
        for k, (i, action) in enumerate(zip(running, actions, strict=True)):
            obs[i], reward, terminated, truncated, _ = envs[i].step(action)
            returns[i] += reward
            alive[k] = not (terminated or truncated)
        running = running[alive]
    for env in envs:
        env.close()
    return returns


def main() -> None:
    """Trains, evaluates over 100 episodes, prints steps per second and the mean return."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--share", action="store_true", help="let the value head read the policy's hidden layers"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    result = run(args.env, Hyper(share=args.share), args.steps, args.seed)
    score = evaluate(result["agent"], args.env, 100, args.seed + 10_000)
    print(f"{result['steps']} steps in {result['seconds']:.1f} s: {result['sps']:.0f} steps/s")
    print(f"mean return over 100 episodes: {score.mean():.1f} (lowest {score.min():.0f})")


if __name__ == "__main__":
    main()
