"""Stable-Baselines3: its policy as it collects rollouts with it, its distributions and extractor,
and PPO.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.distributions import CategoricalDistribution, DiagGaussianDistribution
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import preprocess_obs
from stable_baselines3.common.torch_layers import CombinedExtractor
from stable_baselines3.common.utils import obs_as_tensor
from torch import Tensor

from benchmarks.peers import work

PACKAGES = ("stable-baselines3",)
NETS: dict[str, Any] = {
    "net_arch": {"pi": list(work.HIDDENS), "vf": list(work.HIDDENS)},
    "activation_fn": torch.nn.Tanh,
}


def policy_of() -> ActorCriticPolicy:
    env = gym.make(work.ENV)
    return ActorCriticPolicy(env.observation_space, env.action_space, lambda _: work.LR, **NETS)


def act(obs: work.Array) -> Callable[[], Any]:
    policy = policy_of()
    policy.set_training_mode(False)

    def run() -> tuple[Any, ...]:
        with torch.no_grad():
            action, value, logp = policy(obs_as_tensor(obs, policy.device))
        return action.numpy(), logp.numpy(), value.numpy()

    return run


def parameters() -> int:
    return sum(weight.numel() for weight in policy_of().parameters())


def categorical(logits: Tensor) -> Callable[[], Any]:
    dist = CategoricalDistribution(work.SIZE)
    return work.drawn(lambda: dist.proba_distribution(logits))


def gaussian(mean: Tensor, log_std: Tensor) -> Callable[[], Any]:
    dist = DiagGaussianDistribution(work.SIZE)
    return work.drawn(lambda: dist.proba_distribution(mean, log_std))


def preprocess(observed: dict[str, work.Array]) -> Callable[[], Tensor]:
    extractor, device = CombinedExtractor(work.OBSERVED), torch.device("cpu")

    @torch.no_grad()
    def run() -> Tensor:
        found: Tensor = extractor(preprocess_obs(obs_as_tensor(observed, device), work.OBSERVED))
        return found

    return run


def algo_of(num_envs: int) -> PPO:
    return PPO(
        "MlpPolicy",
        make_vec_env(work.ENV, num_envs),
        n_steps=work.ROWS // num_envs,
        n_epochs=work.EPOCHS,
        batch_size=work.MINIBATCH,
        learning_rate=work.LR,
        gamma=work.GAMMA,
        gae_lambda=work.LAMBDA,
        clip_range=work.CLIP,
        vf_coef=work.VALUE_WEIGHT,
        max_grad_norm=work.GRAD_CLIP,
        device="cpu",
        policy_kwargs=NETS,
    )


def train(columns: Mapping[str, work.Array]) -> Callable[[], Any]:
    algo = algo_of(1)
    algo.set_logger(configure(format_strings=[]))
    buffer = algo.rollout_buffer
    buffer.reset()
    names = {
        "observations": "obs",
        "actions": "action",
        "log_probs": "logp",
        "values": "value",
        "advantages": "advantage",
        "returns": "target",
    }
    for name, column in names.items():
        array = getattr(buffer, name)
        array[:] = columns[column].reshape(array.shape)
    buffer.full = True
    return algo.train


def ppo(num_envs: int) -> Callable[[int], float]:
    algo = algo_of(num_envs)

    def run(rollouts: int) -> None:
        before = algo.num_timesteps
        algo.learn(rollouts * work.ROWS, reset_num_timesteps=False)
        assert algo.num_timesteps - before == rollouts * work.ROWS

    return partial(work.per_step, run)
