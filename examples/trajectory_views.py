"""Views of past steps instead of a memory: the model requests the last observations,
actions and rewards.

The example uses a CartPole that hides its velocities. From the last few positions, the
model can work out how fast the cart and the pole move. Run it with `python
examples/trajectory_views.py --framework tf --frames 4`.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
from gymnasium.spaces import Box

from rlcatalog import ModelCatalog, ViewRequirement
from rlcatalog_ppo import PPO


def positions_only() -> gym.Env:
    """Make a CartPole environment that only shows the cart's position and the pole's
    angle.
    """
    env = gym.make("CartPole-v1")
    seen = Box(env.observation_space.low[[0, 2]], env.observation_space.high[[0, 2]])
    return gym.wrappers.TransformObservation(env, lambda obs: obs[[0, 2]], seen)


def views(obs_space: Any, action_space: Any, frames: int) -> dict[str, ViewRequirement]:
    """Return the views of `frames` steps: observations up to now, actions and rewards
    up to the previous step.
    """
    return {
        "prev_n_obs": ViewRequirement("obs", space=obs_space, shift=f"-{frames - 1}:0"),
        "prev_n_actions": ViewRequirement(
            "actions", space=action_space, shift=f"-{frames}:-1"
        ),
        "prev_n_rewards": ViewRequirement("rewards", shift=f"-{frames}:-1"),
    }


def torch_model() -> type:
    """Return the PyTorch model."""
    import torch
    from torch import nn
    from torch.nn.functional import one_hot

    from rlcatalog_torch import TorchModelV2

    class FrameStackingModel(TorchModelV2, nn.Module):
        """Model with dense layers that read everything in the views."""

        def __init__(
            self,
            obs_space: Any,
            action_space: Any,
            num_outputs: int,
            model_config: Any,
            name: str,
            frames: int = 3,
        ) -> None:
            TorchModelV2.__init__(
                self, obs_space, action_space, num_outputs, model_config, name
            )
            nn.Module.__init__(self)
            self.view_requirements |= views(obs_space, action_space, frames)
            self.actions = int(action_space.n)
            width = frames * (obs_space.shape[0] + self.actions + 1)
            self.body = nn.Sequential(
                nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()
            )
            self.logits = nn.Linear(64, num_outputs)
            self.value = nn.Linear(64, 1)

        def forward(
            self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
        ) -> tuple[Any, list[Any]]:
            """Concatenate the views `[B, frames, ...]`, which are zero before the start
            of the episode.
            """
            actions = one_hot(input_dict["prev_n_actions"].long(), self.actions)
            seen = [
                input_dict["prev_n_obs"].flatten(1),
                actions.flatten(1),
                input_dict["prev_n_rewards"],
            ]
            self.features = self.body(torch.cat(seen, dim=1))
            return self.logits(self.features), state

        def value_function(self) -> Any:
            return self.value(self.features).squeeze(1)

    return FrameStackingModel


def tf_model() -> type:
    """Return the TensorFlow model."""
    from rlcatalog_tf import TFModelV2, tf

    class FrameStackingModel(TFModelV2):
        """The same model with Keras layers."""

        def __init__(
            self,
            obs_space: Any,
            action_space: Any,
            num_outputs: int,
            model_config: Any,
            name: str,
            frames: int = 3,
        ) -> None:
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.view_requirements |= views(obs_space, action_space, frames)
            self.actions = int(action_space.n)
            inputs = [
                tf.keras.layers.Input((frames, obs_space.shape[0])),
                tf.keras.layers.Input((frames, self.actions)),
                tf.keras.layers.Input((frames,)),
            ]
            x = tf.keras.layers.Concatenate()(
                [tf.keras.layers.Flatten()(part) for part in inputs]
            )
            for _ in range(2):
                x = tf.keras.layers.Dense(64, activation="tanh")(x)
            self.body = tf.keras.Model(
                inputs,
                [tf.keras.layers.Dense(num_outputs)(x), tf.keras.layers.Dense(1)(x)],
            )

        def forward(
            self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
        ) -> tuple[Any, list[Any]]:
            """Concatenate the views `[B, frames, ...]`, which are zero before the start
            of the episode.
            """
            actions = tf.one_hot(input_dict["prev_n_actions"], self.actions)
            logits, self._values = self.body(
                [input_dict["prev_n_obs"], actions, input_dict["prev_n_rewards"]]
            )
            return logits, state

        def value_function(self) -> Any:
            return tf.reshape(self._values, [-1])

    return FrameStackingModel


def main() -> None:
    """Train a policy and print its mean return."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", default="torch", choices=["torch", "tf"])
    parser.add_argument(
        "--frames",
        type=int,
        default=3,
        help="steps that the model sees; with 1, no velocities",
    )
    parser.add_argument("--iterations", type=int, default=120)
    arguments = parser.parse_args()
    cls = torch_model() if arguments.framework == "torch" else tf_model()
    ModelCatalog.register_custom_model("frame_stacking", cls)
    model = {
        "custom_model": "frame_stacking",
        "custom_model_config": {"frames": arguments.frames},
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
