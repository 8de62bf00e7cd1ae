"""Environments of policies in the zoo that no other package has."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

Step = tuple[Any, float, bool, bool, dict[str, Any]]
Reset = tuple[Any, dict[str, Any]]


class Workshop(gym.Env[Any, Any]):
    """An action chooses a tool and a machine; at each step, most of both are in use.

    The order names the right tool and machine, and the masks say what is free. The right choice
    pays 1. A choice that is in use is not possible.
    """

    TOOLS = 16
    MACHINES = 16
    #: Number of tools and of machines that are not in use.
    FREE = 4
    #: Length of an episode.
    STEPS = 50
    observation_space = Dict(
        {
            "order": MultiDiscrete([MACHINES, TOOLS]),
            "action_mask": Dict({"machine": MultiBinary(MACHINES), "tool": MultiBinary(TOOLS)}),
        }
    )
    action_space = Dict({"machine": Discrete(MACHINES), "tool": Discrete(TOOLS)})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.steps = 0
        return self.next_order(), {}

    def step(self, action: Any) -> Step:
        chosen = np.array([action["machine"], action["tool"]])
        masks = self.masks["machine"], self.masks["tool"]
        if not all(mask[choice] for mask, choice in zip(masks, chosen, strict=True)):
            raise ValueError(f"{action} is in use; free: {self.masks}")
        is_right = bool((chosen == self.order).all())
        self.steps += 1
        return self.next_order(), float(is_right), False, self.steps == self.STEPS, {}

    def next_order(self) -> dict[str, Any]:
        """Draw an order and what is free, and return both as an observation."""
        self.order = self.np_random.integers([self.MACHINES, self.TOOLS])
        self.masks = {
            "machine": self.mask(self.MACHINES, self.order[0]),
            "tool": self.mask(self.TOOLS, self.order[1]),
        }
        return {"order": self.order, "action_mask": self.masks}

    def mask(self, size: int, right: int) -> np.ndarray[Any, Any]:
        """Return which of `size` choices are free; the right one is."""
        others = np.delete(np.arange(size), right)
        mask = np.zeros(size, np.int8)
        mask[self.np_random.choice(others, self.FREE - 1, replace=False)] = 1
        mask[right] = 1
        return mask


class Weeds(gym.Env[Any, Any]):
    """A robot drives to a weed and pulls, cuts or digs it out: an action is a tool and a velocity.

    A weed needs one of three tools, which works within reach and pays 1; then the next weed grows.
    While the robot uses a tool, it does not move.
    """

    TOOLS = 3
    #: Distance that the robot drives in a step at full speed.
    SPEED = 0.15
    #: Distance at which a tool reaches the weed.
    REACH = 0.2
    #: Length of an episode.
    STEPS = 60
    #: The offset to the weed, and the tool that it needs.
    observation_space = Dict({"offset": Box(-2, 2, (2,), np.float32), "weed": Discrete(TOOLS)})
    #: Tool 0 is none: the robot drives.
    action_space = Tuple([Discrete(1 + TOOLS), Box(-1, 1, (2,), np.float32)])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.robot = np.zeros(2)
        self.steps = 0
        self.grow()
        return self.observe(), {}

    def step(self, action: Any) -> Step:
        tool, velocity = action
        is_out = False
        if tool == 0:
            self.robot = np.clip(self.robot + self.SPEED * np.clip(velocity, -1, 1), -1, 1)
        else:
            is_near = np.linalg.norm(self.weed - self.robot) < self.REACH
            is_out = bool(is_near and tool - 1 == self.kind)
        if is_out:
            self.grow()
        self.steps += 1
        return self.observe(), float(is_out), False, self.steps == self.STEPS, {}

    def grow(self) -> None:
        """Place the next weed."""
        self.weed = self.np_random.uniform(-1, 1, 2)
        self.kind = int(self.np_random.integers(self.TOOLS))

    def observe(self) -> dict[str, Any]:
        return {"offset": (self.weed - self.robot).astype(np.float32), "weed": self.kind}


gym.register("Workshop-v0", f"{__name__}:Workshop")
gym.register("Weeds-v0", f"{__name__}:Weeds")
