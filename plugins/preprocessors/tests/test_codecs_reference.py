"""Codecs compared with Gymnasium's flattening, plans of leaves, and restoring while tracing."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from builders import sample_observations
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from hypothesis import given, strategies as st
from properties import max_examples
from slow_codec import encoded

from rlcatalog import Catalog, restore_original_dimensions
from rlcatalog.plugins.discovery import scan

CATALOG = Catalog([point for point in scan() if point.name == "preprocessors"], environ={})


def make_preprocessor(space):
    return CATALOG.preprocessor_for(space, {}, check="always")


# --- random spaces --------------------------------------------------------------------------------

FLOATS = ["float32", "float64", "float16"]
INTEGERS = ["uint8", "int8", "int32", "int64"]
FLOAT_BOUNDS = [(-1, 1), (0, 0.1), (-np.inf, np.inf), (-2.5, np.inf), (-np.inf, 7)]
INTEGER_BOUNDS = [(0, 1), (3, 100), (0, 127)]


@st.composite
def boxes(draw):
    shape = tuple(draw(st.lists(st.integers(1, 3), max_size=4)))
    dtype = np.dtype(draw(st.sampled_from(FLOATS + INTEGERS)))
    bounds = FLOAT_BOUNDS if dtype.kind == "f" else INTEGER_BOUNDS
    low, high = draw(st.sampled_from(bounds))
    return Box(low, high, shape, dtype.type)


@st.composite
def discretes(draw):
    n = draw(st.integers(1, 6))
    return Discrete(n, start=draw(st.integers(-5, 5)))


keys = st.text("abz_\u00e9 '", min_size=1, max_size=4)


def nest(inner):
    """Return spaces of one to three inner spaces."""
    tuples = st.lists(inner, min_size=1, max_size=3).map(Tuple)
    entries = st.tuples(keys, inner)
    unique_entries = st.lists(entries, min_size=1, max_size=3, unique_by=lambda entry: entry[0])
    return tuples | unique_entries.map(Dict)


nested_spaces = st.recursive(boxes() | discretes(), nest, max_leaves=6)
seeds = st.integers(0, 2**20)


@max_examples(80)
@given(nested_spaces, seeds)
def test_values_have_the_order_of_gymnasium(space, seed):
    [obs] = sample_observations(space, 1, seed)

    encoding = make_preprocessor(space).transform(obs)

    flat = spaces.utils.flatten(space, obs)
    np.testing.assert_array_equal(encoding.ravel().astype(np.float32), flat.astype(np.float32))


@max_examples(80)
@given(nested_spaces, seeds)
def test_leaves_have_path_kind_and_slice(space, seed):
    preprocessor = make_preprocessor(space)
    [obs] = sample_observations(space, 1, seed)
    flat = preprocessor.transform(obs).ravel().astype(np.float32)

    end_of_last_leaf = 0
    for leaf in preprocessor.leaves():
        assert leaf.start == end_of_last_leaf
        end_of_last_leaf = leaf.stop
        # A path is valid Python, such as "obs['a'][0]".
        leaf_obs = eval(leaf.path, {"obs": obs, "__builtins__": {}})
        leaf_space = eval(leaf.path, {"obs": space, "__builtins__": {}})
        assert leaf.kind == ("box" if isinstance(leaf_space, Box) else "discrete")
        expected = encoded(leaf_space, leaf_obs, {})
        np.testing.assert_array_equal(flat[leaf.start : leaf.stop], expected)

    assert end_of_last_leaf == preprocessor.size


# --- known spaces ---------------------------------------------------------------------------------


def test_structure_is_restored_while_tracing():
    space = Dict({"a": Box(-1, 1, (2,), np.float32), "b": Tuple([Discrete(3)])})
    encoded_space = make_preprocessor(space).observation_space

    @tf.function(input_signature=[tf.TensorSpec([None, 5], tf.float32)])  # any number of rows
    def restore(flat):
        restored = restore_original_dimensions(flat, encoded_space, "tf")
        return restored["a"], restored["b"][0]

    a, b = restore(tf.constant([[0.5, -1, 0, 0, 1], [0.25, 0, 1, 0, 0]]))

    np.testing.assert_array_equal(a, [[0.5, -1], [0.25, 0]])
    np.testing.assert_array_equal(b, [[0, 0, 1], [1, 0, 0]])


@pytest.mark.parametrize(
    "space",
    [
        Dict({"a": Dict({}), "b": Discrete(2)}),
        Tuple([Tuple([]), Discrete(2)]),
        Tuple([Discrete(2), Dict({})]),
        Tuple([Box(0, 1, (0,), np.float32), Discrete(2)]),
    ],
    ids=str,
)
def test_children_without_values_take_no_room(space):
    preprocessor = make_preprocessor(space)
    rows = sample_observations(space, 3)

    batch = preprocessor.transform_batch(rows)

    assert preprocessor.size == 2  # of the Discrete
    np.testing.assert_array_equal(batch, [encoded(space, row, {}) for row in rows])
    np.testing.assert_array_equal(preprocessor.transform(rows[0]), batch[0])
