"""A custom action distribution: a categorical distribution mixed with some uniform
exploration.

Run it with `python examples/custom_action_dist.py`.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor

from rlcatalog import ActionDistribution, ModelCatalog
from rlcatalog_ppo import PPO

UNIFORM = 0.05


class EpsilonCategorical(ActionDistribution):
    """`(1 - ε) softmax(logits) + ε / n`, with ε = 0.05: no action's probability falls
    below ε / n.
    """

    def __init__(self, inputs: Tensor, model: Any) -> None:
        super().__init__(inputs, model)
        self.probs = (1 - UNIFORM) * inputs.softmax(dim=-1) + UNIFORM / inputs.shape[-1]

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        """Return the number of logits, which is the width of the model's output."""
        return int(action_space.n)

    def sample(self) -> Tensor:
        """Draw values `[B]`."""
        self.last_sample = torch.multinomial(self.probs, 1).squeeze(1)
        return self.last_sample

    def deterministic_sample(self) -> Tensor:
        """Return the most likely values `[B]`."""
        self.last_sample = self.probs.argmax(dim=-1)
        return self.last_sample

    def logp(self, actions: Tensor) -> Tensor:
        """Return log probabilities `[B]`."""
        return self.probs.gather(1, actions.long().reshape(-1, 1)).squeeze(1).log()

    def entropy(self) -> Tensor:
        """Return the entropy `[B]` in nats."""
        return -(self.probs * self.probs.log()).sum(dim=1)


def main() -> None:
    """Train a policy and print its mean return."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--iterations", type=int, default=100)
    arguments = parser.parse_args()
    ModelCatalog.register_custom_action_dist("epsilon_categorical", EpsilonCategorical)
    algo = PPO(
        env=arguments.env,
        config={"model": {"custom_action_dist": "epsilon_categorical"}, "seed": 0},
    )
    for _ in range(arguments.iterations):
        result = algo.train()
        print(
            f"{result['timesteps_total']:7d} steps, mean return"
            f" {result['episode_return_mean']}"
        )
    algo.stop()


if __name__ == "__main__":
    main()
