"""Random observations with one wrong value: errors that name its place, and no effect elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pytest
import random_spaces
from gymnasium import spaces
from hypothesis import assume, given, strategies as st
from properties import max_examples
from random_spaces import (
    ARRAYS,
    Phrases,
    cases,
    limit_of,
    sample,
    seeds,
    stack,
    vector_batch,
)
from slow_codec import encoded, size

from rlcatalog.errors import ObservationError, OutOfBoundsError
from rlcatalog.spaces import Repeated, Simplex

# --- places in an observation ---------------------------------------------------------------------


class Place(NamedTuple):
    """A place in an observation.

    Attributes:
        space: Its space.
        value: What stands there.
        path: Its path in messages.
        name: Its path in the options.
        put: Returns the whole observation with another value in this place.
        in_array: Whether it is part of an array, which holds one dtype and shape only.
        start: Where the slice of the flat vector begins that it may change.
        stop: Where that ends.
    """

    space: Any
    value: Any
    path: str
    name: str
    put: Callable[[Any], Any]
    in_array: bool
    start: int
    stop: int


def find_places(case, obs, in_array=False):
    """Return all places of an observation.

    `in_array` says that the observation will be a row of a vector environment's batch.
    """

    def replace_all(new):
        return new

    stop = size(case.space, case.options)
    root = Place(case.space, obs, "obs", "obs", replace_all, in_array, start=0, stop=stop)
    return list(_walk(case.options, root, has_slices=True))


def _walk(options, place, *, has_slices):
    """Yield a place and all places in it.

    `has_slices` says that each of its parts has a slice of the vector of its own. Parts without one
    have that of the place.
    """
    yield place
    space = place.space
    if isinstance(space, spaces.Dict | spaces.Tuple):
        yield from _walk_parts(options, place, has_slices)
    elif isinstance(space, spaces.OneOf):
        tag, value = place.value
        part = place._replace(
            space=space.spaces[int(tag)],
            value=value,
            path=f"{place.path}[{int(tag)}]",
            name=f"{place.name}[{int(tag)}]",
            put=lambda new: place.put((tag, new)),
            in_array=False,
        )
        yield from _walk(options, part, has_slices=False)
    else:
        for item in _find_items(place):
            yield from _walk(options, item, has_slices=False)


def _walk_parts(options, place, has_slices):
    """Yield the places in a Dict or Tuple."""
    children = place.space.spaces
    items = children.items() if isinstance(place.space, spaces.Dict) else enumerate(children)
    start = place.start
    for key, child in items:
        part = place._replace(
            space=child,
            value=place.value[key],
            path=f"{place.path}[{key!r}]",
            name=f"{place.name}[{key!r}]",
            put=_replace_part(place, key),
        )
        if has_slices:
            stop = start + size(child, options, part.name)
            part = part._replace(start=start, stop=stop)
            start = stop
        yield from _walk(options, part, has_slices=has_slices)


def _find_items(place):
    """Yield the places of the items of a list, or of the nodes and edges of a graph."""
    space = place.space
    if isinstance(space, Repeated):
        yield from _find_list_items(place, space.child_space)
    elif isinstance(space, spaces.Sequence) and space.stack:
        items = unstack(space.feature_space, place.value)
        for i, item in enumerate(items):
            put = _replace_stacked_item(place, items, i)
            yield _make_item(place, space.feature_space, item, f"[{i}]", "[:]", put, in_array=True)
    elif isinstance(space, spaces.Sequence):
        yield from _find_list_items(place, space.feature_space)
    elif isinstance(space, spaces.Graph):
        yield from _find_rows(place, "nodes", space.node_space)
        yield from _find_rows(place, "edges", space.edge_space)


def _find_list_items(place, item_space):
    for i, item in enumerate(place.value):
        put = _replace_part(place, i)
        yield _make_item(place, item_space, item, f"[{i}]", "[:]", put, in_array=False)


def _find_rows(place, part, row_space):
    """Yield the places of the nodes or edges of a graph, which may have no edges."""
    rows = getattr(place.value, part)
    if rows is None:
        return
    for i, row in enumerate(rows):
        put = _replace_row(place, part, i)
        yield _make_item(place, row_space, row, f".{part}[{i}]", f".{part}[:]", put, in_array=True)


def _make_item(place, space, value, path, name, put, *, in_array):
    return place._replace(
        space=space,
        value=value,
        path=place.path + path,
        name=place.name + name,
        put=put,
        in_array=in_array,
    )


def _replace_part(place, key):
    def put(new):
        if isinstance(place.value, dict):
            return place.put({**place.value, key: new})
        parts = list(place.value)
        parts[key] = new
        return place.put(type(place.value)(parts))

    return put


def _replace_stacked_item(place, items, i):
    def put(new):
        return place.put(stack(place.space.feature_space, [*items[:i], new, *items[i + 1 :]]))

    return put


def _replace_row(place, part, i):
    def put(new):
        rows = getattr(place.value, part).copy()
        rows[i] = new
        return place.put(place.value._replace(**{part: rows}))

    return put


def unstack(space, batch):
    """Return the items of a stacked Sequence."""
    if isinstance(space, spaces.Dict):
        columns = {key: unstack(child, batch[key]) for key, child in space.spaces.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if isinstance(space, spaces.Tuple):
        columns = [unstack(child, batch[i]) for i, child in enumerate(space.spaces)]
        return list(zip(*columns, strict=True))
    return list(batch)


# --- wrong values ---------------------------------------------------------------------------------

RAGGED = [[1], [2, 3]]
#: Labels of wrong values that are numbers outside the space.
NUMBERS = ("below", "above", "negative", "NaN", "no sum of 1")


def make_wrong_values(place, options, rng):
    """Return wrong values for a place, each with a label."""
    space = place.space
    if isinstance(space, (*ARRAYS, Simplex)):
        wrong = _wrong_numbers(space, place.value)
        # A batch of Simplex values is a tuple of arrays, of which each may differ.
        if not place.in_array or isinstance(space, Simplex):
            wrong += _wrong_arrays(place.value)
        return wrong
    if isinstance(space, spaces.Dict):
        return [] if place.in_array else _wrong_dicts(place.value)
    if isinstance(space, spaces.Tuple):
        return [] if place.in_array else _wrong_tuples(place.value)
    if isinstance(space, Repeated | spaces.Sequence):
        return _wrong_lists(place, options, rng)
    if isinstance(space, spaces.OneOf):
        return _wrong_variants(space, place.value)
    if isinstance(space, spaces.Graph):
        return _wrong_graphs(place, options)
    return _wrong_texts(place, options)


def _with(array, index, number):
    """Return a copy of an array with another number at a flat index."""
    array = np.array(array)
    array.flat[index] = number
    return array if array.shape else array[()]


def _wrong_numbers(space, value):
    """Return values of the right shape and dtype that lie outside the space."""
    array = np.asarray(value)
    if not array.size:
        return []
    last = array.size - 1
    if isinstance(space, spaces.Discrete):
        lowest = value - (value - space.start)  # of the dtype of the value
        return [("below", lowest - 1), ("above", lowest + space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        lowest = int(space.start.flat[last])
        n = int(space.nvec.flat[last])
        return [
            ("below", _with(array, last, lowest - 1)),
            ("above", _with(array, last, lowest + n)),
        ]
    if isinstance(space, spaces.MultiBinary):
        return [("below", _with(array, last, -1)), ("above", _with(array, last, 2))]
    if isinstance(space, Simplex):
        return [
            ("no sum of 1", array * 0.5),
            ("negative", -array),
            ("NaN", _with(array, 0, np.nan)),
        ]
    return _wrong_box_numbers(array, space.low.flat[last], space.high.flat[last])


def _wrong_box_numbers(array, low, high):
    """Return arrays whose last number, which has these bounds, is wrong."""
    last = array.size - 1
    wrong = []
    if array.dtype.kind == "b":
        return wrong
    if array.dtype.kind == "f":
        wrong.append(("NaN", _with(array, last, np.nan)))
        # Beyond a bound by 1, which is more than rounding explains.
        if low > -np.inf:
            wrong.append(("below", _with(array, last, low - 1)))
        if high < np.inf:
            wrong.append(("above", _with(array, last, high + 1)))
        return wrong
    limits = np.iinfo(array.dtype)
    if low > limits.min:
        wrong.append(("below", _with(array, last, int(low) - 1)))
    if high < limits.max:
        wrong.append(("above", _with(array, last, int(high) + 1)))
    return wrong


def _wrong_arrays(value):
    """Return values that are no array of numbers, or one of another shape or kind."""
    array = np.asarray(value)
    wrong = [
        ("None", None),
        ("an object", object()),
        ("a dict", {"a": 1}),
        ("ragged", RAGGED),
        ("another rank", array[None]),
        ("another shape", np.zeros((*array.shape, 2), array.dtype)),
        ("texts", np.full(array.shape, "1")),
        ("complex", array.astype(np.complex64)),
    ]
    if array.dtype.kind != "f":
        wrong.append(("floats", array.astype(np.float32)))
    if array.dtype.kind == "b":
        wrong.append(("integers", array.astype(np.int64)))
    return wrong


NO_CONTAINERS = [("None", None), ("a number", 3), ("a text", "ab")]


def _wrong_dicts(value):
    last = list(value)[-1]
    without_last = {key: part for key, part in value.items() if key != last}
    return [
        *NO_CONTAINERS,
        ("a key too few", without_last),
        ("a key too many", {**value, "unknown": 1}),
        ("a misspelt key", {**without_last, last + "x": value[last]}),
        ("a list", list(value.values())),
    ]


def _wrong_tuples(value):
    return [
        *NO_CONTAINERS,
        ("too short", value[:-1]),
        ("too long", (*value, value[-1])),
        ("a dict", dict(enumerate(value))),
    ]


def _wrong_lists(place, options, rng):
    space = place.space
    if isinstance(space, Repeated):
        longest = space.max_len
        item_space = space.child_space
    else:
        longest = limit_of(options, "sequence_max_len", place.name)
        item_space = space.feature_space
    too_many = [sample(item_space, rng, options, f"{place.name}[:]") for _ in range(longest + 1)]
    wrong = [("None", None), ("a number", 3), ("an array without axes", np.array(3.0))]
    if isinstance(space, spaces.Sequence) and space.stack:
        return [*wrong, ("too long", stack(item_space, too_many))]
    return [
        *wrong,
        ("too long", type(place.value)(too_many)),
        ("a dict", {0: 1}),
        ("a text", "ab"),
        ("a set", {1}),
    ]


def _wrong_variants(space, value):
    count = len(space.spaces)
    wrong_tags = [count, -1, None, 0.0, "0", RAGGED, np.array([0])]
    return [
        *((f"tag {tag!r}", (tag, value[1])) for tag in wrong_tags),
        ("None", None),
        ("a list", list(value)),
        ("alone", value[:1]),
        ("a third", (*value, 1)),
    ]


def _wrong_graphs(place, options):
    graph = place.value
    most_nodes = limit_of(options, "graph_max_nodes", place.name)
    wrong = [
        ("None", None),
        ("a tuple", tuple(graph)),
        ("no nodes", (None, None, None)),
        ("too many nodes", graph._replace(nodes=np.repeat(graph.nodes[:1], most_nodes + 1, 0))),
        ("nodes that are None", graph._replace(nodes=None)),
        ("nodes in a list", graph._replace(nodes=list(graph.nodes))),
    ]
    if place.space.edge_space is None:
        links = np.zeros((len(graph.nodes), 2), int)
        wrong.append(("edges", graph._replace(edges=graph.nodes, edge_links=links)))
    elif graph.edges is not None and len(graph.edges):
        wrong += _wrong_edges(graph, limit_of(options, "graph_max_edges", place.name))
    return wrong


def _wrong_edges(graph, most_edges):
    links = graph.edge_links
    wrong_links = {
        "too great": _with(links, 0, len(graph.nodes)),
        "negative": _with(links, 0, -1),
        "floats": links.astype(np.float32),
        "three ends": np.zeros((len(links), 3), int),
        "too few": links[:-1],
        "None": None,
        "ragged": RAGGED,
    }
    too_many = graph._replace(
        edges=np.repeat(graph.edges[:1], most_edges + 1, 0),
        edge_links=np.repeat(links[:1], most_edges + 1, 0),
    )
    return [
        *((f"links: {label}", graph._replace(edge_links=w)) for label, w in wrong_links.items()),
        ("too many edges", too_many),
        ("edges that are None", graph._replace(edges=None)),
    ]


def _wrong_texts(place, options):
    space = place.space
    limit = limit_of(options, "text_max_length", place.name)
    wrong = [
        ("None", None),
        ("a number", 3),
        ("bytes", b"a"),
        ("a list", ["a"]),
        ("foreign", place.value[:-1] + "\u20ac"),
    ]
    if isinstance(space, Phrases):
        return [*wrong, ("too long", "a" * (limit + 1)), ("no phrase", "aca")]
    longest = min(space.max_length, limit or space.max_length)
    wrong.append(("too long", space.character_list[0] * (longest + 1)))
    if space.min_length:
        wrong.append(("too short", ""))
    return wrong


# --- corrupted observations -----------------------------------------------------------------------


class Corruption(NamedTuple):
    """An observation, the same one with a wrong value in one place, and another right one."""

    case: Any
    right_obs: Any
    wrong_obs: Any
    place: Place
    other_obs: Any


@st.composite
def corruptions(draw, space=random_spaces.any_space, *, in_array=False, only_numbers=False):
    case = draw(cases(space))
    seed = draw(seeds)
    right_obs, other_obs = case.draw_observations(2, seed)
    # NumPy draws evenly; Hypothesis would prefer the first place and the first value.
    rng = np.random.default_rng(crc32(f"{case.space} {seed}".encode()))
    places = find_places(case, right_obs, in_array)
    place = places[rng.integers(len(places))]
    wrong = make_wrong_values(place, case.options, rng)
    if only_numbers:
        wrong = [(label, value) for label, value in wrong if label in NUMBERS]
    assume(wrong)
    _, value = wrong[rng.integers(len(wrong))]
    return Corruption(case, right_obs, place.put(value), place, other_obs)


def assert_rejected(encode, observation, place):
    """Check that the error names the place of the wrong value."""
    with pytest.raises(ObservationError) as caught:
        encode(observation)
    assert str(caught.value).startswith(f"{place.path}: expected")


# --- with a check ---------------------------------------------------------------------------------


@max_examples(250)
@given(corruptions())
def test_wrong_value_is_rejected_with_its_path(corruption):
    preprocessor = corruption.case.make_preprocessor("always")
    preprocessor.transform(corruption.other_obs)

    assert_rejected(preprocessor.transform, corruption.wrong_obs, corruption.place)

    # Nothing else is wrong with the observation.
    preprocessor.transform(corruption.right_obs)


@max_examples(150)
@given(corruptions())
def test_wrong_value_in_a_list_is_rejected_with_its_path(corruption):
    preprocessor = corruption.case.make_preprocessor("always")
    right = corruption.other_obs
    wrong = corruption.wrong_obs

    assert_rejected(preprocessor.transform_batch, [wrong], corruption.place)
    assert_rejected(preprocessor.transform_batch, [right, wrong], corruption.place)
    assert_rejected(preprocessor.transform_batch, [wrong, right], corruption.place)


@max_examples(120)
@given(corruptions(in_array=True))
def test_wrong_value_in_a_vector_batch_is_rejected_with_its_path(corruption):
    preprocessor = corruption.case.make_preprocessor("always")
    batch = vector_batch(corruption.case.space, [corruption.other_obs, corruption.wrong_obs])

    assert_rejected(preprocessor.transform_batch, batch, corruption.place)


def record_checks(preprocessor):
    """Return a list to which the preprocessor appends each observation that it checks."""
    checked = []
    check = preprocessor.check

    def check_and_record(obs):
        checked.append(obs)
        check(obs)

    preprocessor.check = check_and_record
    return checked


def is_out_of_bounds(corruption):
    """Return whether all that is wrong is a number outside the bounds of its space."""
    with pytest.raises(ObservationError) as caught:
        corruption.case.make_preprocessor("always").transform(corruption.wrong_obs)
    return isinstance(caught.value, OutOfBoundsError)


@max_examples(60)
@given(corruptions())
def test_check_first_checks_until_one_observation_has_passed(corruption):
    assume(not is_out_of_bounds(corruption))  # such an observation only warns here
    preprocessor = corruption.case.make_preprocessor(check="first")
    checked_observations = record_checks(preprocessor)

    assert_rejected(preprocessor.transform, corruption.wrong_obs, corruption.place)
    assert_rejected(preprocessor.transform, corruption.wrong_obs, corruption.place)
    preprocessor.transform(corruption.right_obs)
    assert len(checked_observations) == 3  # two that are wrong, and the first that is right

    preprocessor.transform(corruption.other_obs)
    preprocessor.transform_batch([corruption.right_obs, corruption.other_obs])
    assert len(checked_observations) == 3


@pytest.mark.parametrize("is_list", [True, False], ids=["list", "vector-environment"])
@max_examples(40)
@given(case=cases(), seed=seeds)
def test_check_first_checks_one_row_of_the_first_batch(is_list, case, seed):
    preprocessor = case.make_preprocessor("first")
    checked = record_checks(preprocessor)
    rows = case.draw_observations(3, seed)
    batch = rows if is_list else vector_batch(case.space, rows)

    preprocessor.transform_batch(batch)
    preprocessor.transform_batch(batch)

    assert len(checked) == 1


# --- without a check ------------------------------------------------------------------------------


def encode_by_transform(preprocessor, obs):
    return preprocessor.transform(obs)


def encode_in_a_list(preprocessor, obs):
    return preprocessor.transform_batch([obs])[0]


def encode_by_write(preprocessor, obs):
    """Write into an array with a place before and behind the slice, which must not change."""
    padded = np.full(preprocessor.size + 2, 7.0, np.float32)
    preprocessor.write(obs, padded, 1)
    np.testing.assert_array_equal(padded[[0, -1]], 7)
    return padded[1:-1]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of casts from NaN and complex numbers
@pytest.mark.parametrize("encode", [encode_by_transform, encode_in_a_list, encode_by_write])
@max_examples(150)
@given(corruption=corruptions(random_spaces.mixed_space))
def test_unchecked_value_changes_only_its_place_or_is_rejected(encode, corruption):
    case = corruption.case
    preprocessor = case.make_preprocessor(check="never")
    encoding_of_right = np.array(encoded(case.space, corruption.right_obs, case.options))

    try:
        encoding_of_wrong = encode(preprocessor, corruption.wrong_obs)
    except ObservationError:
        return  # either outcome is right

    # The wrong value is encoded between `start` and `stop`.
    start = corruption.place.start
    stop = corruption.place.stop
    assert_same_floats(encoding_of_wrong[:start], encoding_of_right[:start])
    assert_same_floats(encoding_of_wrong[stop:], encoding_of_right[stop:])


def assert_same_floats(actual, expected):
    np.testing.assert_array_equal(actual, expected.astype(np.float32))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of casts from NaN and complex numbers
@pytest.mark.parametrize("check", ["never", "first"])
@max_examples(120)
@given(corruption=corruptions())
def test_unchecked_encoding_has_the_right_shape_or_is_rejected(check, corruption):
    preprocessor = corruption.case.make_preprocessor(check)
    preprocessor.transform(corruption.other_obs)

    try:
        encoding = preprocessor.transform(corruption.wrong_obs)
    except ObservationError:
        return

    assert encoding.shape == preprocessor.shape


@max_examples(80)
@given(corruptions(only_numbers=True))
def test_unchecked_number_is_rejected_only_if_it_has_no_place(corruption):
    preprocessor = corruption.case.make_preprocessor("never")

    if isinstance(corruption.place.space, spaces.Discrete | spaces.MultiDiscrete):
        assert_rejected(preprocessor.transform, corruption.wrong_obs, corruption.place)
    else:
        assert preprocessor.transform(corruption.wrong_obs).shape == preprocessor.shape
