"""A functional Keras 3 model inside `TFModelV2`, registered under a name and trained by
PPO.

Run it with `python examples/keras_model.py`.
"""

from __future__ import annotations

import argparse
from typing import Any

from rlcatalog import ModelCatalog
from rlcatalog_ppo import PPO
from rlcatalog_tf import TFModelV2, keras, normc_initializer, tf


class KerasModel(TFModelV2):
    """Keras network with one body and two outputs; `width` comes from
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
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        inputs = keras.layers.Input(shape=obs_space.shape, name="observation")
        x = keras.layers.Dense(
            width, activation="tanh", kernel_initializer=normc_initializer(1.0)
        )(inputs)
        x = keras.layers.Dense(
            width, activation="tanh", kernel_initializer=normc_initializer(1.0)
        )(x)
        logits = keras.layers.Dense(
            num_outputs, name="logits", kernel_initializer=normc_initializer(0.01)
        )(x)
        value = keras.layers.Dense(
            1, name="value", kernel_initializer=normc_initializer(0.01)
        )(x)
        self.base_model = keras.Model(inputs, [logits, value])

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
    ) -> tuple[Any, list[Any]]:
        """Compute the logits; keep the values for `value_function`."""
        logits, self._values = self.base_model(input_dict["obs"])
        return logits, state

    def value_function(self) -> Any:
        """Return the value estimates of the last forward pass."""
        return tf.reshape(self._values, [-1])


def main() -> None:
    """Train a policy and print its mean return."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--iterations", type=int, default=120)
    arguments = parser.parse_args()
    ModelCatalog.register_custom_model("keras_model", KerasModel)
    model = {"custom_model": "keras_model", "custom_model_config": {"width": 128}}
    # The class says that it needs TensorFlow.
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
