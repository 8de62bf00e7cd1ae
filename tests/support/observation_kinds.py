"""One observation space of every kind, with the config keys it needs, and an environment that emits
its samples.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Text,
    Tuple,
)

from rlcatalog.spaces import Repeated, Simplex

PAIR = Box(-1, 1, (2,), np.float32)
SIZES = {"sequence_max_len": 60, "graph_max_nodes": 10, "graph_max_edges": 100}


class Strings(gym.Space):
    """A space of strings that is no Text, as MiniGrid's missions are."""

    def __init__(self, seed=None):
        super().__init__(dtype=str, seed=seed)

    def sample(self, mask=None, probability=None):
        """Return one of three sentences."""
        return str(self.np_random.choice(["go to the door", "pick it up", "stop!"]))

    def contains(self, x):
        """Whether it is a text."""
        return isinstance(x, str)


#: Name → (space, config keys).
KINDS = {
    "box of rank 0": (Box(-5, 5, (), np.float64), {}),
    "box of rank 1": (Box(-np.inf, np.inf, (3,), np.float64), {}),
    "box of rank 2": (Box(-1, 1, (2, 3), np.float32), {}),
    "box of rank 3, bytes": (Box(0, 255, (4, 5, 3), np.uint8), {}),
    "box of rank 4": (Box(-1, 1, (2, 2, 2, 2), np.float16), {}),
    "box of integers": (Box(-9, 9, (3,), np.int64), {}),
    "box of truth values": (Box(0, 1, (3,), np.bool_), {}),
    "discrete": (Discrete(3, start=-1), {}),
    "multi_discrete": (MultiDiscrete([3, 4]), {}),
    "multi_discrete of rank 2": (MultiDiscrete([[3, 4], [2, 5]], start=[[1, 0], [-3, 2]]), {}),
    "multi_binary": (MultiBinary(4), {}),
    "multi_binary of rank 2": (MultiBinary((2, 3)), {}),
    "text": (Text(6, min_length=0, charset="abc "), {}),
    "text as integers": (Text(6, charset="abc "), {"text_encoding": "index"}),
    "strings": (Strings(), {"text_max_length": 20}),
    "sequence": (Sequence(Dict({"at": PAIR, "kind": Discrete(3)})), SIZES),
    "stacked sequence": (Sequence(Dict({"at": PAIR, "kind": Discrete(3)}), stack=True), SIZES),
    "repeated": (Repeated(Tuple([PAIR, Repeated(Discrete(3), 2)]), 3), {}),
    "graph": (Graph(PAIR, Discrete(3)), SIZES),
    "graph without edges": (Graph(Discrete(3), None), SIZES),
    "oneof": (OneOf([PAIR, Discrete(3), Text(3)]), {}),
    "simplex": (Simplex((2, 3)), {}),
    "tuple": (Tuple([Discrete(4), PAIR, Tuple([MultiBinary(2)])]), {}),
    "dict": (
        Dict([("z", PAIR), ("a", Discrete(3)), ("image", Box(0, 255, (3, 3, 1), np.uint8))]),
        {},
    ),
    "discrete, embedded": (Discrete(3, start=-1), {"embeddings": 4}),
    "multi_discrete of rank 2, embedded": (MultiDiscrete([[3, 4], [2, 5]]), {"embeddings": 2}),
    "text, embedded": (Text(6, min_length=0, charset="abc "), {"embeddings": 4}),
    "dict, embedded": (
        Dict({"a": PAIR, "item": Discrete(5), "on": Discrete(2), "word": Text(3, charset="ab")}),
        {"embeddings": {"item": 3, "word": 2}},
    ),
    "repeated, embedded": (
        Repeated(Tuple([PAIR, Repeated(Discrete(3, start=2), 2), Text(2, charset="ab")]), 3),
        {"embeddings": {"obs[:][1][:]": 2, "obs[:][2]": 3}},
    ),
    "empty dict beside a box": (Dict({"none": Dict({}), "some": PAIR}), {}),
    "all in one": (
        Dict(
            {
                "text": Text(4),
                "list": Sequence(PAIR),
                "graph": Graph(PAIR, PAIR),
                "one": OneOf([PAIR, Discrete(2)]),
                "part": Simplex((3,)),
                "more": Repeated(Dict({"x": Text(2)}), 2),
            }
        ),
        SIZES,
    ),
}


class Emitter(gym.Env):
    """Emits samples of a space; pays 1 for the first action."""

    action_space = Discrete(2)

    def __init__(self, space):
        self.observation_space = space

    def reset(self, *, seed=None, options=None):
        """Emit the first sample."""
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.left = 10
        return self.observation_space.sample(), {}

    def step(self, action):
        """Emit the next sample; an episode has ten."""
        self.left -= 1
        return self.observation_space.sample(), float(action == 0), self.left == 0, False, {}
