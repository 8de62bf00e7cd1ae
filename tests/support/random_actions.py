"""Random action spaces, nested up to six leaves, and their samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st

from rlcatalog.spaces import Simplex, parts_of


@st.composite
def boxes(draw: Any) -> Any:
    """Box: ranks 0 to 3, integers and floats, some of them without a lower bound."""
    shape = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    if draw(st.booleans()):
        dtype = np.dtype(draw(st.sampled_from(["int8", "int32", "int64", "uint8", "uint16"])))
        low = rng.integers(0 if dtype.kind == "u" else -20, 20, shape).astype(dtype)
        return spaces.Box(low, low + rng.integers(0, 6, shape).astype(dtype), dtype=dtype.type)
    dtype = np.dtype(draw(st.sampled_from(["float16", "float32", "float64"])))
    low = rng.uniform(-50, 50, shape).astype(dtype)
    high = low + rng.uniform(0.5, 30, shape).astype(dtype)
    if draw(st.booleans()):
        low = np.where(rng.random(shape) < 0.5, -np.inf, low).astype(dtype)
    return spaces.Box(low, high, shape, dtype.type)


@st.composite
def multi_discretes(draw: Any) -> Any:
    """MultiDiscrete: ranks 1 to 3, with a start per entry."""
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    return spaces.MultiDiscrete(rng.integers(1, 5, shape), start=rng.integers(-9, 9, shape))


leaves = st.one_of(
    st.builds(
        lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 6), st.integers(-5, 5)
    ),
    multi_discretes(),
    st.lists(st.integers(1, 3), min_size=1, max_size=2).map(spaces.MultiBinary),
    boxes(),
    st.lists(st.integers(1, 3), min_size=1, max_size=2).map(lambda shape: Simplex((*shape, 3))),
)
keys = st.sampled_from(["z", "a", "it's", "m"])
nested = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
        st.lists(st.tuples(keys, inner), min_size=1, max_size=3, unique_by=lambda p: p[0]).map(
            spaces.Dict
        ),
    ),
    max_leaves=6,
)


def flat(sample: Any) -> Any:
    """Return a sample, or the parts of one, as `[B, width]`."""
    parts = parts_of(sample)
    rows = [np.asarray(part) for part in ([sample] if parts is None else parts)]
    return np.concatenate([row.reshape(len(row), -1).astype(np.float64) for row in rows], axis=1)


def contains(space: Any, action: Any) -> bool:
    """Return whether an action is in a space; a Box may get it with another dtype."""
    if isinstance(space, spaces.Tuple):
        return len(action) == len(space.spaces) and all(map(contains, space.spaces, action))
    if isinstance(space, spaces.Dict):
        return all(contains(child, action[key]) for key, child in space.spaces.items())
    return bool(space.contains(np.asarray(action) if isinstance(space, spaces.Box) else action))
