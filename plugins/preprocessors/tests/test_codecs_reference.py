"""Codecs against Gymnasium's own flattening, plans as one would type them, restoring
while tracing.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings, strategies as st
from properties import share
from slow_codec import encoded, seen, stacked

from rlcatalog import Catalog, restore_original_dimensions
from rlcatalog.plugins.discovery import scan

CATALOG = Catalog([point for point in scan() if point.name == "preprocessors"], environ={})
quick = settings(max_examples=share(80), deadline=None, suppress_health_check=list(HealthCheck))


def make(space, check="always"):
    return CATALOG.preprocessor_for(space, {}, check=check)


@st.composite
def boxes(draw):
    shape = tuple(draw(st.lists(st.integers(1, 3), max_size=4)))
    dtype = np.dtype(
        draw(st.sampled_from(["float32", "float64", "float16", "uint8", "int8", "int32", "int64"]))
    )
    if dtype.kind == "f":
        low, high = draw(
            st.sampled_from([(-1, 1), (0, 0.1), (-np.inf, np.inf), (-2.5, np.inf), (-np.inf, 7)])
        )
    else:
        low, high = draw(st.sampled_from([(0, 1), (3, 100), (0, 127)]))
    return spaces.Box(low, high, shape, dtype.type)


discretes = st.builds(
    lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 6), st.integers(-5, 5)
)
keys = st.text("abz_\u00e9 '", min_size=1, max_size=4)
nested = st.recursive(
    boxes() | discretes,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple)
        | st.lists(
            st.tuples(keys, inner), min_size=1, max_size=3, unique_by=lambda pair: pair[0]
        ).map(spaces.Dict)
    ),
    max_leaves=6,
)


def samples(space, n, seed):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


@quick
@given(nested, st.integers(0, 2**20))
def test_the_order_of_the_values_is_gymnasiums(space, seed):
    flat = spaces.utils.flatten(space, samples(space, 1, seed)[0])
    space.seed(seed)
    found = make(space).transform(space.sample())
    np.testing.assert_array_equal(found.ravel().astype(np.float32), flat.astype(np.float32))


def test_the_structure_comes_back_while_tracing():
    space = spaces.Dict(
        {"a": spaces.Box(-1, 1, (2, 3), np.float32), "b": spaces.Tuple([spaces.Discrete(3)])}
    )
    preprocessor, rows = make(space), samples(space, 4, 0)

    @tf.function(input_signature=[tf.TensorSpec([None, preprocessor.size], tf.float32)])
    def restore(flat):
        found = restore_original_dimensions(flat, preprocessor.observation_space, "tf")
        return found["a"], found["b"][0]

    a, b = restore(preprocessor.transform_batch(rows))
    expected = stacked([seen(space, row, {}) for row in rows])
    np.testing.assert_array_equal(a, expected["a"])
    np.testing.assert_array_equal(b, expected["b"][0])


@quick
@given(nested, st.integers(0, 2**20))
def test_the_plan_names_each_leaf_and_its_slice(space, seed):
    preprocessor = make(space)
    obs = samples(space, 1, seed)[0]
    flat, end = preprocessor.transform(obs).ravel(), 0
    for leaf in preprocessor.leaves():
        assert leaf.start == end
        # A path is what one would type.
        value = eval(leaf.path, {"obs": obs, "__builtins__": {}})
        sub = eval(leaf.path, {"obs": space, "__builtins__": {}})
        assert leaf.kind == ("box" if isinstance(sub, spaces.Box) else "discrete")
        np.testing.assert_array_equal(
            flat[leaf.start : leaf.stop].astype(np.float32), encoded(sub, value, {})
        )
        assert int(np.prod(leaf.shape)) == leaf.stop - leaf.start
        end = leaf.stop
    assert end == preprocessor.size


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict({"a": spaces.Dict({}), "b": spaces.Discrete(2)}),
        spaces.Tuple([spaces.Tuple([]), spaces.Discrete(2)]),
        spaces.Tuple([spaces.Discrete(2), spaces.Dict({})]),
        spaces.Tuple([spaces.Box(0, 1, (0,), np.float32), spaces.Discrete(2)]),
    ],
    ids=str,
)
def test_children_without_values_take_no_room(space):
    preprocessor = make(space)
    rows = samples(space, 3, 0)
    assert preprocessor.size == 2
    np.testing.assert_array_equal(preprocessor.transform(rows[0]), encoded(space, rows[0], {}))
    np.testing.assert_array_equal(
        preprocessor.transform_batch(rows), [encoded(space, row, {}) for row in rows]
    )
