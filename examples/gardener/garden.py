"""A garden for the gardener on the home page: an action has a tool and a direction.

A robot waters dry plants, waits until they are ripe, and picks their fruit. It may
only water beside a dry plant, and only pick beside a ripe one; the environment says so
in a mask. An action is `{"tool": drive, water or pick, "drive": a velocity}`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

DRIVE, WATER, PICK = range(3)
#: Width and height of the garden.
SIZE = np.array([3.0, 1.8])
#: Distance that the robot drives in a step at full speed.
SPEED = 0.06
#: Distance at which the robot reaches a plant.
REACH = 0.2
PLANTS = 7
#: Steps from watering to ripeness.
STEPS_TO_RIPEN = 60
MAX_STEPS = 250


class Garden(gym.Env):
    """Garden with a mask in its observation; picking a fruit pays 1, watering 0.5.

    Args:
        render_mode: `"rgb_array"` or None.

    Attributes:
        robot: Position of the robot.
        plants: Position of each plant.
        growth: 0 for a dry plant, 1 for a ripe one; a watered plant is in between.
        action: The last action; None before the first one.
        last_use: The step in which each tool was used last.
        fruit: Number of fruit picked in the episode.
    """

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 25}
    #: `offset` leads to the nearest plant that needs water or has fruit; `plant` is 0
    #: without any, 1 if it is dry, 2 if it is ripe.
    observation_space = Dict(
        {
            "action_mask": MultiBinary(3),
            "offset": Box(-3, 3, (2,), np.float32),
            "plant": Discrete(3),
        }
    )
    action_space = Dict({"tool": Discrete(3), "drive": Box(-1, 1, (2,), np.float32)})

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode: dry plants at random places, which are not too close."""
        super().reset(seed=seed)
        self.robot = SIZE / 2
        plants: list[np.ndarray] = []
        while len(plants) < PLANTS:
            place = self.np_random.uniform([0.3, 0.3], SIZE - 0.3)
            if all(np.linalg.norm(place - plant) > 0.55 for plant in plants):
                plants.append(place)
        self.plants = np.array(plants)
        self.growth = np.zeros(PLANTS)
        self.action = None
        self.last_use = np.full(3, -MAX_STEPS)
        self.fruit = 0
        self.steps = 0
        return self.observe(), {}

    def step(
        self, action: dict[str, Any]
    ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Use a tool; every plant that has water grows."""
        tool = int(action["tool"])
        if not self.mask()[tool]:
            raise ValueError(
                f"tool {tool} has nothing to do; the mask is {self.mask()}"
            )
        reward = 0.0
        if tool == DRIVE:
            velocity = action["drive"] / max(1.0, np.linalg.norm(action["drive"]))
            self.robot = np.clip(self.robot + SPEED * velocity, 0, SIZE)
        elif tool == WATER:
            self.growth[self.in_reach() & self.dry()] = 1 / STEPS_TO_RIPEN
            reward = 0.5
        else:
            picked = self.in_reach() & self.ripe()
            self.growth[picked] = 0.0
            self.fruit += int(picked.sum())
            reward = 1.0
        watered = self.growth > 0
        self.growth[watered] = np.minimum(
            1.0, self.growth[watered] + 1 / STEPS_TO_RIPEN
        )
        self.action = action
        self.steps += 1
        self.last_use[tool] = self.steps
        return self.observe(), reward, False, self.steps >= MAX_STEPS, {}

    def dry(self) -> np.ndarray:
        """Return which plants need water."""
        return self.growth == 0

    def ripe(self) -> np.ndarray:
        """Return which plants have fruit."""
        return self.growth == 1

    def in_reach(self) -> np.ndarray:
        """Return which plants the robot reaches."""
        return np.linalg.norm(self.plants - self.robot, axis=1) < REACH

    def mask(self) -> np.ndarray:
        """Return which tools have something to do."""
        near = self.in_reach()
        can_water = (near & self.dry()).any()
        can_pick = (near & self.ripe()).any()
        return np.array([True, can_water, can_pick], np.int8)

    def observe(self) -> dict[str, Any]:
        """Return the mask, and where the nearest plant is that the robot can serve."""
        offset = np.zeros(2, np.float32)
        plant = 0
        is_candidate = self.dry() | self.ripe()
        if is_candidate.any():
            distances = np.linalg.norm(self.plants - self.robot, axis=1)
            nearest = np.where(is_candidate, distances, np.inf).argmin()
            offset = (self.plants[nearest] - self.robot).astype(np.float32)
            plant = 2 if self.ripe()[nearest] else 1
        return {"action_mask": self.mask(), "offset": offset, "plant": plant}

    def render(self) -> np.ndarray:
        """Return a picture of the garden, `[height, width, 3]`."""
        from garden_picture import draw

        return draw(self)


gym.register("Garden-v0", entry_point=Garden)
