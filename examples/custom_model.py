"""A custom model class in RLlib's style, registered under a name and trained by PPO.

Run it with `python examples/custom_model.py`.
"""

from __future__ import annotations

import argparse
from typing import Any

from torch import Tensor, nn

from rlcatalog import ModelCatalog
from rlcatalog_ppo import PPO
from rlcatalog_torch import TorchModelV2, normc_initializer


class TwoTowers(TorchModelV2, nn.Module):
    """One network for the policy and one for the value; `width` comes from
    `custom_model_config`.
    """

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int,
        model_config: Any,
        name: str,
        width: int = 64,
    ) -> None:
        TorchModelV2.__init__(
            self, obs_space, action_space, num_outputs, model_config, name
        )
        nn.Module.__init__(self)
        self._policy = self._tower(obs_space.shape[0], width, num_outputs)
        self._value = self._tower(obs_space.shape[0], width, 1)

    @staticmethod
    def _tower(inputs: int, width: int, outputs: int) -> nn.Sequential:
        last = nn.Linear(width, outputs)
        normc_initializer(0.01)(last.weight)
        return nn.Sequential(
            nn.Linear(inputs, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            last,
        )

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
    ) -> tuple[Tensor, list[Any]]:
        """Compute the logits, and store the observation for `value_function`."""
        self._obs = input_dict["obs"]
        return self._policy(self._obs), state

    def value_function(self) -> Tensor:
        """Return the value estimates of the last forward pass."""
        return self._value(self._obs).squeeze(1)


def main() -> None:
    """Train a policy and print its mean return."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--iterations", type=int, default=80)
    arguments = parser.parse_args()
    ModelCatalog.register_custom_model("two_towers", TwoTowers)
    model = {"custom_model": "two_towers", "custom_model_config": {"width": 128}}
    algo = PPO(env=arguments.env, config={"model": model, "seed": 0})
    for _ in range(arguments.iterations):
        result = algo.train()
        print(
            f"{result['timesteps_total']:7d} steps, mean return"
            f" {result['episode_return_mean']}"
        )
    algo.stop()


if __name__ == "__main__":
    main()
