"""What models see of encoded observations, in three tensor libraries, against a slow reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from hypothesis import given, strategies as st
from random_spaces import Case, any_space, bounded, cases, lists, mixed_space, seeds
from slow_codec import PADDING, assert_seen, seen, stacked, unpadded

from rlcatalog import restore_original_dimensions
from rlcatalog.spaces import OneOfValues, Repeated, RepeatedValues
from rlcatalog_preprocessors import GraphValues, TextValues

LIBRARIES = {
    "numpy": lambda array: array,
    "torch": torch.from_numpy,
    "tf": tf.constant,
}
FLAT = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
list_space = lists(any_space)


def is_structured(space):
    """Whether a space has parts, or is padded."""
    return not isinstance(space, FLAT) and type(space).__name__ != "Simplex"


def restored(case, rows, library="numpy"):
    preprocessor = case.make()
    flat = LIBRARIES[library](preprocessor.transform_batch(rows))
    return flat, restore_original_dimensions(flat, preprocessor.observation_space, library)


def seen_batch(case, rows):
    return stacked([seen(case.space, row, case.options) for row in rows])


def leaves(values):
    """The arrays or tensors of a structure."""
    if isinstance(values, Mapping):
        values = list(values.values())
    elif is_dataclass(values):
        values = [
            value
            for value in vars(values).values()
            if value is not None and not isinstance(value, int)
        ]
    if isinstance(values, tuple | list):
        return [leaf for value in values for leaf in leaves(value)]
    return [values]


@pytest.mark.parametrize(
    ("library", "as_integers"), [("numpy", False), ("numpy", True), ("torch", False), ("tf", False)]
)
@bounded(50)
@given(case=cases(any_space.filter(is_structured)), seed=seeds, n=st.integers(1, 3))
def test_the_structure_and_the_values_come_back(library, as_integers, case, seed, n):
    case = case.with_options(_disable_preprocessor_api=as_integers)
    rows = case.samples(n, seed)
    assert_seen(restored(case, rows, library)[1], seen_batch(case, rows))


@pytest.mark.parametrize("library", ["torch", "tf"])
@bounded(25)
@given(case=cases(mixed_space), seed=seeds)
def test_integers_come_back_as_integers_in_each_library(library, case, seed):
    case = case.with_options(_disable_preprocessor_api=True)
    rows = case.samples(2, seed)
    assert_seen(restored(case, rows, library)[1], seen_batch(case, rows))


@bounded(20)
@given(cases(any_space.filter(lambda space: not is_structured(space))), seeds)
def test_what_has_no_parts_stays_as_it_is(case, seed):
    for library in LIBRARIES:
        flat, found = restored(case, case.samples(2, seed), library)
        assert found is flat


@pytest.mark.parametrize("library", ["numpy", "torch"])
@bounded(40)
@given(case=cases(any_space.filter(is_structured)), seed=seeds)
def test_what_comes_back_are_views(library, case, seed):
    flat, found = restored(case, case.samples(2, seed), library)
    flat[...] = 7
    for leaf in leaves(found):
        array = np.asarray(leaf)
        if array.dtype == np.float32:  # integers cannot be views of floats
            assert (array == 7).all()
        else:
            assert array.dtype == np.int64


@pytest.mark.parametrize("library", LIBRARIES)
@bounded(40)
@given(case=cases(list_space), seed=seeds, n=st.integers(1, 3))
def test_the_items_come_back_without_padding(library, case, seed, n):
    rows = case.samples(n, seed)
    found = restored(case, rows, library)[1].unbatch_all()
    assert_seen(found, [unpadded(case.space, row, case.options) for row in rows])


def place(values, i):
    """The i-th of the lists at the leaves of what `unbatch_repeat_dim` returns."""
    if isinstance(values, list):
        return values[i]
    if isinstance(values, dict):
        return {key: place(value, i) for key, value in values.items()}
    if isinstance(values, tuple):
        return tuple(place(value, i) for value in values)
    return type(values)(
        **{key: value if value is None else place(value, i) for key, value in vars(values).items()}
    )


def items_of(space, obs):
    """The space of the items, and the items."""
    if isinstance(space, Repeated):
        return space.child_space, list(obs)
    return space.feature_space, list(obs)


@pytest.mark.parametrize("library", LIBRARIES)
@bounded(30)
@given(
    case=cases(list_space.filter(lambda space: not getattr(space, "stack", False))),
    seed=seeds,
    n=st.integers(1, 3),
)
def test_the_places_of_a_list_come_one_by_one(library, case, seed, n):
    rows = case.samples(n, seed)
    found = restored(case, rows, library)[1]
    split = found.unbatch_repeat_dim()
    assert all(len(leaf) == found.max_len for leaf in _lists(split))
    for i in range(found.max_len):
        expected = []
        for row in rows:
            child, items = items_of(case.space, row)
            expected.append(
                seen(child, items[i] if i < len(items) else PADDING, case.options, "obs[:]")
            )
        assert_seen(place(split, i), stacked(expected))


def _lists(values):
    if isinstance(values, list):
        return [values]
    parts = (
        values.values()
        if isinstance(values, dict)
        else values
        if isinstance(values, tuple)
        else vars(values).values()
    )
    return [found for part in parts if part is not None for found in _lists(part)]


# --- known values ---------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_list_of_lists_is_pushed_outward(library):
    space = Repeated(Repeated(spaces.Box(-9, 9, (2,), np.float32), 3), 2)
    rows = [[[np.array([1, 2])], [np.array([3, 4]), np.array([5, 6])]], [], [[]]]
    found = restored(Case(space), rows, library)[1]
    assert isinstance(found, RepeatedValues)
    assert isinstance(found.values, RepeatedValues)
    assert (found.max_len, found.values.max_len) == (2, 3)
    assert tuple(found.values.values.shape) == (3, 2, 3, 2)
    np.testing.assert_array_equal(np.asarray(found.lengths), [2, 0, 1])
    np.testing.assert_array_equal(np.asarray(found.values.lengths), [[1, 2], [0, 0], [0, 0]])
    np.testing.assert_array_equal(np.asarray(found.values.values)[0, 1], [[3, 4], [5, 6], [0, 0]])
    unbatched = found.unbatch_all()
    assert [[len(item) for item in row] for row in unbatched] == [[1, 2], [], [0]]
    np.testing.assert_array_equal(np.asarray(unbatched[0][1][1]), [5, 6])


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_text_comes_back_as_characters_and_a_mask(library):
    case = Case(spaces.Text(3, min_length=0, charset="ba"))
    found = restored(case, ["ab", ""], library)[1]
    assert isinstance(found, TextValues)
    np.testing.assert_array_equal(
        np.asarray(found.values), [[[1, 0], [0, 1], [0, 0]], np.zeros((3, 2))]
    )
    np.testing.assert_array_equal(np.asarray(found.mask), [[1, 1, 0], [0, 0, 0]])
    found = restored(case.with_options(text_encoding="index"), ["ab", ""], library)[1]
    np.testing.assert_array_equal(np.asarray(found.values), [[1, 2, 0], [0, 0, 0]])
    assert np.asarray(found.values).dtype == np.int64


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_graph_comes_back_as_padded_nodes_and_edges(library):
    space = spaces.Graph(spaces.Box(-9, 9, (1,), np.float32), spaces.Discrete(2, start=5))
    graph = spaces.GraphInstance(
        np.array([[3], [4]], np.float32), np.array([6]), np.array([[1, 0]])
    )
    found = restored(Case(space, {"graph_max_nodes": 3, "graph_max_edges": 2}), [graph], library)[1]
    assert isinstance(found, GraphValues)
    np.testing.assert_array_equal(np.asarray(found.nodes), [[[3], [4], [0]]])
    np.testing.assert_array_equal(np.asarray(found.node_mask), [[1, 1, 0]])
    np.testing.assert_array_equal(np.asarray(found.edges), [[[0, 1], [0, 0]]])
    np.testing.assert_array_equal(np.asarray(found.edge_links), [[[1, 0], [0, 0]]])
    np.testing.assert_array_equal(np.asarray(found.edge_mask), [[1, 0]])
    assert np.asarray(found.edge_links).dtype == np.int64


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_variant_comes_back_as_a_tag_and_its_branches(library):
    space = spaces.OneOf([spaces.Discrete(2), spaces.Box(-9, 9, (2, 2), np.float32)])
    rows = [(1, np.array([[1, 2], [3, 4]], np.float32)), (0, 1)]
    found = restored(Case(space), rows, library)[1]
    assert isinstance(found, OneOfValues)
    np.testing.assert_array_equal(np.asarray(found.tag), [[0, 1], [1, 0]])
    np.testing.assert_array_equal(np.asarray(found.branches[0])[1], [0, 1])
    np.testing.assert_array_equal(np.asarray(found.branches[1])[0], [[1, 2], [3, 4]])


@pytest.mark.parametrize("value", [1e30, np.inf, -np.inf, -4.0, 7.5])
@pytest.mark.parametrize("library", LIBRARIES)
def test_values_of_the_branch_that_was_taken_do_not_disturb_the_others(library, value):
    # The same numbers are read as each branch: as a length, and as a link, that is far too great,
    # or no number.
    box = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    space = Repeated(spaces.OneOf([box, Repeated(box, 2), spaces.Graph(box, box)]), 2)
    case = Case(space, {"graph_max_nodes": 1, "graph_max_edges": 1})
    rows = [[(0, np.full(3, value, np.float32)), (1, [np.full(3, value, np.float32)])]]
    found = restored(case, rows, library)[1]
    assert_seen(found, seen_batch(case, rows))
    assert_seen(found.unbatch_all(), [unpadded(space, row, case.options) for row in rows])


@bounded(20)
@given(cases(mixed_space), seeds)
def test_further_leading_axes_are_kept(case, seed):
    rows = case.samples(4, seed)
    preprocessor = case.make()
    flat = preprocessor.transform_batch(rows).reshape(2, 2, -1)
    found = restore_original_dimensions(flat, preprocessor.observation_space)
    expected = [seen(case.space, row, case.options) for row in rows]
    assert_seen(found, stacked([stacked(expected[:2]), stacked(expected[2:])]))
