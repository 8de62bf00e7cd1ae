"""The catalog's nets and distribution in TorchRL's PPO, with an ordinary TorchRL loop.

`rlcatalog_torch.actor_critic(policy)` returns an actor, a critic and a distribution
with the methods of `torch.distributions`. The example wraps them in modules of TorchRL,
which read and write entries of a TensorDict.

TorchRL passes the sampled actions to the environment without converting them. The
example therefore uses a Discrete action space that starts at 0, which needs no
conversion. Run the script with `python examples/torchrl_ppo.py`, in a Python
environment that contains TorchRL.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper, RewardSum, TransformedEnv
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import rlcatalog
from rlcatalog_torch import actor_critic


def main() -> None:
    """Train and print the mean return."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--iterations", type=int, default=60)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    env = TransformedEnv(
        GymWrapper(gym.make(arguments.env), categorical_action_encoding=True),
        RewardSum(),
    )
    env.set_seed(0)

    config = {"fcnet_hiddens": [64, 64], "vf_share_layers": False}
    policy = rlcatalog.build(
        env=gym.make(arguments.env), config=config, framework="torch"
    )
    net, value_net, dist_class = actor_critic(policy)
    module = TensorDictModule(net, in_keys=["observation"], out_keys=["inputs"])
    actor = ProbabilisticActor(
        module,
        in_keys=["inputs"],
        distribution_class=dist_class,
        return_log_prob=True,
        spec=env.action_spec,
    )
    critic = ValueOperator(value_net, in_keys=["observation"])

    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic, average_gae=True)
    loss = ClipPPOLoss(actor, critic, entropy_coeff=0.0, critic_coeff=0.5)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)
    collector = Collector(
        env,
        actor,
        frames_per_batch=1024,
        total_frames=1024 * arguments.iterations,
        auto_register_policy_transforms=False,
    )
    for number, rollout in enumerate(collector, 1):
        for _ in range(10):
            with torch.no_grad():
                advantage(rollout)
            rows = rollout.reshape(-1)
            for drawn in torch.randperm(len(rows)).split(256):
                losses = loss(rows[drawn])
                optimizer.zero_grad()
                (losses["loss_objective"] + losses["loss_critic"]).backward()
                nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                optimizer.step()
        ended = rollout["next", "done"]
        returns = rollout["next", "episode_reward"][ended]
        mean_return = float(returns.mean()) if len(returns) else None
        print(f"{number * 1024:7d} steps, mean return {mean_return}")
    collector.shutdown()
    obs, _ = gym.make(arguments.env).reset(seed=0)
    # Shares the weights.
    print(f"the policy that was trained: {policy.act([obs], explore=False).action[0]}")


if __name__ == "__main__":
    main()
