"""Batch normalisation in a custom model, in PyTorch and TensorFlow.

In training, batch normalisation uses the statistics of the batch. When the policy acts,
it uses their moving averages instead, because an action must not depend on the other
rows of the batch. Both differ, so a training step does not compare the same policy with
itself, and PPO learns less than without normalisation: it reaches about 300 of 500
here, and 500 with `examples/custom_model.py`. Run it with `python
examples/batch_norm_model.py --framework tf`.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from rlcatalog import ModelCatalog
from rlcatalog_ppo import PPO


def torch_model() -> type:
    """Return the PyTorch model; the policy switches it between `train()` and `eval()`
    mode.
    """
    from torch import nn

    from rlcatalog_torch import TorchModelV2

    class BatchNormModel(TorchModelV2, nn.Module):
        """Network with two normalised dense layers and two output layers."""

        def __init__(
            self,
            obs_space: Any,
            action_space: Any,
            num_outputs: int,
            model_config: Any,
            name: str,
        ) -> None:
            TorchModelV2.__init__(
                self, obs_space, action_space, num_outputs, model_config, name
            )
            nn.Module.__init__(self)
            inputs = obs_space.shape[0]
            self.body = nn.Sequential(
                nn.Linear(inputs, 64),
                nn.BatchNorm1d(64),
                nn.Tanh(),
                nn.Linear(64, 64),
                nn.BatchNorm1d(64),
                nn.Tanh(),
            )
            self.logits = nn.Linear(64, num_outputs)
            self.value = nn.Linear(64, 1)

        def forward(
            self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
        ) -> tuple[Any, list[Any]]:
            """Compute the logits; keep the features for `value_function`."""
            self.features = self.body(input_dict["obs"])
            return self.logits(self.features), state

        def value_function(self) -> Any:
            return self.value(self.features).squeeze(1)

    return BatchNormModel


def tf_model() -> type:
    """Return the TensorFlow model; `input_dict["is_training"]` selects its mode."""
    from rlcatalog_tf import TFModelV2, tf

    class BatchNormModel(TFModelV2):
        """Network with two normalised dense layers and two output layers; Keras updates
        the moving statistics.
        """

        def __init__(
            self,
            obs_space: Any,
            action_space: Any,
            num_outputs: int,
            model_config: Any,
            name: str,
        ) -> None:
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.dense = [tf.keras.layers.Dense(64) for _ in range(2)]
            self.norms = [
                tf.keras.layers.BatchNormalization(momentum=0.9) for _ in range(2)
            ]
            self.logits = tf.keras.layers.Dense(num_outputs)
            self.value = tf.keras.layers.Dense(1)

        def forward(
            self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
        ) -> tuple[Any, list[Any]]:
            """Compute the logits; keep the values for `value_function`."""
            x = input_dict["obs"]
            for dense, norm in zip(self.dense, self.norms, strict=True):
                x = tf.tanh(norm(dense(x), training=input_dict["is_training"]))
            self._values = self.value(x)
            return self.logits(x), state

        def value_function(self) -> Any:
            return tf.reshape(self._values, [-1])

    return BatchNormModel


def main() -> None:
    """Train, and print the mean return and the final normalisation statistics."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--framework", default="torch", choices=["torch", "tf"])
    parser.add_argument("--iterations", type=int, default=50)
    arguments = parser.parse_args()
    cls = torch_model() if arguments.framework == "torch" else tf_model()
    ModelCatalog.register_custom_model("batch_norm_model", cls)
    # Small minibatches have noisy statistics, which make the probability ratios noisy,
    # and with more epochs, the policy moves further on these ratios.
    config = {
        "model": {"custom_model": "batch_norm_model"},
        "minibatch_size": 1024,
        "num_epochs": 4,
        "lr": 1e-3,
        "gamma": 0.98,
        "reward_scale": True,
        "seed": 0,
    }
    algo = PPO(env=arguments.env, config=config)
    for _ in range(arguments.iterations):
        result = algo.train()
        print(
            f"{result['timesteps_total']:7d} steps, mean return"
            f" {result['episode_return_mean']}"
        )
    for name, values in algo.policy.model.get_weights().items():
        if "mean" in name or "var" in name:
            print(f"{name}: {np.round(values[:4], 2)} ...")
    algo.stop()


if __name__ == "__main__":
    main()
