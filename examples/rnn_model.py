"""A custom recurrent model, in PyTorch and TensorFlow, on a CartPole that hides its
velocities.

A single observation contains only positions, which is not enough to balance a pole. A
model with a memory of past steps can estimate the velocities. Run it with `python
examples/rnn_model.py --framework tf`.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
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
    """Return the PyTorch model."""
    import torch
    from torch import nn

    from rlcatalog_torch import RecurrentNetwork, sequence_mask

    class GRUModel(RecurrentNetwork, nn.Module):
        """Model with a dense layer, a GRU, and layers for the logits and the value."""

        def __init__(
            self,
            obs_space: Any,
            action_space: Any,
            num_outputs: int,
            model_config: Any,
            name: str,
            cell_size: int = 64,
        ) -> None:
            RecurrentNetwork.__init__(
                self, obs_space, action_space, num_outputs, model_config, name
            )
            nn.Module.__init__(self)
            self.cell_size = cell_size
            self.embed = nn.Sequential(
                nn.Linear(obs_space.shape[0], cell_size), nn.Tanh()
            )
            self.cell = nn.GRUCell(cell_size, cell_size)
            self.logits = nn.Linear(cell_size, num_outputs)
            self.value = nn.Linear(cell_size, 1)

        def get_initial_state(self) -> list[Any]:
            return [np.zeros(self.cell_size, np.float32)]

        def forward_rnn(
            self, inputs: Any, state: list[Any], seq_lens: Any
        ) -> tuple[Any, list[Any]]:
            """Map observations `[B, T, obs]` to logits `[B, T, num_outputs]` and the
            state at `seq_lens`.
            """
            x = self.embed(inputs)
            h = state[0]
            steps = []
            there = sequence_mask(seq_lens, inputs.shape[1])
            for t in range(inputs.shape[1]):
                # Constant after a sequence's end.
                h = torch.where(there[:, t, None], self.cell(x[:, t], h), h)
                steps.append(h)
            self.features = torch.stack(steps, dim=1)
            return self.logits(self.features), [h]

        def value_function(self) -> Any:
            return self.value(self.features).reshape(-1)

    return GRUModel


def tf_model() -> type:
    """Return the TensorFlow model."""
    from rlcatalog_tf import RecurrentNetwork, sequence_mask, tf

    class GRUModel(RecurrentNetwork):
        """The same model with Keras layers, whose mask keeps the state unchanged after
        the end of a sequence.
        """

        def __init__(
            self,
            obs_space: Any,
            action_space: Any,
            num_outputs: int,
            model_config: Any,
            name: str,
            cell_size: int = 64,
        ) -> None:
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.cell_size = cell_size
            self.embed = tf.keras.layers.Dense(cell_size, activation="tanh")
            self.cell = tf.keras.layers.GRU(
                cell_size, return_sequences=True, return_state=True
            )
            self.logits = tf.keras.layers.Dense(num_outputs)
            self.value = tf.keras.layers.Dense(1)

        def get_initial_state(self) -> list[Any]:
            return [np.zeros(self.cell_size, np.float32)]

        def forward_rnn(
            self, inputs: Any, state: list[Any], seq_lens: Any
        ) -> tuple[Any, list[Any]]:
            """Map observations `[B, T, obs]` to logits `[B, T, num_outputs]` and the
            state at `seq_lens`.
            """
            there = sequence_mask(seq_lens, tf.shape(inputs)[1])
            features, h = self.cell(
                self.embed(inputs), mask=there, initial_state=state[0]
            )
            self._values = self.value(features)
            return self.logits(features), [h]

        def value_function(self) -> Any:
            return tf.reshape(self._values, [-1])

    return GRUModel


def main() -> None:
    """Train a policy and print its mean return."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", default="torch", choices=["torch", "tf"])
    parser.add_argument("--iterations", type=int, default=120)
    arguments = parser.parse_args()
    ModelCatalog.register_custom_model(
        "gru_model", torch_model() if arguments.framework == "torch" else tf_model()
    )
    model = {
        "custom_model": "gru_model",
        "custom_model_config": {"cell_size": 64},
        "max_seq_len": 20,
    }
    # Velocities are differences of positions, which are small compared with the range
    # of positions: the filter scales the positions up.
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
