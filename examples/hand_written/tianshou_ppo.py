"""tianshou's PPO with tianshou's nets.

`examples/tianshou_ppo.py` is the same script with the catalog's nets. Run this one with
`python examples/hand_written/tianshou_ppo.py`, where tianshou 2 is installed.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np
import torch
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from torch import nn
from torch.distributions import Categorical

NUM_ENVS = 8
STEPS = 1024


def main() -> None:
    """Train, and print the mean return of recent episodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--iterations", type=int, default=60, help=f"of {STEPS} steps")
    arguments = parser.parse_args()
    np.random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    parts = [
        gym.wrappers.RecordEpisodeStatistics(gym.make(arguments.env))
        for _ in range(NUM_ENVS)
    ]
    envs = DummyVectorEnv([lambda part=part: part for part in parts])
    env = parts[0]
    envs.seed(0)

    sizes = {"hidden_sizes": [64, 64], "activation": nn.Tanh}
    net, value_net = (
        Net(state_shape=env.observation_space.shape, **sizes) for _ in range(2)
    )
    actor = DiscreteActor(
        preprocess_net=net, action_shape=env.action_space.n, softmax_output=False
    )
    critic = DiscreteCritic(preprocess_net=value_net)

    def dist_fn(logits):
        return Categorical(logits=logits)

    policy = ProbabilisticActorPolicy(
        actor=actor,
        dist_fn=dist_fn,
        action_space=env.action_space,
        action_scaling=False,
        action_bound_method=None,
    )
    adam = AdamOptimizerFactory(lr=1e-3)
    algorithm = PPO(
        policy=policy, critic=critic, optim=adam, ent_coef=0.0, max_grad_norm=0.5
    )
    params = OnPolicyTrainerParams(
        training_collector=Collector(
            algorithm, envs, VectorReplayBuffer(STEPS, NUM_ENVS)
        ),
        max_epochs=arguments.iterations,
        epoch_num_steps=STEPS,
        collection_step_num_env_steps=STEPS,
        update_step_num_repetitions=10,
        batch_size=256,
        verbose=False,
        show_progress=False,
    )
    algorithm.run_training(params)
    returns = []
    for part in parts:
        returns += list(part.return_queue)[-3:]
    print(
        f"{arguments.iterations * STEPS:7d} steps, mean return {np.mean(returns):.1f}"
    )


if __name__ == "__main__":
    main()
