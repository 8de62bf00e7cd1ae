"""The engines: PPO of Stable-Baselines3 and of Ray RLlib, each with its own net and with the catalog's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.learning.tasks import TASKS, Task

#: What is set where a task says nothing else; everything else is the engine's default.
SETTINGS = {"lr": 3e-4, "gamma": 0.98, "gae": 0.95, "length": 64, "minibatch": 128, "epochs": 8, "envs": 8}
NETS = ("own", "catalog")
#: Episodes a trained policy plays; it acts as in training, since that is what PPO optimises.
EPISODES = 50


def train(engine: str, task: str, net: str, seed: int) -> float:
    """Train, and return the mean return of episodes played afterwards.

    Args:
        engine: `"sb3"` or `"rllib"`.
        task: A name of `TASKS`.
        net: `"own"` or `"catalog"`.
        seed: Seeds environments, weights and sampling.
    """
    import torch

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        act = {"sb3": _sb3, "rllib": _rllib}[engine](TASKS[task], TASKS[task].steps[engine], net, seed)
        return _play(TASKS[task], act, 10_000 + seed)


def _play(task: Task, act: Callable[[Any], Any], seed: int) -> float:
    env, found = task.make(), []
    for episode in range(EPISODES):
        obs, _ = env.reset(seed=seed + 1000 * episode)
        total, over = 0.0, False
        while not over:
            obs, reward, ended, cut, _ = env.step(act(obs))
            total, over = total + float(reward), ended or cut
        found.append(total)
    return float(np.mean(found))


def _sb3(task: Task, steps: int, net: str, seed: int) -> Callable[[Any], Any]:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    from rlcatalog_sb3 import CatalogPolicy

    given = {**SETTINGS, **task.settings}
    envs = make_vec_env(task.make, given["envs"], seed=seed)
    image = len(envs.observation_space.shape or ()) == 3
    policy: Any = CatalogPolicy if net == "catalog" else "CnnPolicy" if image else "MlpPolicy"
    # Layers as wide as those of Stable-Baselines3's own nets; all else is the catalog's default.
    model = {"conv_filters": "nature"} if image else {"fcnet_hiddens": [64, 64]}
    algo = PPO(
        policy, envs, learning_rate=given["lr"], gamma=given["gamma"], gae_lambda=given["gae"],
        n_steps=given["length"], batch_size=given["minibatch"], n_epochs=given["epochs"], seed=seed, device="cpu",
        policy_kwargs={"model_config": model} if net == "catalog" else None,
    )  # fmt: skip
    algo.learn(steps)
    return lambda obs: algo.predict(np.asarray(obs), deterministic=False)[0]


def _rllib(task: Task, steps: int, net: str, seed: int) -> Callable[[Any], Any]:
    import torch

    from rlcatalog.frameworks import before_tensorflow

    before_tensorflow()  # RLlib imports TensorFlow where it is installed
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune.registry import register_env

    import rlcatalog_rllib

    given = {**SETTINGS, **task.settings}
    register_env("compared", lambda _: task.make())
    config: Any = PPOConfig().debugging(seed=seed, log_level="ERROR").reporting(min_time_s_per_iteration=0)  # type: ignore[no-untyped-call]
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=given["envs"])
    config.training(
        lr=given["lr"], gamma=given["gamma"], lambda_=given["gae"], num_epochs=given["epochs"],
        train_batch_size_per_learner=given["envs"] * given["length"], minibatch_size=given["minibatch"],
        vf_clip_param=1e9,  # RLlib's default stops the value from learning returns above some tens, with any net
    )  # fmt: skip
    if net == "catalog":
        algo = rlcatalog_rllib.configure(config, "compared").build_algo()
    else:
        algo = config.environment("compared").build_algo()
    trained = 0
    while trained < steps:
        trained = algo.train()["num_env_steps_sampled_lifetime"]
    if net == "catalog":
        policy = rlcatalog_rllib.to_policy(algo)
        algo.stop()
        return lambda obs: _row(policy.act(obs[None]).action)
    module, space = algo.get_module(), task.make().action_space
    algo.stop()

    def act(obs: Any) -> Any:
        from ray.rllib.utils.spaces.space_utils import unsquash_action

        with torch.inference_mode():
            out = module.forward_exploration({"obs": torch.as_tensor(np.asarray(obs, np.float32))[None]}, t=0)
            dist = module.get_exploration_action_dist_cls().from_logits(out["action_dist_inputs"])
            drawn = dist.sample()[0].numpy()
        return int(drawn) if drawn.ndim == 0 else unsquash_action(drawn, space)  # type: ignore[no-untyped-call]

    return act


def _row(actions: Any) -> Any:
    return actions[0]
