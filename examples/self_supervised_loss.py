"""Self-supervised losses in `custom_loss`: a variational autoencoder and L2
regularisation, in both frameworks.

The policy does not see the observation itself, but the code that a variational
autoencoder (Kingma and Welling 2014) computes from it. To train the autoencoder,
`custom_loss` adds the reconstruction error, the KL divergence of the code, and the
squared weights to the loss of PPO.

Run it with `python examples/self_supervised_loss.py --framework tf`.
"""

from __future__ import annotations

import argparse
from typing import Any

from rlcatalog import ModelCatalog
from rlcatalog_ppo import PPO

CODE = 8
WEIGHTS = {"reconstruction": 0.1, "divergence": 1e-4, "l2": 1e-5}


def torch_model() -> type:
    """Return the PyTorch model."""
    import torch
    from torch import nn

    from rlcatalog_torch import TorchModelV2

    class AutoencodingModel(TorchModelV2, nn.Module):
        """Encoder, decoder, and layers that compute the policy and the value from the
        code.
        """

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
            size = obs_space.shape[0]
            self.encoder = nn.Sequential(
                nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, 2 * CODE)
            )
            self.decoder = nn.Sequential(
                nn.Linear(CODE, 64), nn.Tanh(), nn.Linear(64, size)
            )
            self.policy = nn.Sequential(
                nn.Linear(CODE, 64), nn.Tanh(), nn.Linear(64, num_outputs)
            )
            self.value = nn.Sequential(nn.Linear(CODE, 64), nn.Tanh(), nn.Linear(64, 1))

        def forward(
            self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
        ) -> tuple[Any, list[Any]]:
            """Compute the logits from the mean code, which is free of
            sampling noise.
            """
            self.obs = input_dict["obs"]
            self.mean, self.log_variance = self.encoder(self.obs).chunk(2, dim=1)
            return self.policy(self.mean), state

        def value_function(self) -> Any:
            return self.value(self.mean).squeeze(1)

        def custom_loss(self, policy_loss: Any, loss_inputs: Any) -> Any:
            """Add the additional losses, computed from the results of the
            forward pass.
            """
            code = self.mean + torch.exp(0.5 * self.log_variance) * torch.randn_like(
                self.mean
            )
            divergence = (
                self.mean.square() + self.log_variance.exp() - 1 - self.log_variance
            )
            self.terms = {
                "reconstruction": (self.decoder(code) - self.obs).square().mean(),
                "divergence": 0.5 * divergence.sum(dim=1).mean(),
                "l2": sum(
                    weight.square().sum()
                    for weight in self.parameters()
                    if weight.ndim == 2
                ),
            }
            return policy_loss + sum(
                WEIGHTS[name] * term for name, term in self.terms.items()
            )

        def metrics(self) -> dict[str, Any]:
            return self.terms

    return AutoencodingModel


def tf_model() -> type:
    """Return the TensorFlow model."""
    from rlcatalog_tf import TFModelV2, tf

    class AutoencodingModel(TFModelV2):
        """The same in TensorFlow."""

        def __init__(
            self,
            obs_space: Any,
            action_space: Any,
            num_outputs: int,
            model_config: Any,
            name: str,
        ) -> None:
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.encoder = self._net(obs_space.shape[0], 2 * CODE)
            self.decoder = self._net(CODE, obs_space.shape[0])
            self.policy = self._net(CODE, num_outputs)
            self.value = self._net(CODE, 1)

        @staticmethod
        def _net(inputs: int, outputs: int) -> Any:
            layers = [
                tf.keras.layers.Dense(64, activation="tanh"),
                tf.keras.layers.Dense(outputs),
            ]
            return tf.keras.Sequential([tf.keras.layers.Input((inputs,)), *layers])

        def forward(
            self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
        ) -> tuple[Any, list[Any]]:
            """Compute the logits from the mean code, which is free of
            sampling noise.
            """
            self.obs = input_dict["obs"]
            self.mean, self.log_variance = tf.split(self.encoder(self.obs), 2, axis=1)
            return self.policy(self.mean), state

        def value_function(self) -> Any:
            return tf.reshape(self.value(self.mean), [-1])

        def custom_loss(self, policy_loss: Any, loss_inputs: Any) -> Any:
            """Add the additional losses, computed from the results of the
            forward pass.
            """
            code = self.mean + tf.exp(0.5 * self.log_variance) * tf.random.normal(
                tf.shape(self.mean)
            )
            divergence = (
                self.mean**2 + tf.exp(self.log_variance) - 1 - self.log_variance
            )
            kernels = [
                weight
                for weight in self.trainable_variables()
                if len(weight.shape) == 2
            ]
            self.terms = {
                "reconstruction": tf.reduce_mean((self.decoder(code) - self.obs) ** 2),
                "divergence": 0.5 * tf.reduce_mean(tf.reduce_sum(divergence, axis=1)),
                "l2": tf.add_n(
                    [tf.reduce_sum(tf.square(kernel)) for kernel in kernels]
                ),
            }
            return policy_loss + sum(
                WEIGHTS[name] * term for name, term in self.terms.items()
            )

        def metrics(self) -> dict[str, Any]:
            return self.terms

    return AutoencodingModel


def main() -> None:
    """Train, and print the mean return and the losses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--framework", default="torch", choices=["torch", "tf"])
    parser.add_argument("--iterations", type=int, default=100)
    arguments = parser.parse_args()
    cls = torch_model() if arguments.framework == "torch" else tf_model()
    ModelCatalog.register_custom_model("autoencoding_model", cls)
    algo = PPO(
        env=arguments.env,
        config={"model": {"custom_model": "autoencoding_model"}, "seed": 0},
    )
    for _ in range(arguments.iterations):
        result = algo.train()
        losses = {
            name: round(value, 4)
            for name, value in result["info"]["learner"]["model"].items()
        }
        print(
            f"{result['timesteps_total']:7d} steps, mean return"
            f" {result['episode_return_mean']}, {losses}"
        )
    algo.stop()


if __name__ == "__main__":
    main()
