"""Examples for the conformance kit: observations that its standard examples do not include."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlcatalog.spaces import Repeated, Simplex
from rlcatalog_testing import Example

_PAIR = spaces.Box(-1, 1, (2,), np.float32)
_ITEM = spaces.Dict({"at": _PAIR, "kind": spaces.Discrete(3)})
_TWO: spaces.Space[Any] = spaces.Discrete(2)


class Missions(gymnasium.Space[str]):
    """Space of sentences: strings without a maximum length, and not a Text space."""

    def __init__(self) -> None:
        super().__init__(dtype=str)

    def sample(self, mask: None = None, probability: None = None) -> str:
        """Sample one of three sentences."""
        return str(self.np_random.choice(["go to the door", "pick it up", "stop!"]))

    def contains(self, x: object) -> bool:
        """Return whether the value is a string."""
        return isinstance(x, str)


def of_none() -> list[Example]:
    """Return examples with Boxes of several shapes and dtypes."""
    boxes: list[spaces.Space[Any]] = [
        _PAIR,
        spaces.Box(-5, 5, (), np.float64),
        spaces.Box(0, 255, (4, 5, 3), np.uint8),
        spaces.Box(-9, 9, (3,), np.int64),
    ]
    return [Example(space, _TWO) for space in boxes]


def of_multi_binary() -> list[Example]:
    """Return bits."""
    return [Example(spaces.MultiBinary(4), _TWO), Example(spaces.MultiBinary((2, 3)), _TWO)]


def of_simplex() -> list[Example]:
    """Return examples with a single simplex and with two at once."""
    return [Example(Simplex((3,)), _TWO), Example(Simplex((2, 3)), _TWO)]


def of_onehot() -> list[Example]:
    """Return examples with a choice that does not start at 0, and with several choices."""
    several = spaces.MultiDiscrete(np.array([[3, 4], [2, 5]]))
    return [Example(spaces.Discrete(3, start=-1), _TWO), Example(several, _TWO)]


def of_index() -> list[Example]:
    """Return examples with the same spaces, and with the keys that leave their values unencoded."""
    examples = []
    for example in of_onehot():
        examples.append(Example(example.obs, _TWO, {"_disable_preprocessor_api": True}))
        examples.append(Example(example.obs, _TWO, {"embeddings": 3}))
    return examples


def of_text() -> list[Example]:
    """Return examples with texts as one-hot vectors, as integers and as integers to embed."""
    text = spaces.Text(6, min_length=0, charset="abc ")
    configs: list[dict[str, Any]] = [{}, {"text_encoding": "index"}, {"embeddings": 3}]
    return [Example(text, _TWO, config) for config in configs]


def of_strings() -> list[Example]:
    """Return examples with strings of unknown length."""
    return [Example(Missions(), _TWO, {"text_max_length": 20})]


def of_repeated() -> list[Example]:
    """Return lists of lists."""
    return [Example(Repeated(spaces.Tuple([_PAIR, Repeated(spaces.Discrete(3), 2)]), 3), _TWO)]


def of_sequence() -> list[Example]:
    """Return examples with lists of unknown length, one of which is stacked."""
    sizes = {"sequence_max_len": 60}
    return [
        Example(spaces.Sequence(_ITEM), _TWO, sizes),
        Example(spaces.Sequence(_PAIR, stack=True), _TWO, sizes),
    ]


def of_graph() -> list[Example]:
    """Return examples with graphs, with and without values on their edges."""
    sizes = {"graph_max_nodes": 10, "graph_max_edges": 100}
    edges: list[Any] = [spaces.Discrete(3), None]
    return [Example(spaces.Graph(_PAIR, edge), _TWO, sizes) for edge in edges]


def of_oneof() -> list[Example]:
    """Return an example with a choice between a Dict and a Box."""
    return [Example(spaces.OneOf([_ITEM, spaces.Box(-1, 1, (2, 2), np.float32)]), _TWO)]


def of_dict() -> list[Example]:
    """Return examples with a plain Dict and with a Dict that contains a OneOf."""
    nested = spaces.Dict({"b": _PAIR, "a": spaces.OneOf([_PAIR, spaces.Discrete(4)])})
    return [Example(_ITEM, _TWO), Example(nested, _TWO)]


def of_tuple() -> list[Example]:
    """Return an example with a Tuple that contains a Box, a Dict and a Tuple."""
    return [Example(spaces.Tuple([_PAIR, _ITEM, spaces.Tuple([spaces.MultiBinary(2)])]), _TWO)]
