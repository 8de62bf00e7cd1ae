"""PPO: steps per second against a plain single-file PPO."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from benchmarks import plain_ppo
from benchmarks.harness import Figure, wanted

ENV = "CartPole-v1"


def ours(num_envs: int, hyper: plain_ppo.Hyper, steps: int, seed: int) -> float:
    """Return the steps per second of rlcatalog-ppo."""
    from rlcatalog_ppo import PPO

    config = {
        "num_envs": num_envs,
        "rollout_length": hyper.rollout_length,
        "num_epochs": hyper.epochs,
        "minibatch_size": hyper.minibatch_size,
        "lr": hyper.lr,
        "anneal_lr": hyper.anneal_lr,
        "total_steps": steps,
        "gamma": hyper.gamma,
        "lambda_": hyper.lambda_,
        "clip_param": hyper.clip,
        "vf_loss_coeff": hyper.vf_coef,
        "entropy_coeff": hyper.ent_coef,
        "grad_clip": hyper.max_grad_norm,
        "seed": seed,
        # As a run of the usual length would have it; recording is counted.
        "frozen": "always",
        "model": {"fcnet_hiddens": list(hyper.hiddens), "vf_share_layers": hyper.share},
    }
    algo = PPO(ENV, config)
    start, done = time.perf_counter(), 0
    while done < steps:
        done = algo.train()["timesteps_total"]
    seconds = time.perf_counter() - start
    algo.stop()
    return done / seconds


def plain(num_envs: int, hyper: plain_ppo.Hyper, steps: int, seed: int) -> float:
    """Return the steps per second of the plain PPO."""
    return float(plain_ppo.run(ENV, replace(hyper, num_envs=num_envs), steps, seed)["sps"])


def run(rounds: int = 5) -> list[Figure]:
    """Print the ratios of steps per second; larger is faster."""
    torch.set_num_threads(1)
    hyper = plain_ppo.Hyper(share=False)
    print("\n| PPO on CartPole, environments | ours | plain | ours / plain |")
    print("|---|---:|---:|---:|")
    found = []
    for num_envs in (1, 8):
        name = f"PPO on CartPole, environments {num_envs}, to plain"
        if not wanted(name):
            continue
        per_env = replace(hyper, rollout_length=1024 // num_envs)
        sides: list[Callable[..., float]] = [ours, plain]
        speeds: list[list[float]] = [[], []]
        for turn in range(rounds):
            for i in (0, 1) if turn % 2 else (1, 0):
                speeds[i].append(sides[i](num_envs, per_env, 12_288, turn))
        to_plain = [a / b for a, b in zip(speeds[0], speeds[1], strict=True)]
        figures = " | ".join(f"{statistics.median(values):.0f}/s" for values in speeds)
        mark = "met" if statistics.median(to_plain) >= 0.95 else "**missed**"
        print(f"| {num_envs} | {figures} | {_spread(to_plain)} (budget 0.95: {mark}) |", flush=True)
        found.append(Figure(name, to_plain, "higher"))
    return found


def _spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
