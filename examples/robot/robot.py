"""The network for the robot's camera. This module also registers the depot."""

from __future__ import annotations

import depot  # noqa: F401 - it registers "Depot-v0"
import torch
from torch import nn

import rlcatalog


@rlcatalog.register_model("camera_net")
class CameraNet(nn.Module):
    """A convolution for a small image, channels first; returns `[B, width]`."""

    def __init__(self, space, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(space.shape[0], 16, kernel_size=3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 5 * 5, width),
            nn.ReLU(),
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the features of a batch of images."""
        return self.layers(image)
