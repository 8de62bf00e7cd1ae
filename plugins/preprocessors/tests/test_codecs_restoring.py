"""Restored observations: what models see, in three tensor libraries, compared with a reference.

`slow_codec` is the reference: it reads the Gymnasium space itself, one value at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from gymnasium.spaces import Box, Discrete, Graph, GraphInstance, OneOf, Text
from hypothesis import given, strategies as st
from properties import max_examples
from random_spaces import Case, any_space, cases, lists, mixed_space, seeds
from slow_codec import PADDING, assert_seen, seen, stacked, unpadded

from rlcatalog import restore_original_dimensions
from rlcatalog.spaces import OneOfValues, Repeated, RepeatedValues, Simplex
from rlcatalog_preprocessors import GraphValues, TextValues

each_library = pytest.mark.parametrize("library", ["numpy", "torch", "tf"])


def make_tensor(array, library):
    if library == "torch":
        return torch.from_numpy(array)
    if library == "tf":
        return tf.constant(array)
    return array


def restore(case, rows, library="numpy"):
    """Encode rows, and restore them from a tensor of the library."""
    preprocessor = case.make_preprocessor()
    encoded = make_tensor(preprocessor.transform_batch(rows), library)
    return restore_original_dimensions(encoded, preprocessor.observation_space, library)


def expect_batch(case, rows):
    """Return what a model has to see, by the reference."""
    return stacked([seen(case.space, row, case.options) for row in rows])


# --- random spaces --------------------------------------------------------------------------------


def is_structured(space):
    """Return whether a space has parts, or is padded."""
    is_array = isinstance(
        space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | Simplex
    )
    return not is_array


structured_cases = cases(any_space.filter(is_structured))
list_space = lists(any_space)


@pytest.mark.parametrize("as_integers", [False, True])
@each_library
@max_examples(30)
@given(case=structured_cases, seed=seeds, n=st.integers(1, 3))
def test_restored_batch_has_the_structure_and_the_values(library, as_integers, case, seed, n):
    case = case.with_options(_disable_preprocessor_api=as_integers)
    rows = case.draw_observations(n, seed)

    assert_seen(restore(case, rows, library), expect_batch(case, rows))


@each_library
@max_examples(20)
@given(case=cases(any_space.filter(lambda space: not is_structured(space))), seed=seeds)
def test_space_without_parts_is_not_restored(library, case, seed):
    preprocessor = case.make_preprocessor()
    encoded = make_tensor(preprocessor.transform_batch(case.draw_observations(2, seed)), library)

    restored = restore_original_dimensions(encoded, preprocessor.observation_space, library)

    assert restored is encoded


def collect_arrays(values):
    """Return the arrays or tensors of a structure."""
    if isinstance(values, Mapping):
        parts = values.values()
    elif is_dataclass(values):
        parts = [part for part in vars(values).values() if not isinstance(part, int | None)]
    elif isinstance(values, tuple | list):
        parts = values
    else:
        return [values]
    arrays = []
    for part in parts:
        arrays += collect_arrays(part)
    return arrays


@pytest.mark.parametrize("library", ["numpy", "torch"])
@max_examples(40)
@given(case=structured_cases, seed=seeds)
def test_restored_floats_are_views(library, case, seed):
    preprocessor = case.make_preprocessor()
    rows = case.draw_observations(2, seed)
    encoded = make_tensor(preprocessor.transform_batch(rows), library)
    restored = restore_original_dimensions(encoded, preprocessor.observation_space, library)

    encoded[...] = 7

    for part in collect_arrays(restored):
        array = np.asarray(part)
        if array.dtype == np.float32:
            assert (array == 7).all()
        else:
            assert array.dtype == np.int64  # integers cannot be views of floats


@max_examples(20)
@given(cases(mixed_space), seeds)
def test_further_leading_axes_are_kept(case, seed):
    rows = case.draw_observations(4, seed)
    preprocessor = case.make_preprocessor()
    encoded = preprocessor.transform_batch(rows).reshape(2, 2, -1)

    restored = restore_original_dimensions(encoded, preprocessor.observation_space)

    assert_seen(restored, stacked([expect_batch(case, rows[:2]), expect_batch(case, rows[2:])]))


# --- lists in random spaces -----------------------------------------------------------------------


@each_library
@max_examples(40)
@given(case=cases(list_space), seed=seeds, n=st.integers(1, 3))
def test_unbatch_all_returns_items_without_padding(library, case, seed, n):
    rows = case.draw_observations(n, seed)

    items = restore(case, rows, library).unbatch_all()

    assert_seen(items, [unpadded(case.space, row, case.options) for row in rows])


def collect_lists(values):
    """Return the lists at the leaves of what `unbatch_repeat_dim` returns."""
    if isinstance(values, list):
        return [values]
    if isinstance(values, tuple):
        parts = values
    elif isinstance(values, dict):
        parts = values.values()
    else:
        parts = [part for part in vars(values).values() if part is not None]
    leaves = []
    for part in parts:
        leaves += collect_lists(part)
    return leaves


def take_place(values, index):
    """Return the structure with this element of each of the lists at its leaves."""
    if isinstance(values, list):
        return values[index]
    if isinstance(values, dict):
        return {key: take_place(value, index) for key, value in values.items()}
    if isinstance(values, tuple):
        return tuple(take_place(value, index) for value in values)
    fields = dict(vars(values))
    for name, value in fields.items():
        if value is not None:
            fields[name] = take_place(value, index)
    return type(values)(**fields)


def expect_item(case, row, index):
    """Return what a model has to see of an item of a list, or of its padding."""
    if isinstance(case.space, Repeated):
        space = case.space.child_space
    else:
        space = case.space.feature_space
    item = row[index] if index < len(row) else PADDING
    return seen(space, item, case.options, "obs[:]")


@each_library
@max_examples(30)
@given(
    case=cases(list_space.filter(lambda space: not getattr(space, "stack", False))),
    seed=seeds,
    n=st.integers(1, 3),
)
def test_unbatch_repeat_dim_returns_the_places_one_by_one(library, case, seed, n):
    rows = case.draw_observations(n, seed)
    restored = restore(case, rows, library)

    places = restored.unbatch_repeat_dim()

    assert {len(values) for values in collect_lists(places)} == {restored.max_len}
    for index in range(restored.max_len):
        expected = stacked([expect_item(case, row, index) for row in rows])
        assert_seen(take_place(places, index), expected)


# --- known values ---------------------------------------------------------------------------------


def assert_values(tensor, expected):
    np.testing.assert_array_equal(np.asarray(tensor), expected)


@pytest.fixture
def list_of_lists():
    """A space of up to 2 lists of up to 3 items of 2 numbers, and three rows."""
    space = Repeated(Repeated(Box(-9, 9, (2,), np.float32), 3), 2)
    rows = [[[np.array([1, 2])], [np.array([3, 4]), np.array([5, 6])]], [], [[]]]
    return space, rows


@each_library
def test_restored_list_of_lists_is_padded(library, list_of_lists):
    space, rows = list_of_lists  # [[[1, 2]], [[3, 4], [5, 6]]], then [], then [[]]

    outer = restore(Case(space), rows, library)

    assert isinstance(outer, RepeatedValues)
    assert outer.max_len == 2
    assert_values(outer.lengths, [2, 0, 1])
    inner = outer.values
    assert isinstance(inner, RepeatedValues)
    assert inner.max_len == 3
    assert_values(inner.lengths, [[1, 2], [0, 0], [0, 0]])
    assert tuple(inner.values.shape) == (3, 2, 3, 2)  # rows, lists, items, numbers
    assert_values(inner.values[0, 1], [[3, 4], [5, 6], [0, 0]])


@each_library
def test_unbatched_list_of_lists_has_no_padding(library, list_of_lists):
    space, rows = list_of_lists

    items = restore(Case(space), rows, library).unbatch_all()

    lengths = [[len(inner) for inner in row] for row in items]
    assert lengths == [[1, 2], [], [0]]
    assert_values(items[0][1][1], [5, 6])


@each_library
def test_restored_text_has_characters_and_a_mask(library):
    case = Case(Text(3, min_length=0, charset="ba"))

    restored = restore(case, ["ab", ""], library)

    assert isinstance(restored, TextValues)
    # "a" is the first character in alphabetical order.
    assert_values(restored.values[0], [[1, 0], [0, 1], [0, 0]])
    assert_values(restored.values[1], np.zeros((3, 2)))
    assert_values(restored.mask, [[1, 1, 0], [0, 0, 0]])


@each_library
def test_restored_text_may_have_indices(library):
    case = Case(Text(3, min_length=0, charset="ba"), {"text_encoding": "index"})

    restored = restore(case, ["ab", ""], library)

    assert_values(restored.values, [[1, 2, 0], [0, 0, 0]])  # 0 is padding
    assert np.asarray(restored.values).dtype == np.int64


@each_library
def test_restored_graph_is_padded(library):
    space = Graph(Box(-9, 9, (1,), np.float32), Discrete(2, start=5))
    nodes = np.array([[3], [4]], np.float32)
    graph = GraphInstance(nodes, edges=np.array([6]), edge_links=np.array([[1, 0]]))
    case = Case(space, {"graph_max_nodes": 3, "graph_max_edges": 2})

    restored = restore(case, [graph], library)

    assert isinstance(restored, GraphValues)
    assert_values(restored.nodes, [[[3], [4], [0]]])
    assert_values(restored.node_mask, [[1, 1, 0]])
    assert_values(restored.edges, [[[0, 1], [0, 0]]])  # 6 is the second of 5 and 6
    assert_values(restored.edge_links, [[[1, 0], [0, 0]]])
    assert_values(restored.edge_mask, [[1, 0]])
    assert np.asarray(restored.edge_links).dtype == np.int64


@each_library
def test_restored_one_of_has_a_tag_and_all_branches(library):
    space = OneOf([Discrete(2), Box(-9, 9, (2, 2), np.float32)])
    row_of_box = (1, np.array([[1, 2], [3, 4]], np.float32))
    row_of_discrete = (0, 1)

    restored = restore(Case(space), [row_of_box, row_of_discrete], library)

    assert isinstance(restored, OneOfValues)
    assert_values(restored.tag, [[0, 1], [1, 0]])
    discrete, box = restored.branches
    assert_values(discrete[1], [0, 1])
    assert_values(box[0], [[1, 2], [3, 4]])


@pytest.mark.parametrize("value", [1e30, np.inf, -np.inf, -4.0, 7.5])
@each_library
def test_values_of_one_branch_do_not_disturb_the_others(library, value):
    # All branches are read from the same numbers: those of the Box are neither a valid length of a
    # list nor valid links of a graph.
    box = Box(-np.inf, np.inf, (3,), np.float32)
    space = OneOf([box, Repeated(box, 2), Graph(box, box)])
    case = Case(space, {"graph_max_nodes": 1, "graph_max_edges": 1})
    numbers = np.full(3, value, np.float32)
    row_of_box = (0, numbers)
    row_of_list = (1, [numbers])

    restored = restore(case, [row_of_box, row_of_list], library)

    assert_seen(restored, expect_batch(case, [row_of_box, row_of_list]))
