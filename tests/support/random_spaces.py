"""Random Gymnasium spaces of every kind, model configs under which their observations fit, and such
observations.

The observations are drawn here rather than by `space.sample()`: they keep to the config's limits,
include empty and full lists and the bounds themselves, and lie in the space where Gymnasium's own
samples do not (a Graph whose nodes or edges are Discrete with a `start` samples them from 0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import GraphInstance
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import strategies as st
from properties import max_examples

import rlcatalog
from rlcatalog.spaces import Repeated, Simplex, SpaceInfo

#: Kinds whose batches are arrays; those of all others, Dict and Tuple aside, are tuples.
ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class Phrases(gymnasium.Space[str]):
    """Some texts, as a third party's space: its dtype is all it says of itself (MiniGrid's missions
    are such).
    """

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.texts = texts
        super().__init__(dtype=str)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return self.texts[int(self.np_random.integers(len(self.texts)))]

    def contains(self, x: Any) -> bool:
        return x in self.texts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Phrases) and self.texts == other.texts

    def __repr__(self) -> str:
        return f"Phrases({self.texts})"


@dataclass(frozen=True)
class Case:
    """A space and the options its observations need.

    Attributes:
        space: The space.
        options: Entries of the model config.
        root: Path of the space: `"obs"` or `"action"`.
    """

    space: Any
    options: dict[str, Any] = field(default_factory=dict)
    root: str = "obs"

    def make_preprocessor(self, check: str = "always") -> Any:
        """Return the catalog's preprocessor."""
        catalog = rlcatalog.default_catalog()
        values = catalog.parse_config(self.options)
        return catalog.preprocessor_for(SpaceInfo.read(self.space, self.root), values, check=check)

    def draw_observations(self, n: int, seed: int) -> list[Any]:
        rng = np.random.default_rng(seed)
        return [sample(self.space, rng, self.options, self.root) for _ in range(n)]

    make, samples = make_preprocessor, draw_observations  # shorter names

    def with_options(self, **options: Any) -> Case:
        """Return the same space with more options."""
        return replace(self, options={**self.options, **options})


bounded = max_examples


# --- spaces ---------------------------------------------------------------------------------------

_FLOATS, _INTEGERS = ["float32", "float64", "float16"], ["uint8", "int8", "int32", "int64"]
_SHAPES = [(), (1,), (2,), (3,), (0,), (2, 1), (1, 2), (2, 2), (1, 2, 2), (2, 1, 3), (1, 2, 1, 2)]
_CHARSETS = ["a", "ba", "01", "zéa ☃", "'\"[:]", frozenset("xyz")]
_WORDS = ("", "a", "cab", "b a", "bc")
seeds = st.integers(0, 2**20)
keys = st.text("abzé [']:.", min_size=1, max_size=3)


@st.composite
def boxes(draw: Any) -> Any:
    """Box: ranks 0 to 4, each dtype, bounded and unbounded, entry by entry."""
    shape, dtype = (
        draw(st.sampled_from(_SHAPES)),
        np.dtype(draw(st.sampled_from([*_FLOATS, *_INTEGERS, "bool"]))),
    )
    if dtype.kind == "b":
        return spaces.Box(0, 1, shape, np.bool_)
    if dtype.kind == "f":
        pairs = [(-1, 1), (0, 0.1), (-np.inf, np.inf), (-2.5, np.inf), (-np.inf, 7), (3, 3)]
    else:
        info = np.iinfo(dtype)
        pairs = [(0, 1), (3, 100), (0, 127), (info.min, info.max), (info.min, 5)]
    count = int(np.prod(shape))
    one = draw(st.booleans())
    entries = (
        [draw(st.sampled_from(pairs))] * count
        if one
        else [draw(st.sampled_from(pairs)) for _ in range(count)]
    )
    low, high = (np.array([entry[i] for entry in entries], dtype).reshape(shape) for i in (0, 1))
    return spaces.Box(low, high, shape, dtype.type)


@st.composite
def multi_discretes(draw: Any) -> Any:
    """MultiDiscrete: ranks 1 to 3, with a start per entry."""
    shape = draw(st.sampled_from([(1,), (2,), (3,), (2, 2), (1, 2, 2)]))
    count = int(np.prod(shape))
    nvec = draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))
    start = draw(st.lists(st.integers(-3, 3), min_size=count, max_size=count))
    return spaces.MultiDiscrete(np.reshape(nvec, shape), start=np.reshape(start, shape))


@st.composite
def texts(draw: Any) -> Any:
    """Text: from 0 or more characters, of different charsets."""
    low = draw(st.integers(0, 2))
    return spaces.Text(
        draw(st.integers(max(low, 1), 4)), min_length=low, charset=draw(st.sampled_from(_CHARSETS))
    )


