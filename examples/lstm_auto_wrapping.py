"""A custom model to which `use_lstm` adds an LSTM, in PyTorch and TensorFlow.

The LSTM follows the model and computes the logits and the values, so the model only
returns features. It tells the LSTM how many features there are. Run it with `python
examples/lstm_auto_wrapping.py --framework tf`.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
from gymnasium.spaces import Box

from rlcatalog import ModelCatalog
from rlcatalog_ppo import PPO


def positions_only() -> gym.Env:
    """Make a CartPole environment that only shows the cart's position and the pole's
    angle.
    """
    env = gym.make("CartPole-v1")
    seen = Box(env.observation_space.low[[0, 2]], env.observation_space.high[[0, 2]])
    return gym.wrappers.TransformObservation(env, lambda obs: obs[[0, 2]], seen)


def torch_model() -> type:
    """Return the PyTorch trunk."""
    import torch
    from torch import nn

    from rlcatalog_torch import TorchModelV2

    class NormedModel(TorchModelV2, nn.Module):
        """Dense layer with normalised outputs."""

        def __init__(
            self,
            obs_space: Any,
            action_space: Any,
            num_outputs: None,
            model_config: Any,
            name: str,
        ) -> None:
            TorchModelV2.__init__(
                self, obs_space, action_space, num_outputs, model_config, name
            )
            nn.Module.__init__(self)
            self.num_outputs = 64  # features for the LSTM
            self.layer = nn.Linear(obs_space.shape[0], 64)
            self.norm = nn.LayerNorm(64)

        def forward(
            self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
        ) -> tuple[Any, list[Any]]:
            return torch.tanh(self.norm(self.layer(input_dict["obs_flat"]))), state

    return NormedModel


def tf_model() -> type:
    """Return the TensorFlow trunk."""
    from rlcatalog_tf import TFModelV2, tf

    class NormedModel(TFModelV2):
        """The same in TensorFlow."""

        def __init__(
            self,
            obs_space: Any,
            action_space: Any,
            num_outputs: None,
            model_config: Any,
            name: str,
        ) -> None:
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.num_outputs = 64  # features for the LSTM
            self.layer = tf.keras.layers.Dense(64)
            self.norm = tf.keras.layers.LayerNormalization(epsilon=1e-5)

        def forward(
            self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
        ) -> tuple[Any, list[Any]]:
            return tf.tanh(self.norm(self.layer(input_dict["obs_flat"]))), state

    return NormedModel


def main() -> None:
    """Train a policy and print its mean return."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", default="torch", choices=["torch", "tf"])
    parser.add_argument("--iterations", type=int, default=120)
    arguments = parser.parse_args()
    ModelCatalog.register_custom_model(
        "normed", torch_model() if arguments.framework == "torch" else tf_model()
    )
    model = {
        "custom_model": "normed",
        "use_lstm": True,
        "lstm_cell_size": 64,
        "lstm_use_prev_action": True,
    }
    # Velocities are differences of positions, which are small compared to the
    # positions' range; the filter scales them up.
    config = {
        "model": model,
        "observation_filter": "MeanStdFilter",
        "lr": 1e-3,
        "reward_scale": True,
        # The learning rate falls to 0 over these steps.
        "total_steps": 1024 * arguments.iterations,
        "seed": 0,
    }
    algo = PPO(env=positions_only, config=config)
    for _ in range(arguments.iterations):
        result = algo.train()
        print(
            f"{result['timesteps_total']:7d} steps, mean return"
            f" {result['episode_return_mean']}"
        )
    algo.stop()


if __name__ == "__main__":
    main()
