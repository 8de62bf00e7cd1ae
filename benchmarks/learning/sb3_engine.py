"""Stable-Baselines3 and sb3-contrib, with their own nets and with the catalog's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from benchmarks.learning.engine import (
    CLIP,
    Trained,
    model_config,
    note,
    set_log_std,
    timed,
)
from benchmarks.learning.task import OFF_POLICY, Task

#: A setting of a task → the keyword argument.
_NAMES = {
    "lr": "learning_rate", "gamma": "gamma", "gae": "gae_lambda", "length": "n_steps",
    "minibatch": "batch_size", "epochs": "n_epochs", "clip": "clip_range", "entropy": "ent_coef",
    "value": "vf_coef", "grad": "max_grad_norm",
}  # fmt: skip


def train(task: Task, steps: int, net: str, seed: int) -> Trained:
    """Train with an algorithm of Stable-Baselines3 or sb3-contrib."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    given = task.given
    envs: Any = make_vec_env(task.maker("sb3", net), given.get("envs", 1), seed=seed)
    scaled = given.get("scaled")
    if scaled:
        envs = VecNormalize(
            envs,
            norm_obs="observations" in scaled,
            norm_reward="rewards" in scaled,
            gamma=given["gamma"],
            clip_obs=CLIP,
            clip_reward=CLIP,
        )
    make = _off_policy if task.algorithm in OFF_POLICY else _on_policy
    algo = make(task, envs, net, seed)
    trained = Trained(
        _acting(task, algo, envs if scaled else None),
        parameters=_count(task.algorithm, algo.policy),
    )
    with timed(trained):
        algo.learn(steps, callback=_noting(trained, steps))
    return trained


def _on_policy(task: Task, envs: Any, net: str, seed: int) -> Any:
    import sb3_contrib
    import stable_baselines3

    import rlcatalog_sb3

    given, space = task.given, envs.observation_space
    module: Any
    ours: Any
    if task.algorithm == "RecurrentPPO":
        module = rlcatalog_sb3 if net == "catalog" else sb3_contrib
        own, ours = "MlpLstmPolicy", rlcatalog_sb3.CatalogRecurrentPolicy
    elif task.algorithm == "MaskablePPO":
        module, own, ours = sb3_contrib, "MlpPolicy", rlcatalog_sb3.CatalogMaskablePolicy
    else:
        module, ours = stable_baselines3, rlcatalog_sb3.CatalogPolicy
        own = "MultiInputPolicy" if isinstance(space, spaces.Dict) else "MlpPolicy"
        own = "CnnPolicy" if len(space.shape or ()) == 3 and "own" not in given else own
    named = {_NAMES[key]: value for key, value in given.items() if key in _NAMES}
    named |= {_NAMES[key]: _falling(given[key]) for key in given.get("decay", ())}
    kwargs = _own(given.get(net))
    if net == "catalog":
        kwargs = {"model_config": model_config(task, "sb3", net, space)}
    algo = getattr(module, task.algorithm)(
        ours if net == "catalog" else own,
        envs,
        seed=seed,
        device="cpu",
        policy_kwargs=kwargs,
        **named,
    )
    if net == "catalog" and "log_std" in given:
        set_log_std(algo.policy.model, given["log_std"])
    return algo


def _own(given: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the keyword arguments of the engine's own policy, as a task gives them."""
    import torch

    kwargs = dict(given or {})
    if "activation_fn" in kwargs:
        kwargs["activation_fn"] = getattr(torch.nn, kwargs["activation_fn"])
    if "features_extractor_class" in kwargs:
        kwargs["features_extractor_class"] = _minatar_net()
    return kwargs or None


def _minatar_net() -> type:
    """Return the net of the MinAtar paper as a features extractor, written by hand."""
    import torch
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    class MinAtarNet(BaseFeaturesExtractor):
        def __init__(self, observation_space: Any) -> None:
            super().__init__(observation_space, 128)
            height, width, channels = observation_space.shape
            self.conv = torch.nn.Conv2d(channels, 16, 3)
            self.dense = torch.nn.Linear(16 * (height - 2) * (width - 2), 128)

        def forward(self, observations: Any) -> Any:
            features = torch.relu(self.conv(observations.movedim(-1, 1)))
            return torch.relu(self.dense(features.flatten(1)))

    return MinAtarNet


def _falling(value: float) -> Callable[[float], float]:
    """Return a schedule that falls linearly to 0; a rollout may end past the last step."""
    return lambda left: value * max(0.0, left)


def _off_policy(task: Task, envs: Any, net: str, seed: int) -> Any:
    import stable_baselines3
    from stable_baselines3.common.noise import NormalActionNoise

    from rlcatalog_sb3 import CatalogExtractor

    given = {
        key: value
        for key, value in task.given.items()
        if key not in ("own", "extractor", "layers", "noise")
    }
    if "noise" in task.given:
        width = envs.action_space.shape
        given["action_noise"] = NormalActionNoise(
            np.zeros(width), np.full(width, task.given["noise"])
        )
    kwargs = _own(task.given.get("own"))
    if net == "catalog":
        kwargs = {
            "features_extractor_class": CatalogExtractor,
            "net_arch": task.given["layers"],
            "features_extractor_kwargs": {"model_config": task.given["extractor"]},
        }
    algorithm = getattr(stable_baselines3, task.algorithm)
    return algorithm("MlpPolicy", envs, seed=seed, device="cpu", policy_kwargs=kwargs, **given)


def _acting(task: Task, algo: Any, normalized: Any) -> Any:
    """Return how a trained algorithm acts; observations are normalised with the statistics of
    training.
    """

    def act(obs: Any, state: Any, env: Any, explore: bool) -> tuple[Any, Any]:
        if normalized is not None:
            obs = normalized.normalize_obs(obs)
        options: dict[str, Any] = {}
        if task.algorithm == "MaskablePPO":
            options["action_masks"] = np.array(env.get_wrapper_attr("action_masks")())
        if task.algorithm == "RecurrentPPO":
            options |= {"state": state, "episode_start": np.array([state is None])}
        seen = obs if isinstance(obs, dict) else np.asarray(obs)
        action, after = algo.predict(seen, deterministic=not explore, **options)
        return action, after

    return act


def _count(algorithm: str, policy: Any) -> int:
    """Return the number of trained weights, without target networks."""
    parts = {"DQN": ("q_net",), "SAC": ("actor", "critic"), "TD3": ("actor", "critic")}.get(
        algorithm
    )
    modules = [policy] if parts is None else [getattr(policy, name) for name in parts]
    return sum(weight.numel() for module in modules for weight in module.parameters())


def _noting(trained: Trained, total: int) -> Any:
    from stable_baselines3.common.callbacks import BaseCallback

    class Watch(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            episodes = self.model.ep_info_buffer
            mean = float(np.mean([episode["r"] for episode in episodes])) if episodes else None
            note(trained.curve, self.num_timesteps, total, mean)

    return Watch()
