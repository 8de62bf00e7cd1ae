"""A depot for the robot of the tutorial, which has a camera, a lidar and a gripper.

The robot brings boxes to two pads: red boxes to the red pad, blue boxes to the blue
one. It only sees the colour of a box until it lifts the box, so it has to remember the
colour on the way. The gripper may only close at a box, and only open on a pad; the
environment says so in a mask.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

KEEP, CLOSE, OPEN = range(3)
#: Distance from the centre of the depot to its walls, in metres.
HALF = 1.5
#: Radii in metres.
ROBOT = 0.12
BOX = 0.2
PAD = 0.35
PILLAR = 0.2
#: Places of the red and the blue pad.
PADS = np.array([[-1.1, 0.0], [1.1, 0.0]])
#: Distance that the robot drives in a step at full speed.
SPEED = 0.2
#: Distance at which the gripper reaches a box.
REACH = 0.3
MAX_STEPS = 100
PAD_COLOURS = ((60, 0, 0), (0, 0, 60))
BOX_COLOURS = ((255, 0, 0), (0, 0, 255))
#: The camera looks down at the floor around the robot: places of its 12 x 12 pixels.
_PIXELS = (np.arange(12) - 5.5) * 0.25
PIXELS = np.stack(np.meshgrid(_PIXELS, _PIXELS), axis=-1)
_ANGLES = (np.arange(8) + 0.5) * np.pi / 4
#: Directions of the eight beams of the lidar.
BEAMS = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=-1)


class Depot(gym.Env):
    """Depot in which a box at its pad pays 1, at the other pad -1, and lifting it 0.5.

    Args:
        render_mode: `"rgb_array"` or None.

    Attributes:
        robot: Position of the robot.
        box: Position of the box; the robot's own while it carries the box.
        colour: Colour of the box: 0 is red, 1 is blue.
        holds: Whether the robot carries the box.
        pillars: Positions of two pillars, which stand in the way.
        delivered: Number of boxes at their pads in the episode.
    """

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 10}
    #: `simulator` is what only the simulator knows: a robot has no sensor for it.
    observation_space = Dict(
        {
            "action_mask": MultiBinary(3),
            "camera": Box(0, 255, (12, 12, 3), np.uint8),
            "holds": Discrete(2),
            "lidar": Box(0, 5, (8,), np.float32),
            "simulator": Box(-3, 3, (8,), np.float32),
        }
    )
    action_space = Dict({"gripper": Discrete(3), "move": Box(-1, 1, (2,), np.float32)})

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode: the robot is in the middle, everything else anywhere."""
        super().reset(seed=seed)
        self.robot = np.zeros(2)
        taken = [*PADS, self.robot]
        for _ in range(2):
            taken.append(self.free_place(taken, 0.65))
        self.pillars = np.array(taken[-2:])
        self.put_next_box()
        self.delivered = 0
        self.steps = 0
        return self.observe(), {}

    def put_next_box(self) -> None:
        """Put a box somewhere, which has one of the two colours."""
        self.box = self.free_place([*PADS, *self.pillars, self.robot], 0.5)
        self.colour = int(self.np_random.integers(2))
        self.holds = False

    def free_place(self, others: list[np.ndarray], distance: float) -> np.ndarray:
        """Return a random place that is not too close to others."""
        while True:
            place = self.np_random.uniform(-HALF + 0.25, HALF - 0.25, 2)
            if np.linalg.norm(np.array(others) - place, axis=1).min() > distance:
                return place

    def step(
        self, action: dict[str, Any]
    ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Use the gripper, then drive."""
        gripper = int(action["gripper"])
        if not self.mask()[gripper]:
            raise ValueError(f"gripper: {gripper} is forbidden by {self.mask()}")
        reward = 0.0
        if gripper == CLOSE:
            self.holds = True
            reward = 0.5
        elif gripper == OPEN:
            if np.linalg.norm(self.robot - PADS[self.colour]) < PAD:
                self.delivered += 1
                reward = 1.0
            else:
                reward = -1.0
            self.put_next_box()
        goal = PADS[self.colour] if self.holds else self.box
        before = np.linalg.norm(goal - self.robot)
        self.drive(np.asarray(action["move"], np.float64))
        if self.holds:
            self.box = self.robot
        reward += 0.5 * (before - np.linalg.norm(goal - self.robot))
        self.steps += 1
        info = {"delivered": self.delivered}
        return self.observe(), float(reward), False, self.steps >= MAX_STEPS, info

    def drive(self, move: np.ndarray) -> None:
        """Move the robot; walls and pillars stop it."""
        velocity = SPEED * move / max(1.0, np.linalg.norm(move))
        place = np.clip(self.robot + velocity, -HALF + ROBOT, HALF - ROBOT)
        for pillar in self.pillars:
            offset = place - pillar
            distance = np.linalg.norm(offset)
            if distance < PILLAR + ROBOT:
                place = pillar + offset / distance * (PILLAR + ROBOT)
        self.robot = place

    def mask(self) -> np.ndarray:
        """Return which of KEEP, CLOSE and OPEN are allowed."""
        is_at_box = np.linalg.norm(self.box - self.robot) < REACH
        is_on_pad = np.linalg.norm(PADS - self.robot, axis=1).min() < PAD
        can_close = is_at_box and not self.holds
        can_open = is_on_pad and self.holds
        return np.array([True, can_close, can_open], np.int8)

    def camera(self) -> np.ndarray:
        """Return the picture of the floor, in which a carried box is hidden."""
        image = np.zeros((12, 12, 3), np.uint8)
        places = self.robot + PIXELS
        for pad, colour in zip(PADS, PAD_COLOURS, strict=True):
            image[np.square(places - pad).sum(-1) < PAD**2] = colour
        if not self.holds:
            is_box = np.square(places - self.box).sum(-1) < BOX**2
            image[is_box] = BOX_COLOURS[self.colour]
        return image

    def lidar(self) -> np.ndarray:
        """Return the distances `[8]` to the nearest wall or pillar along the beams."""
        walls = ((HALF * np.sign(BEAMS) - self.robot) / BEAMS).min(1)
        offsets = self.pillars - self.robot
        along = offsets @ BEAMS.T  # [2, 8]: how far along a beam a pillar is
        missed_by = np.square(offsets).sum(1, keepdims=True) - along**2
        depth = np.sqrt(np.maximum(PILLAR**2 - missed_by, 0))
        is_hit = (along > 0) & (missed_by < PILLAR**2)
        pillars = np.where(is_hit, along - depth, np.inf).min(0)
        return np.minimum(walls, pillars).astype(np.float32)

    def observe(self) -> dict[str, Any]:
        """Return what the sensors measure, the mask, and what the simulator knows."""
        goal = PADS[self.colour] if self.holds else self.box
        facts = [*self.robot, *(self.box - self.robot), *(goal - self.robot)]
        facts += [self.holds, 1 - self.steps / MAX_STEPS]
        return {
            "action_mask": self.mask(),
            "camera": self.camera(),
            "holds": int(self.holds),
            "lidar": self.lidar(),
            "simulator": np.array(facts, np.float32),
        }

    def render(self) -> np.ndarray:
        """Return a picture of the depot, `[height, width, 3]`."""
        from depot_picture import draw

        return draw(self)


gym.register("Depot-v0", entry_point=Depot)
