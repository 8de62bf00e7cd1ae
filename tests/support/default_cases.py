"""Policies that read observations or map actions as the defaults of the model config say.

The configs here do not name `image_scale`, `image_layout`, `action_bounds`, `filter_include` and
`filter_exclude`. A policy that is built from them therefore acts by the defaults of the version
that builds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space

VECTOR = Box(-1, 1, (3,), np.float32)
SMALL_NET = {"fcnet_hiddens": [4]}
EPISODE_LENGTH = 5
#: Weights of the layers that read an observation, unless it is a Dict.
FIRST_LAYERS = ("convs.layers.0.weight", "hidden.layers.0.weight")


@dataclass(frozen=True)
class DefaultCase:
    """Spaces of an environment, and the model config of its policy.

    Attributes:
        observation_space: The environment's observation space.
        action_space: The environment's action space.
        model: The model config.
        input_size: Typical size of the numbers that the first layer reads.
        logits_bias: Biases of the layer that computes the distribution's parameters; None: random
            ones.
    """

    observation_space: Space[Any]
    action_space: Space[Any] = field(default_factory=partial(Discrete, 3))
    model: Mapping[str, Any] = field(default_factory=dict)
    input_size: float = 1.0
    logits_bias: tuple[float, ...] | None = None

    def make_env(self) -> gym.Env[Any, Any]:
        """Return a new environment with these spaces."""
        return RandomScenes(self.observation_space, self.action_space)

    def draw_observations(self, seed: int, rows: int = 2) -> Any:
        """Return a batch of observations; the same seed always gives the same batch."""
        # The numbers of a RandomState are the same in every version of NumPy, unlike a Generator's.
        return draw_rows(self.observation_space, np.random.RandomState(seed), rows)

    def draw_weights(self, model: Any, seed: int) -> None:
        """Give a model random weights, so that its outputs tell observations apart.

        With initial weights they hardly do, because those of the last layer are close to 0. Both
        frameworks name and shape weights alike, so a seed gives the same weights in both.
        """
        random = np.random.RandomState(seed)
        weights = model.get_weights()
        for name in sorted(weights):
            drawn = random.standard_normal(weights[name].shape)
            if name.endswith("bias"):
                drawn *= 0.3
            else:
                # [outputs, inputs, …]: an output is about three times as large as the inputs.
                drawn *= 3 / np.sqrt(weights[name][0].size)
            if name in FIRST_LAYERS:
                drawn /= self.input_size
            if name == "outputs.logits.bias" and self.logits_bias is not None:
                drawn = np.array(self.logits_bias)
            weights[name] = drawn.astype(np.float32)
        model.set_weights(weights)


class RandomScenes(gym.Env[Any, Any]):
    """Environment that shows random observations, in episodes of five steps.

    The reward is the mean of the action's numbers.
    """

    def __init__(self, observation_space: Space[Any], action_space: Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self.scenes = np.random.RandomState(self.np_random.integers(1000))
        self.steps = 0
        return self.draw_scene(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Show the next observation."""
        self.steps += 1
        terminated = self.steps == EPISODE_LENGTH
        return self.draw_scene(), float(np.mean(action)), terminated, False, {}

    def draw_scene(self) -> Any:
        """Return one observation."""
        batch = draw_rows(self.observation_space, self.scenes, rows=1)
        if isinstance(batch, dict):
            return {key: values[0] for key, values in batch.items()}
        return batch[0]


def draw_rows(space: Space[Any], random: np.random.RandomState, rows: int) -> Any:
    """Return a batch of observations of a Box, or of a Dict of Boxes."""
    if isinstance(space, Dict):
        return {key: draw_rows(leaf, random, rows) for key, leaf in space.items()}
    assert isinstance(space, Box)
    shape = (rows, *space.shape)
    if space.dtype != np.uint8:
        return random.uniform(-1, 1, shape).astype(np.float32)
    if space.high.max() == 1:
        # One-hot along the last axis: each square holds a piece, or none.
        pieces = random.randint(0, shape[-1] + 1, shape[:-1])
        return (pieces[..., None] == np.arange(shape[-1])).astype(np.uint8)
    # A convolution would hardly tell rows of equal brightness apart.
    brightness = random.uniform(0, 1, (rows, *[1] * len(space.shape)))
    return (random.randint(0, 256, shape) * brightness).astype(np.uint8)


def make_byte_box(*shape: int) -> Box:
    """Return the space of bytes with a shape."""
    return Box(0, 255, shape, np.uint8)


#: Name → case.
CASES = {
    "image": DefaultCase(
        make_byte_box(16, 16, 3), model={"conv_filters": [[2, [4, 4], 4], [4, [4, 4], 1]]}
    ),
    "vector": DefaultCase(make_byte_box(64), model=SMALL_NET, input_size=128),
    # Four gray frames, in the layout of Gymnasium's FrameStackObservation.
    "stack": DefaultCase(
        make_byte_box(4, 84, 84), model={"conv_filters": [[2, [2, 2], [2, 6]], [4, [2, 14], 1]]}
    ),
    # Four frames in colour.
    "stack4": DefaultCase(make_byte_box(4, 5, 5, 3), model=SMALL_NET, input_size=128),
    "board": DefaultCase(
        Box(0, 1, (8, 8, 12), np.uint8),
        model={"conv_filters": [[2, [4, 4], 4], [4, [2, 2], 1]]},
        # visionnet divides uint8 by 255, and a board holds only 0 and 1.
        input_size=1 / 255,
    ),
    "camera": DefaultCase(
        Dict(image=make_byte_box(8, 8, 3), pose=VECTOR),
        model={
            "observation_filter": "MeanStdFilter",
            "conv_filters": [[2, [4, 4], 4], [4, [2, 2], 1]],
            "post_fcnet_hiddens": [4],
            **SMALL_NET,
        },
    ),
    "thermostat": DefaultCase(
        VECTOR,
        Box(15, 30, (3,), np.float32),
        model=SMALL_NET,
        # Means near the lower bound, in the middle and near the upper bound, then the logarithms
        # of the standard deviations.
        logits_bias=(15, 22, 30, 0, 0, 0),
    ),
    "lstm": DefaultCase(
        VECTOR,
        model={
            "use_lstm": True,
            "lstm_cell_size": 4,
            "lstm_use_prev_action": True,
            "lstm_use_prev_reward": True,
            **SMALL_NET,
        },
    ),
}
