"""The catalog's parts under TorchRL: a model and a distribution as an actor and a critic, trained by TorchRL's own PPO.

TorchRL's modules read and write entries of a TensorDict. Two small classes are all that stands between: `Outputs` runs
the catalog's model, and `Drawn` shows the catalog's distribution under the names of `torch.distributions`. TorchRL
keeps an action as the environment takes it, so this serves actions whose raw form is the environment's: a Discrete that
begins at 0. Run it with `python examples/torchrl_ppo.py`, where TorchRL is installed.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import torch
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper, RewardSum, TransformedEnv
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import rlcatalog


class Outputs(nn.Module):
    """Observations `[..., n]` to what the distribution is made of, or to values `[..., 1]`."""

    def __init__(self, model: nn.Module, value: bool) -> None:
        super().__init__()
        self.model, self.value = model, value

    def forward(self, obs: Tensor) -> Tensor:
        """Run the model on rows, whatever the batch's shape is."""
        found, _ = self.model({"obs": obs.reshape(-1, obs.shape[-1])})
        if self.value:
            found = self.model.value_function().reshape(-1, 1)
        return found.reshape(*obs.shape[:-1], -1)


class Drawn(torch.distributions.Distribution):
    """A distribution of the catalog, `[..., n]`, under the names of `torch.distributions`."""

    dist_class: Any = None

    def __init__(self, inputs: Tensor) -> None:
        super().__init__(inputs.shape[:-1], validate_args=False)
        self.dist = self.dist_class(inputs.reshape(-1, inputs.shape[-1]), None)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draw actions."""
        return self.dist.sample().reshape(self.batch_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return their log density."""
        return self.dist.logp(value.reshape(-1)).reshape(self.batch_shape)

    def entropy(self) -> Tensor:
        """Return the entropy."""
        return self.dist.entropy().reshape(self.batch_shape)

    @property
    def deterministic_sample(self) -> Tensor:
        """The most likely actions."""
        return self.dist.deterministic_sample().reshape(self.batch_shape)


def main() -> None:
    """Train and print the mean return."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--iterations", type=int, default=60)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    env = TransformedEnv(GymWrapper(gym.make(arguments.env), categorical_action_encoding=True), RewardSum())
    env.set_seed(0)
    config = {"fcnet_hiddens": [64, 64], "vf_share_layers": False}
    policy = rlcatalog.build(env=gym.make(arguments.env), config=config, framework="torch")

    Drawn.dist_class = policy.dist_class
    net = TensorDictModule(Outputs(policy.model, value=False), in_keys=["observation"], out_keys=["inputs"])
    actor = ProbabilisticActor(
        net, in_keys=["inputs"], distribution_class=Drawn, return_log_prob=True, spec=env.action_spec
    )
    critic = ValueOperator(Outputs(policy.model, value=True), in_keys=["observation"])
    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic, average_gae=True)
    loss = ClipPPOLoss(actor, critic, entropy_coeff=0.0, critic_coeff=0.5)
    optimizer = torch.optim.Adam(policy.model.parameters(), lr=1e-3)

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
                nn.utils.clip_grad_norm_(policy.model.parameters(), 0.5)
                optimizer.step()
        ended = rollout["next", "done"]
        returns = rollout["next", "episode_reward"][ended]
        print(f"{number * 1024:7d} steps, mean return {float(returns.mean()) if len(returns) else None}")
    collector.shutdown()
    obs, _ = gym.make(arguments.env).reset(seed=0)
    print(f"the policy that was trained: {policy.act([obs], explore=False).action[0]}")  # it shares the weights


if __name__ == "__main__":
    main()
