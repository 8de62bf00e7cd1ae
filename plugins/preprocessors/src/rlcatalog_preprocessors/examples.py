"""Examples for the conformance kit: observations that are not among the standard ones."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlcatalog.spaces import Repeated, Simplex
from rlcatalog.testing import Example

_PAIR = spaces.Box(-1, 1, (2,), np.float32)
_ITEM = spaces.Dict({"at": _PAIR, "kind": spaces.Discrete(3)})
_TWO: spaces.Space[Any] = spaces.Discrete(2)


class Missions(gymnasium.Space[str]):
    """Sentences; a space of strings that is no Text, and says nothing of their length."""

    def __init__(self) -> None:
        super().__init__(dtype=str)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return one of three sentences."""
        return str(self.np_random.choice(["go to the door", "pick it up", "stop!"]))

    def contains(self, x: Any) -> bool:
        """Whether it is a text."""
        return isinstance(x, str)


def arrays() -> list[Example]:
    """Return Boxes, bits and simplexes of several shapes and dtypes."""
    found: list[spaces.Space[Any]] = [
        _PAIR, spaces.Box(-5, 5, (), np.float64), spaces.Box(0, 255, (4, 5, 3), np.uint8),
        spaces.Box(-9, 9, (3,), np.int64), spaces.MultiBinary(4), spaces.MultiBinary((2, 3)), Simplex((3,)),
        Simplex((2, 3)),
    ]  # fmt: skip
    return [Example(space, _TWO) for space in found]


def integers() -> list[Example]:
    """Return choices as one-hots, and as they are."""
    found: list[spaces.Space[Any]] = [spaces.Discrete(3, start=-1), spaces.MultiDiscrete(np.array([[3, 4], [2, 5]]))]
    plain = {"_disable_preprocessor_api": True}
    return [Example(space, _TWO, config) for space in found for config in ({}, plain)]


def text() -> list[Example]:
    """Return texts as one-hots and as integers."""
    text = spaces.Text(6, min_length=0, charset="abc ")
    return [Example(text, _TWO), Example(text, _TWO, {"text_encoding": "index"})]


def strings() -> list[Example]:
    """Return strings of unknown length."""
    return [Example(Missions(), _TWO, {"text_max_length": 20})]


def lists() -> list[Example]:
    """Return lists of bounded and unbounded length, stacked and nested ones as well."""
    sizes = {"sequence_max_len": 60}
    return [
        Example(spaces.Sequence(_ITEM), _TWO, sizes),
        Example(spaces.Sequence(_PAIR, stack=True), _TWO, sizes),
        Example(Repeated(spaces.Tuple([_PAIR, Repeated(spaces.Discrete(3), 2)]), 3), _TWO),
    ]


def graph() -> list[Example]:
    """Return graphs with and without values on their edges."""
    sizes = {"graph_max_nodes": 10, "graph_max_edges": 100}
    return [
        Example(spaces.Graph(_PAIR, spaces.Discrete(3)), _TWO, sizes),
        Example(spaces.Graph(_PAIR, None), _TWO, sizes),
    ]


def composites() -> list[Example]:
    """Return Dicts, Tuples and OneOfs, nested."""
    found: list[spaces.Space[Any]] = [
        _ITEM,
        spaces.Tuple([_PAIR, _ITEM, spaces.Tuple([spaces.MultiBinary(2)])]),
        spaces.Dict({"b": _PAIR, "a": spaces.OneOf([_PAIR, spaces.Discrete(4)])}),
        spaces.OneOf([_ITEM, spaces.Box(-1, 1, (2, 2), np.float32)]),
    ]
    return [Example(space, _TWO) for space in found]