discretes = st.builds(
    lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 4), st.integers(-5, 5)
)
multi_binaries = st.sampled_from([1, 3, (2,), (2, 2), (1, 2, 1)]).map(spaces.MultiBinary)
simplexes = st.builds(
    lambda shape, dtype: Simplex(shape, dtype=dtype),
    st.sampled_from([(1,), (3,), (2, 2)]),
    st.sampled_from([np.float32, np.float64]),
)
phrases = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=3, unique=True).map(
    lambda t: Phrases(tuple(t))
)
graphs = st.builds(spaces.Graph, boxes() | discretes, boxes() | discretes | st.none())
leaf_spaces = st.one_of(
    boxes(), discretes, multi_discretes(), multi_binaries, texts(), simplexes, phrases, graphs
)


def dicts(children: Any, least: int = 1) -> Any:
    """Dict spaces of `children`, whose keys are in any order."""
    pairs = st.lists(
        st.tuples(keys, children), min_size=least, max_size=3, unique_by=lambda pair: pair[0]
    )
    return pairs.map(spaces.Dict)


def tuples(children: Any, least: int = 1) -> Any:
    """Tuple spaces of `children`."""
    return st.lists(children, min_size=least, max_size=3).map(spaces.Tuple)


def repeated(children: Any) -> Any:
    """Repeated spaces of `children`."""
    return st.builds(Repeated, children, st.integers(1, 3))


def lists(children: Any) -> Any:
    """Repeated and Sequence spaces of `children`, stacked ones included."""
    return st.one_of(
        repeated(children),
        st.builds(lambda c, s: spaces.Sequence(c, stack=s), children, st.booleans()),
    )


def _nested(children: Any) -> Any:
    variants = st.lists(children, min_size=1, max_size=3).map(spaces.OneOf)
    return st.one_of(dicts(children), tuples(children), lists(children), variants)


def _to_depth(depth: int) -> Any:
    """Spaces nested up to so deep; two in three have parts."""
    if not depth:
        return leaf_spaces
    nested = _nested(_to_depth(depth - 1))
    return st.integers(0, 2).flatmap(lambda parts: nested if parts else leaf_spaces)


_depth_2 = _to_depth(2)
#: Spaces of every kind, nested up to three deep.
any_space = _to_depth(3)
#: Dict and Tuple spaces of such.
mixed_space = dicts(_depth_2) | tuples(_depth_2)


# --- options --------------------------------------------------------------------------------------


