"""The catalog's nets and distribution in tianshou's PPO, with tianshou's own algorithm
and trainer.

tianshou takes an actor, a critic and a function that turns the actor's outputs into a
`torch.distributions.Distribution`. `rlcatalog_torch.actor_critic(policy)` returns all
three. tianshou passes arrays to the networks and expects an actor to return a state, so
a small class, `Part`, adapts them.

Run the script with `python examples/tianshou_ppo.py`. It needs tianshou 2, which
requires older packages than the other engines, so `make engines` installs it in a
separate environment.
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
from torch import nn

import rlcatalog
from rlcatalog_torch import actor_critic

NUM_ENVS = 8
STEPS = 1024


class Part(nn.Module):
    """Actor or critic with the call signature that tianshou expects."""

    def __init__(self, net: nn.Module, *, actor: bool) -> None:
        super().__init__()
        self.net = net
        self.actor = actor

    def forward(self, obs, state=None, info=None):
        """Return logits and a state, or values."""
        outputs = self.net(torch.as_tensor(obs))
        return (outputs, state) if self.actor else outputs


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

    config = {"fcnet_hiddens": [64, 64], "vf_share_layers": False}
    net, value_net, dist_fn = actor_critic(
        rlcatalog.build(env=env, config=config, framework="torch")
    )
    actor = Part(net, actor=True)
    critic = Part(value_net, actor=False)

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
