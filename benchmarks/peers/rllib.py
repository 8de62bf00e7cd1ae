"""RLlib: its default PPO module and distributions, its connector, and PPO in one process."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.env_to_module import FlattenObservations
from ray.rllib.core.distribution.torch.torch_distribution import TorchCategorical, TorchDiagGaussian
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from torch import Tensor

from benchmarks.peers import work

PACKAGES = ("ray",)
warnings.simplefilter("ignore")


def config_of(num_envs: int) -> Any:
    config = (
        PPOConfig()
        .environment(work.ENV)
        .debugging(log_level="ERROR")
        .reporting(min_time_s_per_iteration=0)
    )
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=num_envs)
    config.rl_module(
        model_config={
            "fcnet_hiddens": list(work.HIDDENS),
            "head_fcnet_hiddens": [],
            "fcnet_activation": "tanh",
            "vf_share_layers": False,
        }
    )
    return config.training(
        train_batch_size_per_learner=work.ROWS,
        minibatch_size=work.MINIBATCH,
        num_epochs=work.EPOCHS,
        lr=work.LR,
        gamma=work.GAMMA,
        lambda_=work.LAMBDA,
        clip_param=work.CLIP,
        vf_loss_coeff=work.VALUE_WEIGHT,
        vf_clip_param=float("inf"),
        grad_clip=work.GRAD_CLIP,
        use_kl_loss=False,
    )


def module_of() -> Any:
    env = gym.make(work.ENV)
    return (
        config_of(1)
        .get_rl_module_spec(spaces={"default_policy": (env.observation_space, env.action_space)})
        .build()
    )


def act(obs: work.Array) -> Callable[[], Any]:
    module = module_of()
    dist_class = module.get_exploration_action_dist_cls()

    def run() -> tuple[Any, ...]:
        with torch.no_grad():
            batch = {"obs": torch.from_numpy(obs)}
            dist = dist_class.from_logits(module.forward_exploration(batch)["action_dist_inputs"])
            action = dist.sample()
            logp, value = dist.logp(action), module.compute_values(batch)
        return action.numpy(), logp.numpy(), value.numpy()

    return run


def parameters() -> int:
    return sum(weight.numel() for weight in module_of().parameters())


@torch.no_grad()
def drawn(dist: Any) -> tuple[Tensor, Tensor, Tensor]:
    sample = dist.sample()
    return sample, dist.logp(sample), dist.entropy()


def categorical(logits: Tensor) -> Callable[[], Any]:
    return lambda: drawn(TorchCategorical.from_logits(logits))


def gaussian(mean: Tensor, log_std: Tensor) -> Callable[[], Any]:
    inputs = torch.cat((mean, log_std), 1)
    return lambda: drawn(TorchDiagGaussian.from_logits(inputs))


def preprocess(observed: dict[str, work.Array]) -> Callable[[], list[Any]]:
    """The connector, which reads the last observation of each environment's episode."""
    connector = FlattenObservations(work.OBSERVED, gym.spaces.Discrete(2))
    rows = [
        {name: column[i] for name, column in observed.items()} for i in range(work.OBSERVATIONS)
    ]
    episodes = [
        SingleAgentEpisode(
            observations=[row], observation_space=work.OBSERVED, len_lookback_buffer=0
        )
        for row in rows
    ]

    def run() -> list[Any]:
        for episode, row in zip(episodes, rows, strict=True):
            episode.observations.data[-1] = row  # the connector replaces it
        connector(rl_module=None, batch={}, episodes=episodes)
        return [episode.observations.data[-1] for episode in episodes]

    return run


def train(columns: Mapping[str, work.Array]) -> Callable[[], Any]:
    env = gym.make(work.ENV)
    learner = config_of(1).build_learner(
        spaces={"default_policy": (env.observation_space, env.action_space)}
    )
    learner.build()
    names = {
        "obs": "obs",
        "actions": "action",
        "action_logp": "logp",
        "vf_preds": "value",
        "advantages": "advantage",
        "value_targets": "target",
    }
    rows = {name: torch.from_numpy(columns[column]) for name, column in names.items()}
    rows["action_dist_inputs"] = torch.zeros(work.ROWS, 2)
    batch = MultiAgentBatch({"default_policy": SampleBatch(rows)}, work.ROWS)
    return lambda: learner.update(
        batch=batch,
        minibatch_size=work.MINIBATCH,
        num_epochs=work.EPOCHS,
        shuffle_batch_per_epoch=True,
    )


def ppo(num_envs: int) -> Callable[[int], float]:
    if not ray.is_initialized():
        ray.init(
            num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
        )
    algo = config_of(num_envs).build_algo()

    def run(rollouts: int) -> int:
        """A rollout may hold a few steps more than it was asked for."""
        before = algo.metrics.peek(("env_runners", "num_env_steps_sampled_lifetime"), default=0)
        for _ in range(rollouts):
            result = algo.train()
        return int(result["num_env_steps_sampled_lifetime"] - before)

    return partial(work.per_step, run)