def walk(space: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the path and the space of each node."""
    yield path, space
    steps: list[tuple[str, Any]] = []
    if isinstance(space, spaces.Dict):
        steps = [(f"[{key!r}]", child) for key, child in space.spaces.items()]
    elif isinstance(space, spaces.Tuple | spaces.OneOf):
        steps = [(f"[{i}]", child) for i, child in enumerate(space.spaces)]
    elif isinstance(space, spaces.Sequence):
        steps = [("[:]", space.feature_space)]
    elif isinstance(space, Repeated):
        steps = [("[:]", space.child_space)]
    elif isinstance(space, spaces.Graph):
        steps = [(".nodes[:]", space.node_space), (".edges[:]", space.edge_space)]
    for step, child in steps:
        yield from walk(child, path + step)


_SIZED = {
    "sequence_max_len": spaces.Sequence,
    "graph_max_nodes": spaces.Graph,
    "graph_max_edges": spaces.Graph,
    "text_max_length": Phrases,
}


@st.composite
def cases(draw: Any, some_space: Any = any_space, root: str = "obs") -> Case:
    """A space with options that serve it: each size as one number, or leaf by leaf."""
    space, options = draw(some_space), {}
    for key, kind in _SIZED.items():
        # The phrases need three places; what a Text may be cut to must not be less than its
        # smallest length.
        sizes = st.integers(3, 4) if key == "text_max_length" else st.integers(1, 3)
        paths = [path for path, node in walk(space, root) if isinstance(node, kind)]
        if paths:
            options[key] = (
                {path: draw(sizes) for path in paths} if draw(st.booleans()) else draw(sizes)
            )
    options["text_encoding"] = draw(st.sampled_from(["onehot", "index"]))
    options["text_charset"] = draw(st.sampled_from([None, "abc "]))
    return Case(space, options, root)


def limit_of(options: dict[str, Any], key: str, path: str) -> int | None:
    """Return what the options say for a leaf."""
    found = options.get(key)
    return found.get(path) if isinstance(found, dict) else found


# --- observations ---------------------------------------------------------------------------------


def sample(space: Any, rng: np.random.Generator, options: dict[str, Any], path: str) -> Any:
    """Draw one observation of a space, within the options' limits."""

    def child(inner: Any, step: str) -> Any:
        return sample(inner, rng, options, path + step)

    if isinstance(space, spaces.Dict):
        return {key: child(inner, f"[{key!r}]") for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(child(inner, f"[{i}]") for i, inner in enumerate(space.spaces))
    if isinstance(space, spaces.OneOf):
        tag = rng.integers(len(space.spaces))
        return tag, child(space.spaces[tag], f"[{tag}]")
    if isinstance(space, Repeated):
        return [child(space.child_space, "[:]") for _ in range(rng.integers(space.max_len + 1))]
    if isinstance(space, spaces.Sequence):
        most = limit_of(options, "sequence_max_len", path)
        items = tuple(child(space.feature_space, "[:]") for _ in range(rng.integers(most + 1)))
        return stack(space.feature_space, items) if space.stack else items
    if isinstance(space, spaces.Graph):
        return _sample_graph(space, rng, options, path)
    if isinstance(space, spaces.Text):
        most = min(space.max_length, limit_of(options, "text_max_length", path) or space.max_length)
        count = rng.integers(space.min_length, most + 1)
        return "".join(rng.choice(list(space.character_list), count)) if count else ""
    return _sample_leaf(space, rng)


def _sample_graph(
    space: Any, rng: np.random.Generator, options: dict[str, Any], path: str
) -> GraphInstance:
    count = rng.integers(1, limit_of(options, "graph_max_nodes", path) + 1)
    nodes = stack(space.node_space, [_sample_leaf(space.node_space, rng) for _ in range(count)])
    if space.edge_space is None or rng.random() < 0.2:
        return GraphInstance(nodes, None, None)
    edges = rng.integers(limit_of(options, "graph_max_edges", path) + 1)
    links = rng.integers(0, count, (edges, 2), dtype=np.int32)
    return GraphInstance(
        nodes,
        stack(space.edge_space, [_sample_leaf(space.edge_space, rng) for _ in range(edges)]),
        links,
    )


def _sample_leaf(space: Any, rng: np.random.Generator) -> Any:
    if isinstance(space, Phrases):
        return space.texts[rng.integers(len(space.texts))]
    if isinstance(space, spaces.Discrete):
        return space.start + rng.integers(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return (space.start + rng.integers(0, space.nvec)).astype(space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return rng.integers(0, 2, space.shape).astype(space.dtype)
    if isinstance(space, Simplex):
        corner = np.eye(space.shape[-1])[rng.integers(space.shape[-1], size=space.shape[:-1])]
        drawn = (
            corner if rng.random() < 0.3 else rng.dirichlet(space.concentration, space.shape[:-1])
        )
        return drawn.astype(space.dtype)
    values = [
        _sample_number(space, low, high, rng)
        for low, high in zip(space.low.flat, space.high.flat, strict=True)
    ]
    return np.array(values, space.dtype).reshape(space.shape)


def _sample_number(space: Any, low: Any, high: Any, rng: np.random.Generator) -> Any:
    """Draw a number of a Box: often a bound, and far out where there is none."""
    if space.dtype.kind == "b":
        return bool(rng.integers(2))
    if rng.random() < 0.3:
        return rng.choice([low, high])  # infinities included
    if space.dtype.kind in "iu":
        return int(rng.integers(int(low), int(high), dtype=np.int64, endpoint=True))
    far = 6e4 if space.dtype.itemsize == 2 else 1e30
    lowest, highest = (max(float(low), -far), min(float(high), far))
    if rng.random() < 0.8:  # numbers of everyday size
        lowest, highest = max(lowest, min(highest, 0) - 9), min(highest, max(lowest, 0) + 9)
    return np.clip(space.dtype.type(rng.uniform(lowest, highest)), low, high)


# --- batches --------------------------------------------------------------------------------------


def stack(space: Any, items: Any) -> Any:
    """Return items as a stacked Sequence holds them; Gymnasium's own function takes
    no empty list.
    """
    if isinstance(space, spaces.Dict):
        return {
            key: stack(child, [item[key] for item in items]) for key, child in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(
            stack(child, [item[i] for item in items]) for i, child in enumerate(space.spaces)
        )
    if isinstance(space, ARRAYS):
        return np.array(items, space.dtype).reshape(len(items), *space.shape)
    return tuple(items)


def vector_batch(space: Any, observations: list[Any]) -> Any:
    """Return observations as a vector environment does, by Gymnasium's own functions."""
    return concatenate(space, observations, create_empty_array(space, len(observations)))
