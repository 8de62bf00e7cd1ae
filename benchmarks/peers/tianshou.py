"""tianshou: its policy, PyTorch's distributions, and its PPO with its trainer; Dict observations
are left to nets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import torch
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, Normal

from benchmarks.peers import work

PACKAGES = ("tianshou",)


def algo_of() -> PPO:
    env = gym.make(work.ENV)
    net, value_net = (
        Net(state_shape=(4,), hidden_sizes=list(work.HIDDENS), activation=nn.Tanh) for _ in range(2)
    )
    policy = ProbabilisticActorPolicy(
        actor=DiscreteActor(preprocess_net=net, action_shape=2, softmax_output=False),
        dist_fn=lambda logits: Categorical(logits=logits),
        action_space=env.action_space,
        action_scaling=False,
        action_bound_method=None,
    )
    return PPO(
        policy=policy,
        critic=DiscreteCritic(preprocess_net=value_net),
        optim=AdamOptimizerFactory(lr=work.LR),
        gamma=work.GAMMA,
        gae_lambda=work.LAMBDA,
        eps_clip=work.CLIP,
        vf_coef=work.VALUE_WEIGHT,
        ent_coef=0.0,
        max_grad_norm=work.GRAD_CLIP,
        advantage_normalization=True,
    )


def act(obs: work.Array) -> Callable[[], Any]:
    algo = algo_of()
    algo.eval()

    def run() -> tuple[Any, ...]:
        with torch.no_grad():
            batch = Batch(obs=obs, info=Batch())
            found = algo.policy(batch)
            value, logp = algo.critic(obs), found.dist.log_prob(found.act)
        return found.act.numpy(), logp.numpy(), value.flatten().numpy()

    return run


def parameters() -> int:
    return sum(weight.numel() for weight in algo_of().parameters())


def categorical(logits: Tensor) -> Callable[[], Any]:
    return work.drawn(lambda: Categorical(logits=logits))


def gaussian(mean: Tensor, log_std: Tensor) -> Callable[[], Any]:
    return work.drawn(lambda: Independent(Normal(mean, log_std.exp()), 1))


def train(columns: Mapping[str, work.Array]) -> Callable[[], Any]:
    """What `algorithm.update` does once advantages are known."""
    algo = algo_of()
    names = {
        "act": "action",
        "logp_old": "logp",
        "v_s": "value",
        "adv": "advantage",
        "returns": "target",
    }
    batch = Batch(
        obs=columns["obs"],
        info=Batch(),
        **{name: torch.from_numpy(columns[column]) for name, column in names.items()},
    )
    return lambda: algo._update_with_batch(batch, batch_size=work.MINIBATCH, repeat=work.EPOCHS)


def ppo(num_envs: int) -> Callable[[int], float]:
    algo = algo_of()
    envs = DummyVectorEnv([lambda: gym.make(work.ENV) for _ in range(num_envs)])
    collector = Collector(algo, envs, VectorReplayBuffer(work.ROWS, num_envs))

    def run(rollouts: int) -> None:
        algo.run_training(
            OnPolicyTrainerParams(
                training_collector=collector,
                max_epochs=rollouts,
                epoch_num_steps=work.ROWS,
                collection_step_num_env_steps=work.ROWS,
                update_step_num_repetitions=work.EPOCHS,
                batch_size=work.MINIBATCH,
                verbose=False,
                show_progress=False,
            )
        )

    return partial(work.per_step, run)
