"""Stable-Baselines3: its policy as it collects rollouts with it, its distributions and extractor,
and PPO.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.distributions import CategoricalDistribution, DiagGaussianDistribution
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import preprocess_obs
from stable_baselines3.common.torch_layers import CombinedExtractor
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import VecEnv
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
    settings = {
        "n_steps": work.ROWS // num_envs,
        "n_epochs": work.EPOCHS,
        "batch_size": work.MINIBATCH,
    }
    return make_ppo(make_vec_env(work.ENV, num_envs), settings)


def make_ppo(env: VecEnv, settings: Mapping[str, int]) -> PPO:
    return PPO(
        "MlpPolicy",
        env,
        **settings,
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


class PoolVecEnv(VecEnv):
    """EnvPool for Stable-Baselines3, which wants an episode to begin in the step that ends the one
    before: it resets what has ended.
    """

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        super().__init__(pool.num_envs, pool.observation_space, pool.action_space)

    def reset(self) -> work.Array:
        obs: work.Array = self.pool.reset()[0]
        return obs

    def step_async(self, actions: work.Array) -> None:
        self.pool.send(actions)

    def step_wait(self) -> tuple[work.Array, work.Array, work.Array, list[dict[str, Any]]]:
        obs, rewards, terminated, truncated, _ = self.pool.recv()
        dones = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        rows = np.flatnonzero(dones)
        for row in rows:
            infos[row]["terminal_observation"] = obs[row].copy()
            infos[row]["TimeLimit.truncated"] = bool(truncated[row])
        if len(rows):
            obs[rows] = self.pool.reset(rows.astype(np.int32))[0]
        return obs, rewards, dones, infos

    def close(self) -> None:
        self.pool.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


def envpool(num_envs: int) -> Callable[[int], float]:
    settings = {
        "n_steps": work.POOL_LENGTH,
        "n_epochs": work.POOL_EPOCHS,
        "batch_size": num_envs * work.POOL_LENGTH // work.POOL_MINIBATCHES,
    }
    algo = make_ppo(PoolVecEnv(work.make_pool(num_envs)), settings)

    def run(rollouts: int) -> int:
        steps = work.pool_steps(num_envs, rollouts)
        algo.learn(steps, reset_num_timesteps=False)
        return steps

    return partial(work.per_step, run)
