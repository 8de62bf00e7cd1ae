"""RLlib's PPO with our module against RLlib's default module: steps per second, sampling and
learning together.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

from benchmarks.harness import Figure, wanted

ENV, HIDDENS = "CartPole-v1", [256, 256]
#: Least ratio of our steps per second to those with RLlib's default module.
BUDGET = 0.97


def _base(seed: int, env_runners: int) -> Any:
    from ray.rllib.algorithms.ppo import PPOConfig

    config = (
        PPOConfig().debugging(seed=seed, log_level="ERROR").reporting(min_time_s_per_iteration=0)
    )
    config.env_runners(num_env_runners=env_runners, num_envs_per_env_runner=8)
    return config.training(
        train_batch_size_per_learner=2048, minibatch_size=256, num_epochs=10, lr=3e-4
    )


def ours(seed: int, env_runners: int) -> Any:
    """Return RLlib's PPO with the catalog's parts; nothing shared between policy and value, as in
    RLlib's default.
    """
    import rlcatalog_rllib

    model = {"fcnet_hiddens": HIDDENS, "vf_share_layers": False}
    return rlcatalog_rllib.configure(_base(seed, env_runners), ENV, model=model).build_algo()


def default(seed: int, env_runners: int) -> Any:
    """Return RLlib's PPO with its own module of the same sizes."""
    config = _base(seed, env_runners).environment(ENV)
    return config.rl_module(
        model_config={"fcnet_hiddens": HIDDENS, "head_fcnet_hiddens": []}
    ).build_algo()


def speed(algo: Any, iterations: int) -> float:
    """Return the steps per second of some training iterations."""
    before = algo.metrics.peek(("env_runners", "num_env_steps_sampled_lifetime"))
    start = time.perf_counter()
    for _ in range(iterations):
        result = algo.train()
    return float(
        (result["num_env_steps_sampled_lifetime"] - before) / (time.perf_counter() - start)
    )


def run(rounds: int = 7, iterations: int = 2) -> list[Figure]:
    """Print the ratios of steps per second, round by round in turns; larger is faster."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import ray
    import torch

    torch.set_num_threads(1)
    # Ray's own runners end with SIGSEGV where TensorFlow is imported before triton: they are given
    # our order as well.
    order = {"worker_process_setup_hook": "rlcatalog_rllib.prepare_worker"}
    ray.init(
        num_cpus=6,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env=order,
    )
    print(
        "\n| RLlib PPO on CartPole, environment runners | ours | RLlib's module | ours / RLlib's |"
    )
    print("|---|---:|---:|---:|")
    found = []
    for env_runners in (0, 2):
        name = f"RLlib PPO on CartPole, environment runners {env_runners}"
        if not wanted(name):
            continue
        algos = [ours(0, env_runners), default(0, env_runners)]
        for algo in algos:
            algo.train()
        speeds: list[list[float]] = [[], []]
        for turn in range(rounds):
            for i in (0, 1) if turn % 2 else (1, 0):
                speeds[i].append(speed(algos[i], iterations))
        for algo in algos:
            algo.stop()
        ratios = [a / b for a, b in zip(*speeds, strict=True)]
        figures = " | ".join(f"{statistics.median(values):.0f}/s" for values in speeds)
        middle = statistics.median(ratios)
        mark = "met" if middle >= BUDGET else "**missed**"
        spread = f"{middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {env_runners} | {figures} | {spread} (budget {BUDGET}: {mark}) |", flush=True)
        found.append(Figure(name, ratios, "higher"))
    ray.shutdown()
    return found


if __name__ == "__main__":
    run()
