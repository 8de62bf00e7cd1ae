"""A pretrained network from timm or `keras.applications` under PPO, on images: frozen,
or fine-tuned.

A dense layer reads the features of the backbone, and the logits and the value are
computed from its outputs. By default, the weights are random, so that nothing is
downloaded. Pass `--pretrained` to use pretrained ones.

Run it with `python examples/pretrained_backbone.py --fine-tune` after `pip install
timm`, or with `--framework tf`, which needs no other package.
"""

from __future__ import annotations

import argparse
import functools
from typing import Any

import gymnasium as gym
import minigrid
import numpy as np

from rlcatalog_ppo import PPO


def timm_model() -> type:
    """Return the PyTorch model; images arrive as floats in [0, 1], with
    channels first.
    """
    import timm
    import torch
    from torch import Tensor, nn

    class TimmBackbone(nn.Module):
        """A timm network, with the same normalisation as in its pretraining."""

        def __init__(
            self,
            space: gym.Space,
            name: str = "test_resnet",
            pretrained: bool = False,
            frozen: bool = True,
        ) -> None:
            super().__init__()
            self.net = timm.create_model(
                name, pretrained=pretrained, num_classes=0, in_chans=space.shape[0]
            )
            self.net.requires_grad_(not frozen)
            data = timm.data.resolve_model_data_config(self.net)
            self.register_buffer("mean", torch.tensor(data["mean"]).reshape(-1, 1, 1))
            self.register_buffer("std", torch.tensor(data["std"]).reshape(-1, 1, 1))
            self.norm = nn.LayerNorm(self.net.num_features)

        def train(self, mode: bool = True) -> Any:
            """Leave the backbone in eval mode, so that its batch normalisation keeps
            the pretrained statistics.
            """
            super().train(mode)
            self.net.eval()
            return self

        def forward(self, images: Tensor) -> Tensor:
            """Return the features `[B, F]`."""
            return self.norm(self.net((images - self.mean) / self.std))

    return TimmBackbone


def keras_model() -> type:
    """Return the TensorFlow model; images arrive as floats in [0, 1], with channels
    last.
    """
    from rlcatalog_tf import keras

    class KerasBackbone(keras.layers.Layer):
        """A network from `keras.applications` that scales inputs in [0, 255] itself, as
        MobileNetV3 does.
        """

        def __init__(
            self,
            space: gym.Space,
            name: str = "EfficientNetV2B0",
            pretrained: bool = False,
            frozen: bool = True,
        ) -> None:
            super().__init__()
            self.net = getattr(keras.applications, name)(
                weights="imagenet" if pretrained else None,
                include_top=False,
                pooling="avg",
                input_shape=space.shape,
            )
            self.net.trainable = not frozen
            self.norm = keras.layers.LayerNormalization(epsilon=1e-9)

        def call(self, images: Any) -> Any:
            """Return the features `[B, F]`; batch normalisation keeps the pretrained
            statistics.
            """
            return self.norm(self.net(255.0 * images, training=False))

    return KerasBackbone


def make_env(name: str) -> gym.Env:
    """Return a MiniGrid environment that emits the agent's view as images
    `[56, 56, 3]`.
    """
    env = gym.make(name)
    return minigrid.wrappers.ImgObsWrapper(
        minigrid.wrappers.RGBImgPartialObsWrapper(env)
    )


def main() -> None:
    """Train, print the mean return, and count the backbone weights that
    have changed.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="MiniGrid-Empty-5x5-v0")
    parser.add_argument("--framework", default="torch", choices=["torch", "tf"])
    parser.add_argument("--name", help="of the backbone; small ones by default")
    parser.add_argument(
        "--pretrained", action="store_true", help="download weights from ImageNet"
    )
    parser.add_argument(
        "--fine-tune", action="store_true", help="train the backbone too"
    )
    parser.add_argument("--iterations", type=int, default=80)
    arguments = parser.parse_args()
    cls = timm_model() if arguments.framework == "torch" else keras_model()
    # No part of the config: a saved policy has its weights, and
    # `rlcatalog.load(folder, model=cls)` downloads none.
    model = functools.partial(cls, pretrained=True) if arguments.pretrained else cls
    options = {"frozen": not arguments.fine_tune} | (
        {"name": arguments.name} if arguments.name else {}
    )
    config = {
        "framework": arguments.framework,
        "num_envs": 8,
        "rollout_length": 32,
        "minibatch_size": 128,
        "num_epochs": 4,
        "lr": 1e-4 if arguments.fine_tune else 1e-3,
        "seed": 0,
        "model": {"custom_model_config": options, "post_fcnet_hiddens": [64]},
    }
    algo = PPO(lambda: make_env(arguments.env), config, model=model)
    before = {
        name: np.copy(weight)
        for name, weight in algo.policy.model.get_weights().items()
        if "net" in name
    }
    for _ in range(arguments.iterations):
        result = algo.train()
        print(
            f"{result['timesteps_total']:7d} steps, mean return"
            f" {result['episode_return_mean']}"
        )
    after = algo.policy.model.get_weights()
    moved = sum(np.any(after[name] != weight) for name, weight in before.items())
    print(f"{moved} of the backbone's {len(before)} arrays moved")
    algo.stop()


if __name__ == "__main__":
    main()
