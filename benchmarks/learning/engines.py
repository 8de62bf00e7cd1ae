"""The engines: Stable-Baselines3 and Ray RLlib, each with its own net and with the catalog's; and
our own PPO.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from benchmarks.learning import sb3_engine
from benchmarks.learning.engine import (
    CLIP,
    Trained,
    model_config,
    note,
    play,
    sees_images,
    set_log_std,
    timed,
)
from benchmarks.learning.environments import scaled
from benchmarks.learning.task import Task
from benchmarks.learning.tasks import TASKS
from rlcatalog.actions.codec import first_row


def train(engine: str, name: str, net: str, seed: int, keep: Path | None = None) -> dict[str, Any]:
    """Train, let the policy play, and return what was measured.

    Args:
        engine: `"sb3"`, `"rllib"` or `"ours"`.
        name: A name of `TASKS`.
        net: `"own"`, `"catalog"`, or another net of the task.
        seed: Seeds environments, weights and sampling.
        keep: Folder for the trained policy; only rlcatalog-ppo's is saved.

    Returns:
        `return` of episodes with sampled actions, as in training, and `greedy_return` with the most
        likely ones; algorithms with a replay buffer, which explore by noise, have the second as
        both. `curve`, `parameters`, and `train_seconds` of CPU time.
    """
    import torch

    torch.set_num_threads(1)
    task = TASKS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = {"sb3": sb3_engine.train, "rllib": _rllib, "ours": _ours}[engine]
        trained = run(task, task.steps_of(engine), net, seed)
        if keep is not None and trained.policy is not None:
            trained.policy.save(keep)
        env = task.maker(engine, net)()
        env = scaled(env) if engine == "rllib" else env
        sampled = None if task.explores else play(env, trained.act, 10_000 + seed, explore=True)
        greedy = play(env, trained.act, 10_000 + seed, explore=False)
    return {
        "return": greedy if sampled is None else sampled,
        "greedy_return": greedy,
        "curve": trained.curve,
        "parameters": trained.parameters,
        "train_seconds": trained.seconds,
    }


def _ours(task: Task, steps: int, net: str, seed: int) -> Trained:
    from rlcatalog_ppo import PPO

    make = task.maker("ours", net)
    env = make()
    algo = PPO(
        make, {**_ours_config(task, steps), "seed": seed, "model": _ours_model(task, net, env)}
    )
    if "log_std" in task.given:
        set_log_std(algo.policy.model, task.given["log_std"])

    def act(obs: Any, state: Any, env: Any, explore: bool) -> tuple[Any, Any]:
        step = algo.policy.act(batch_of_one(obs), state, explore=explore)
        return first_row(step.action), step.state

    weights = sum(array.size for array in algo.policy.model.get_weights().values())
    trained = Trained(act, parameters=weights, policy=algo.policy)
    with timed(trained):
        while algo.steps < steps:
            row = algo.train()
            note(trained.curve, row["timesteps_total"], steps, row["episode_return_mean"])
    algo.stop()
    return trained


def _ours_model(task: Task, net: str, env: Any) -> dict[str, Any]:
    """Return the model config, with the defaults of Stable-Baselines3.

    The value has layers of its own, except for images, and standard deviations do not depend on the
    observation.
    """
    space = env.observation_space
    model = {
        "vf_share_layers": sees_images(space),
        "free_log_std": isinstance(env.action_space, spaces.Box),
        **model_config(task, "ours", net, space),
    }
    # sb3-contrib cuts a rollout's sequences only where episodes end.
    if task.algorithm == "RecurrentPPO":
        model.setdefault("max_seq_len", task.given["length"])
    if "observations" in task.given.get("scaled", ()):
        model |= {"observation_filter": "MeanStdFilter", "filter_clip": CLIP}
    return model


def _ours_config(task: Task, steps: int) -> dict[str, Any]:
    """Return the config of rlcatalog-ppo."""
    given = task.given
    config: dict[str, Any] = {
        "framework": "torch",
        "num_envs": given["envs"],
        "rollout_length": given["length"],
        "lr": given["lr"],
        "anneal_lr": False,
        "gamma": given["gamma"],
        "lambda_": given["gae"],
        "num_epochs": given["epochs"],
        "minibatch_size": given["minibatch"],
        "vf_loss_coeff": 0.5,
    }
    names = {"clip": "clip_param", "entropy": "entropy_coeff", "grad": "grad_clip"}
    config |= {name: given[key] for key, name in names.items() if key in given}
    if "value" in given:  # this loss is half the mean squared error
        config["vf_loss_coeff"] = 2 * given["value"]
    size = given["envs"] * given["length"]
    # Stable-Baselines3 reads its schedules after a rollout, and we before it.
    for key in given.get("decay", ()):
        config[f"{key}_schedule"] = [
            [0, given[key] * (1 - size / steps)],
            [max(1, steps - size), 0.0],
        ]
    if "rewards" in given.get("scaled", ()):
        config |= {"reward_scale": True, "reward_clip": CLIP}
    return config


def _rllib(task: Task, steps: int, net: str, seed: int) -> Trained:
    import torch

    from rlcatalog.frameworks import load_first

    load_first("triton", before="tensorflow")  # RLlib imports TensorFlow where it is installed
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune.registry import register_env

    import rlcatalog_rllib

    given, make = task.given, task.maker("rllib", net)
    register_env("compared", lambda _: scaled(make()))
    config: Any = (
        PPOConfig().debugging(seed=seed, log_level="ERROR").reporting(min_time_s_per_iteration=0)
    )  # type: ignore[no-untyped-call]
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=given["envs"])
    names = {
        "clip": "clip_param",
        "entropy": "entropy_coeff",
        "value": "vf_loss_coeff",
        "grad": "grad_clip",
    }
    config.training(
        lr=given["lr"],
        gamma=given["gamma"],
        lambda_=given["gae"],
        num_epochs=given["epochs"],
        train_batch_size_per_learner=given["envs"] * given["length"],
        minibatch_size=given["minibatch"],
        # RLlib's default stops the value from learning returns above some tens, with any net.
        vf_clip_param=1e9,
        **{name: given[key] for key, name in names.items() if key in given},
    )
    space = make().observation_space
    if net == "catalog":
        model = model_config(task, "rllib", net, space)
        algo = rlcatalog_rllib.configure(config, "compared", model=model).build_algo()
    else:
        if widths := given.get("own", {}).get("net_arch"):
            own = {"fcnet_hiddens": widths, "fcnet_activation": "tanh", "vf_share_layers": False}
            config.rl_module(model_config=own)
        algo = config.environment("compared").build_algo()
    module, actions = algo.get_module(), make().action_space
    # Weights are not counted: the module that acts has no value.
    trained = Trained(lambda *_: (None, None))
    done = 0
    with timed(trained):
        while done < steps:
            result = algo.train()
            done = int(result["num_env_steps_sampled_lifetime"])
            note(
                trained.curve,
                done,
                steps,
                float(result["env_runners"].get("episode_return_mean", np.nan)),
            )
    policy = rlcatalog_rllib.to_policy(algo) if net == "catalog" else None
    algo.stop()

    def act(obs: Any, state: Any, env: Any, explore: bool) -> tuple[Any, Any]:
        if policy is not None:
            return first_row(policy.act(batch_of_one(obs), explore=explore).action), None
        from ray.rllib.utils.spaces.space_utils import unsquash_action

        with torch.inference_mode():
            out = module.forward_exploration(
                {"obs": torch.as_tensor(np.asarray(obs, np.float32))[None]}, t=0
            )
            dist = module.get_exploration_action_dist_cls().from_logits(out["action_dist_inputs"])
            drawn = (dist if explore else dist.to_deterministic()).sample()[0].numpy()
        return int(drawn) if drawn.ndim == 0 else unsquash_action(drawn, actions), None  # type: ignore[no-untyped-call]

    trained.act = act
    return trained


def batch_of_one(obs: Any) -> Any:
    """Return an observation with an axis in front of each leaf."""
    if isinstance(obs, dict):
        return {key: batch_of_one(part) for key, part in obs.items()}
    return np.asarray(obs)[None]
