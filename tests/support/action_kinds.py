"""One action space of every kind that can be acted in, with the config keys that choose its
distribution.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, OneOf, Tuple

from rlcatalog.spaces import Simplex

PAIR = Box(-1, 1, (2,), np.float32)
LOW, HIGH = np.array([-2.0, 0.5], np.float32), np.array([3.0, 20.0], np.float32)
NESTED = Dict(
    {
        "go": Discrete(4, start=-2),
        "aim": Box(LOW, HIGH, dtype=np.float32),
        "more": Tuple([MultiDiscrete([2, 3]), MultiBinary(2), Simplex((3,))]),
    }
)

ONE_OF_NESTED = Dict(
    {
        "act": OneOf([NESTED, OneOf([Discrete(2), PAIR]), Discrete(3, start=-1)]),
        "gear": Discrete(2),
    }
)


def named(name):
    """Return the config that names a distribution."""
    return {"custom_action_dist": name}


#: Name → (space, config keys).
ACTIONS = {
    "discrete": (Discrete(5, start=-2), {}),
    "discrete, relaxed": (Discrete(4, start=1), named("gumbel_softmax")),
    "multi_discrete": (MultiDiscrete([3, 2, 5], start=[1, 0, -4]), {}),
    "multi_discrete of rank 2": (MultiDiscrete([[3, 2], [4, 2]], start=[[1, 0], [0, -3]]), {}),
    "slates": (MultiDiscrete([4, 4]), named("slate_multi_categorical")),
    "multi_binary": (MultiBinary(3), {}),
    "multi_binary of rank 2": (MultiBinary((2, 3)), {}),
    "box of rank 0": (Box(-2, 2, (), np.float32), {}),
    "box": (Box(LOW, HIGH, dtype=np.float32), {}),
    "box, scaled": (Box(LOW, HIGH, dtype=np.float32), {"action_bounds": "affine"}),
    "box of rank 3": (Box(-1, 1, (2, 1, 3), np.float64), {}),
    "box without bounds": (Box(-np.inf, np.inf, (2,), np.float16), {}),
    "box of integers": (Box(np.array([-3, 5]), np.array([4, 6]), dtype=np.int32), {}),
    "box of bytes": (Box(250, 255, (2, 2), np.uint8), {}),
    "box, squashed": (Box(LOW, HIGH, dtype=np.float32), named("squashed_gaussian")),
    "box, beta": (Box(LOW, HIGH, dtype=np.float32), named("beta")),
    "box of rank 2, beta": (Box(-0.1, 0.1, (2, 2), np.float64), named("beta")),
    "simplex": (Simplex((3,)), {}),
    "simplex of rank 2": (Simplex((2, 3)), {}),
    "tuple": (Tuple([Discrete(3), PAIR]), {}),
    "tuple of one": (Tuple([Discrete(3, start=2)]), {}),
    "dict": (NESTED, {}),
    "dict, one part by path": (NESTED, named({"action['aim']": "beta"})),
    "dict, a name for what it fits": (NESTED, named("squashed_gaussian")),
    "one of choices": (OneOf([Discrete(3, start=1), MultiBinary(2)]), {}),
    "one of choices and numbers": (OneOf([Box(LOW, HIGH, dtype=np.float32), Discrete(4)]), {}),
    "one of, nested": (ONE_OF_NESTED, {}),
    "one of, one part by path": (ONE_OF_NESTED, named({"action['act'][0]['aim']": "beta"})),
}

AUTOREGRESSIVE = {"use_autoregressive": True, "autoregressive_hiddens": [4]}

#: The same where the parts depend on one another, and scoring needs the model.
DEPENDENT = {
    "multi_discrete, autoregressive": (
        MultiDiscrete([[3, 2], [4, 2]], start=[[1, 0], [0, -3]]),
        AUTOREGRESSIVE,
    ),
    "one of, autoregressive": (ONE_OF_NESTED, AUTOREGRESSIVE),
    "dict, autoregressive": (NESTED, AUTOREGRESSIVE | named({"action['aim']": "beta"})),
}


class Anything(gym.Env):
    """Takes any action of a space, and pays for nothing in particular."""

    observation_space = PAIR

    def __init__(self, space):
        self.action_space = space

    def reset(self, *, seed=None, options=None):
        """Begin an episode of eight steps."""
        super().reset(seed=seed)
        self.left = 8
        return self._look(), {}

    def step(self, action):
        """Insist that the action lies in the space."""
        if isinstance(self.action_space, Box):
            action = np.asarray(action)  # of rank 0 it comes as a number
        assert self.action_space.contains(action), action
        self.left -= 1
        return self._look(), float(self.np_random.normal()), self.left == 0, False, {}

    def _look(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)
