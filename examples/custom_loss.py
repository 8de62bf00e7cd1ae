"""A custom loss: an imitation loss on recorded data, added to PPO's loss, in PyTorch
and TensorFlow.

The first run trains another policy and records its experience in the folder `--data`.
The policy of this example then imitates the recorded actions while it learns with PPO.
To record your own data, use `rlcatalog train CartPole-v1 --record FOLDER`.

Run it with `python examples/custom_loss.py --framework tf`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rlcatalog import ModelCatalog
from rlcatalog_ppo import PPO
from rlcatalog_ppo.offline import Reader


def torch_model() -> type:
    """Return the PyTorch model, in which each loss computation reads the next batch."""
    import torch
    from torch import nn

    from rlcatalog_torch import Categorical, FullyConnectedNetwork, TorchModelV2

    class ImitatingModel(TorchModelV2, nn.Module):
        """The default network with an additional loss; `data` and `weight` come from
        `custom_model_config`.
        """

        def __init__(
            self,
            obs_space: Any,
            action_space: Any,
            num_outputs: int,
            model_config: Any,
            name: str,
            data: str = "",
            weight: float = 1.0,
        ) -> None:
            TorchModelV2.__init__(
                self, obs_space, action_space, num_outputs, model_config, name
            )
            nn.Module.__init__(self)
            self.net = FullyConnectedNetwork(
                obs_space, action_space, num_outputs, model_config, "net"
            )
            self.reader = Reader(data)
            self.weight = weight

        def forward(
            self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
        ) -> tuple[Any, list[Any]]:
            return self.net(input_dict, state, seq_lens)

        def value_function(self) -> Any:
            return self.net.value_function()

        def custom_loss(self, policy_loss: Any, loss_inputs: Any) -> Any:
            """Add the recorded actions' negative log density to the loss."""
            batch = self.reader.next()
            logits, _ = self.net({"obs": torch.from_numpy(batch["obs"])})
            actions = torch.from_numpy(batch["actions"])
            self.policy_loss = policy_loss.mean()
            self.imitation_loss = -Categorical(logits, self).logp(actions).mean()
            return policy_loss + self.weight * self.imitation_loss

        def metrics(self) -> dict[str, Any]:
            return {
                "policy_loss": self.policy_loss,
                "imitation_loss": self.imitation_loss,
            }

    return ImitatingModel


def tf_model() -> type:
    """Return the TensorFlow model, in which the traced loss contains the operations
    that read data.
    """
    from rlcatalog_tf import Categorical, FullyConnectedNetwork, TFModelV2, tf

    class ImitatingModel(TFModelV2):
        """The same in TensorFlow."""

        def __init__(
            self,
            obs_space: Any,
            action_space: Any,
            num_outputs: int,
            model_config: Any,
            name: str,
            data: str = "",
            weight: float = 1.0,
        ) -> None:
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.net = FullyConnectedNetwork(
                obs_space, action_space, num_outputs, model_config, "net"
            )
            self.reader = Reader(data)
            self.weight = weight

        def forward(
            self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
        ) -> tuple[Any, list[Any]]:
            return self.net(input_dict, state, seq_lens)

        def value_function(self) -> Any:
            return self.net.value_function()

        def custom_loss(self, policy_loss: Any, loss_inputs: Any) -> Any:
            """Add the recorded actions' negative log density to the loss."""
            # Drawn again at every step, although this method is traced only once.
            batch = self.reader.tf_input_ops()
            logits, _ = self.net({"obs": batch["obs"]})
            self.policy_loss = policy_loss
            self.imitation_loss = -tf.reduce_mean(
                Categorical(logits, self).logp(batch["actions"])
            )
            return policy_loss + self.weight * self.imitation_loss

        def metrics(self) -> dict[str, Any]:
            return {
                "policy_loss": self.policy_loss,
                "imitation_loss": self.imitation_loss,
            }

    return ImitatingModel


def main() -> None:
    """Record data if there is none, train, and print the mean return and the model's
    metrics.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--framework", default="torch", choices=["torch", "tf"])
    parser.add_argument("--iterations", type=int, default=140)
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("runs/recorded"),
        help="folder of recorded experience",
    )
    arguments = parser.parse_args()
    if not list(arguments.data.glob("*.npz")):
        print(f"recording into {arguments.data}")
        expert = PPO(
            env=arguments.env,
            config={"framework": arguments.framework, "seed": 1},
            record=arguments.data,
        )
        for _ in range(arguments.iterations):
            expert.train()
        expert.stop()
    cls = torch_model() if arguments.framework == "torch" else tf_model()
    ModelCatalog.register_custom_model("imitating_model", cls)
    model = {
        "custom_model": "imitating_model",
        "custom_model_config": {"data": str(arguments.data), "weight": 0.1},
    }
    algo = PPO(env=arguments.env, config={"model": model, "seed": 0})
    for _ in range(arguments.iterations):
        result = algo.train()
        metrics = result["info"]["learner"]["model"]
        print(
            f"{result['timesteps_total']:7d} steps, mean return"
            f" {result['episode_return_mean']}, metrics {metrics}"
        )
    algo.stop()


if __name__ == "__main__":
    main()
