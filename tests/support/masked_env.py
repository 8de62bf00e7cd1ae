"""Environments whose observations hold an action mask, for action spaces of every maskable kind."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, OneOf, Tuple

PAIR = Box(-1, 1, (2,), np.float32)

#: Name → (action space, space of its mask in Gymnasium's format).
MASKED = {
    "discrete": (Discrete(5, start=2), MultiBinary(5)),
    "discrete, mask of floats": (Discrete(4), Box(0, 1, (4,), np.float32)),
    "multi_discrete": (
        MultiDiscrete([3, 2, 4]),
        Tuple([MultiBinary(3), MultiBinary(2), MultiBinary(4)]),
    ),
    "multi_discrete, mask in a row": (MultiDiscrete([[3, 2], [2, 3]]), MultiBinary(10)),
    "multi_binary": (MultiBinary(4), Box(0, 2, (4,), np.int8)),
    "tuple": (
        Tuple([Discrete(3), PAIR, MultiDiscrete([2, 3])]),
        Tuple([MultiBinary(3), Box(0, 1, (0,), np.int8), Tuple([MultiBinary(2), MultiBinary(3)])]),
    ),
    "dict": (
        Dict({"aim": PAIR, "go": Discrete(4), "more": Tuple([Discrete(2), MultiBinary(2)])}),
        Dict({"go": MultiBinary(4), "more": Tuple([MultiBinary(2), Box(0, 2, (2,), np.int8)])}),
    ),
    "one of": (
        OneOf([Discrete(3), PAIR, Discrete(2, start=1)]),
        Tuple([MultiBinary(3), MultiBinary(3), Box(0, 1, (0,), np.int8), MultiBinary(2)]),
    ),
    "dict with a one of": (
        Dict({"act": OneOf([MultiDiscrete([2, 3]), Discrete(2)]), "aim": PAIR}),
        Dict(
            {
                "act": Tuple(
                    [MultiBinary(2), Tuple([MultiBinary(2), MultiBinary(3)]), MultiBinary(2)]
                )
            }
        ),
    ),
}


def random_mask(action, rng):
    """A mask of an action space in Gymnasium's format that allows something everywhere."""
    if isinstance(action, Discrete):
        mask = (rng.random(action.n) < 0.4).astype(np.int8)
        mask[rng.integers(action.n)] = 1
        return mask
    if isinstance(action, MultiDiscrete):
        return _nested(action.nvec, rng)
    if isinstance(action, MultiBinary):
        return rng.integers(0, 3, action.shape).astype(np.int8)
    if isinstance(action, OneOf):
        choice = random_mask(Discrete(len(action)), rng)
        parts = [random_mask(child, rng) for child in action.spaces]
        # A part that cannot be chosen may allow nothing.
        shut = [_zeros(part) for part in parts]
        return (choice, *(b if may else a for may, a, b in zip(choice, shut, parts, strict=True)))
    if isinstance(action, Tuple):
        return tuple(random_mask(child, rng) for child in action.spaces)
    if isinstance(action, Dict):
        return {key: random_mask(child, rng) for key, child in action.spaces.items()}
    return None


def _zeros(mask):
    if isinstance(mask, tuple):
        return tuple(map(_zeros, mask))
    return None if mask is None else np.zeros_like(mask)


def _nested(nvec, rng):
    if np.ndim(nvec) == 0:
        return random_mask(Discrete(int(nvec)), rng)
    return tuple(_nested(part, rng) for part in nvec)


def allowed(space, action, mask):
    """Whether an action of the space is allowed by a mask in Gymnasium's format."""
    if mask is None:
        return True
    if isinstance(space, Discrete):
        return bool(mask[int(action) - int(space.start)])
    if isinstance(space, MultiDiscrete):
        return _allowed_entries(np.asarray(action) - space.start, mask)
    if isinstance(space, MultiBinary):
        return bool(((mask == 2) | (mask == action)).all())
    if isinstance(space, OneOf):
        place, part = action
        choice, *masks = mask
        return bool(choice[place]) and allowed(space.spaces[place], part, masks[place])
    if isinstance(space, Tuple):
        return all(
            allowed(child, a, m) for child, a, m in zip(space.spaces, action, mask, strict=True)
        )
    if isinstance(space, Dict):
        return all(
            allowed(child, action[key], mask.get(key)) for key, child in space.spaces.items()
        )
    return True


def _allowed_entries(index, mask):
    if index.ndim == 0:
        return bool(mask[int(index)])
    return all(_allowed_entries(i, m) for i, m in zip(index, mask, strict=True))


class Masked(gym.Env):
    """Shows a place and a mask; a forbidden action raises; pays for the first part of the action
    being small.
    """

    def __init__(self, name):
        self.action_space, mask_space = MASKED[name]
        self.as_row = name.endswith("in a row")
        self.observation_space = Dict({"action_mask": mask_space, "x": PAIR})

    def reset(self, *, seed=None, options=None):
        """Begin an episode of ten steps."""
        super().reset(seed=seed)
        self.left = 10
        return self._look(), {}

    def step(self, action):
        """Check the action against the mask that was shown."""
        assert self.action_space.contains(action), action
        assert allowed(self.action_space, action, self.mask), (action, self.mask)
        self.left -= 1
        return self._look(), float(self.np_random.random()), self.left == 0, False, {}

    def _look(self):
        self.mask = random_mask(self.action_space, self.np_random)
        shown = self.mask
        if self.as_row:
            shown = np.concatenate([np.concatenate(row) for row in self.mask])
        elif isinstance(self.action_space, Tuple | OneOf):
            shown = tuple(np.zeros(0, np.int8) if part is None else part for part in self.mask)
        elif isinstance(self.action_space, Dict):
            shown = {key: part for key, part in self.mask.items() if part is not None}
        elif "float" in str(getattr(self.observation_space["action_mask"], "dtype", "")):
            shown = self.mask.astype(np.float32)
        return {"action_mask": shown, "x": self.np_random.uniform(-1, 1, 2).astype(np.float32)}
