"""The engines: PPO of Stable-Baselines3 and of Ray RLlib, each with its own net and with the catalog's; and our own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from benchmarks.learning.tasks import TASKS, Task, scaled

#: What is set where a task says nothing else; everything else is the engine's default.
SETTINGS = {"lr": 3e-4, "gamma": 0.98, "gae": 0.95, "length": 64, "minibatch": 128, "epochs": 8, "envs": 8}
#: Engine → the nets it is trained with.
NETS = {"sb3": ("own", "catalog"), "rllib": ("own", "catalog"), "ours": ("catalog",)}
#: Engine → what its catalog's net is compared with: an engine and a net.
BASES = {"sb3": ("sb3", "own"), "rllib": ("rllib", "own"), "ours": ("sb3", "own")}
#: Episodes a trained policy plays; it acts as in training, since that is what PPO optimises.
EPISODES = 50

#: Environment steps, and the mean return of the last 100 episodes then.
Curve = list[tuple[int, float]]
Act = Callable[[Any], Any]


def train(engine: str, task: str, net: str, seed: int) -> tuple[float, Curve]:
    """Train, and return the mean return of episodes played afterwards, and the curve of those in training.

    Args:
        engine: `"sb3"`, `"rllib"` or `"ours"`.
        task: A name of `TASKS`.
        net: `"own"` or `"catalog"`.
        seed: Seeds environments, weights and sampling.
    """
    import torch

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trained = {"sb3": _sb3, "rllib": _rllib, "ours": _ours}[engine]
        act, curve = trained(TASKS[task], TASKS[task].steps_of(engine), net, seed)
        env = TASKS[task].make()
        score = _play(scaled(env) if engine == "rllib" else env, act, 10_000 + seed)
    return score, [(steps, mean) for steps, mean in curve if np.isfinite(mean)]


def _play(env: Any, act: Act, seed: int) -> float:
    found = []
    for episode in range(EPISODES):
        obs, _ = env.reset(seed=seed + 1000 * episode)
        total, over = 0.0, False
        while not over:
            obs, reward, ended, cut, _ = env.step(act(obs))
            total, over = total + float(reward), ended or cut
        found.append(total)
    return float(np.mean(found))


def _model(shape: tuple[int, ...], width: int = 64) -> dict[str, Any]:
    """Return the catalog's model config: layers as wide as those of the engine's own nets; for images one for all."""
    return {"conv_filters": "nature"} if len(shape) == 3 else {"fcnet_hiddens": [width, width]}


def _sb3(task: Task, steps: int, net: str, seed: int) -> tuple[Act, Curve]:
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    from rlcatalog_sb3 import CatalogPolicy

    given = {**SETTINGS, **task.settings}
    envs = make_vec_env(task.make, given["envs"], seed=seed)
    shape = envs.observation_space.shape or ()
    policy: Any = CatalogPolicy if net == "catalog" else "CnnPolicy" if len(shape) == 3 else "MlpPolicy"
    algo = PPO(
        policy, envs, learning_rate=given["lr"], gamma=given["gamma"], gae_lambda=given["gae"],
        n_steps=given["length"], batch_size=given["minibatch"], n_epochs=given["epochs"], seed=seed, device="cpu",
        policy_kwargs={"model_config": _model(shape)} if net == "catalog" else None,
    )  # fmt: skip
    curve: Curve = []

    class Watch(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            if algo.ep_info_buffer:
                curve.append((algo.num_timesteps, float(np.mean([episode["r"] for episode in algo.ep_info_buffer]))))

    algo.learn(steps, callback=Watch())
    return lambda obs: algo.predict(np.asarray(obs), deterministic=False)[0], curve


def _ours(task: Task, steps: int, net: str, seed: int) -> tuple[Act, Curve]:
    from rlcatalog_ppo import PPO

    given = {**SETTINGS, **task.settings}
    env = task.make()
    shape, numbers = env.observation_space.shape, isinstance(env.action_space, spaces.Box)
    # As Stable-Baselines3 has it by default: the value has layers of its own, but for images, and weighs a half;
    # standard deviations do not depend on the observation.
    model = {"vf_share_layers": len(shape) == 3, "free_log_std": numbers, **_model(shape)}
    algo = PPO(task.make, {
        "framework": "torch", "seed": seed, "num_envs": given["envs"], "rollout_length": given["length"],
        "lr": given["lr"], "anneal_lr": False, "gamma": given["gamma"], "lambda_": given["gae"],
        "num_epochs": given["epochs"], "minibatch_size": given["minibatch"], "vf_loss_coeff": 0.5,
        "model": model,
    })  # fmt: skip
    curve: Curve = []
    while algo.steps < steps:
        row = algo.train()
        if row["episode_return_mean"] is not None:
            curve.append((row["timesteps_total"], row["episode_return_mean"]))
    algo.stop()
    return lambda obs: _row(algo.policy.act(obs[None]).action), curve


def _rllib(task: Task, steps: int, net: str, seed: int) -> tuple[Act, Curve]:
    import torch

    from rlcatalog.frameworks import load_first

    load_first("triton", before="tensorflow")  # RLlib imports TensorFlow where it is installed
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune.registry import register_env

    import rlcatalog_rllib

    given = {**SETTINGS, **task.settings}
    register_env("compared", lambda _: scaled(task.make()))
    config: Any = PPOConfig().debugging(seed=seed, log_level="ERROR").reporting(min_time_s_per_iteration=0)  # type: ignore[no-untyped-call]
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=given["envs"])
    config.training(
        lr=given["lr"], gamma=given["gamma"], lambda_=given["gae"], num_epochs=given["epochs"],
        train_batch_size_per_learner=given["envs"] * given["length"], minibatch_size=given["minibatch"],
        vf_clip_param=1e9,  # RLlib's default stops the value from learning returns above some tens, with any net
    )  # fmt: skip
    if net == "catalog":
        model = _model(task.make().observation_space.shape, width=256)
        algo = rlcatalog_rllib.configure(config, "compared", model=model).build_algo()
    else:
        algo = config.environment("compared").build_algo()
    curve: Curve = []
    trained = 0
    while trained < steps:
        result = algo.train()
        trained = int(result["num_env_steps_sampled_lifetime"])
        curve.append((trained, float(result["env_runners"].get("episode_return_mean", np.nan))))
    if net == "catalog":
        policy = rlcatalog_rllib.to_policy(algo)
        algo.stop()
        return lambda obs: _row(policy.act(obs[None]).action), curve
    module, space = algo.get_module(), task.make().action_space
    algo.stop()

    def act(obs: Any) -> Any:
        from ray.rllib.utils.spaces.space_utils import unsquash_action

        with torch.inference_mode():
            out = module.forward_exploration({"obs": torch.as_tensor(np.asarray(obs, np.float32))[None]}, t=0)
            dist = module.get_exploration_action_dist_cls().from_logits(out["action_dist_inputs"])
            drawn = dist.sample()[0].numpy()
        return int(drawn) if drawn.ndim == 0 else unsquash_action(drawn, space)  # type: ignore[no-untyped-call]

    return act, curve


def _row(actions: Any) -> Any:
    return actions[0]
