"""Observations spoiled in one random place: refused with the path of that place, or
kept inside it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pytest
import random_spaces as rs
from gymnasium import spaces
from hypothesis import assume, given, strategies as st
from random_spaces import (
    ARRAYS,
    Phrases,
    bounded,
    cases,
    limit_of,
    sample,
    seeds,
    stack,
    vector_batch,
)
from slow_codec import encoded, size

from rlcatalog.errors import ObservationError
from rlcatalog.spaces import Repeated, Simplex


class Site(NamedTuple):
    """A place in an observation.

    Attributes:
        space: Its space.
        value: What stands there.
        path: Its path, as messages give it.
        name: Its path, as the options give it.
        put: Returns the whole observation with something else in this place.
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


def sites(case, obs, in_array=False):
    """Every place of an observation; `in_array` when it is to be a row of a vector environment's
    batch.
    """
    whole = size(case.space, case.options)
    return list(
        _sites(
            case,
            Site(case.space, obs, "obs", "obs", lambda new: new, in_array, 0, whole),
            split=True,
        )
    )


def _sites(case, site, split):
    """The site and all below it; `split` while the children have slices of their own."""
    yield site
    space, value = site.space, site.value

    def child(inner, part, step, put, named=None, **changed):
        made = site._replace(
            space=inner,
            value=part,
            path=site.path + step,
            name=site.name + (named or step),
            put=put,
            **changed,
        )
        return _sites(case, made, split and not named and not isinstance(space, spaces.OneOf))

    if isinstance(space, spaces.Dict | spaces.Tuple):
        is_dict, start = isinstance(space, spaces.Dict), site.start
        for key, inner in space.spaces.items() if is_dict else enumerate(space.spaces):
            stop = (
                start + size(inner, case.options, f"{site.name}[{key!r}]") if split else site.stop
            )
            where = {"start": start, "stop": stop} if split else {}
            yield from child(inner, value[key], f"[{key!r}]", _putter(site, key), **where)
            start = stop
    elif isinstance(space, spaces.OneOf):
        tag = int(value[0])
        yield from child(
            space.spaces[tag],
            value[1],
            f"[{tag}]",
            lambda new: site.put((value[0], new)),
            in_array=False,
        )
    elif isinstance(space, Repeated) or (isinstance(space, spaces.Sequence) and not space.stack):
        inner = space.child_space if isinstance(space, Repeated) else space.feature_space
        for i, item in enumerate(value):
            yield from child(inner, item, f"[{i}]", _putter(site, i), "[:]", in_array=False)
    elif isinstance(space, spaces.Sequence):
        items = unstacked(space.feature_space, value)
        for i, item in enumerate(items):
            put = _stacker(site, items, i)
            yield from child(space.feature_space, item, f"[{i}]", put, "[:]", in_array=True)
    elif isinstance(space, spaces.Graph):
        for part, inner in (("nodes", space.node_space), ("edges", space.edge_space)):
            for i, item in enumerate(
                getattr(value, part) if getattr(value, part) is not None else []
            ):
                put = _row_putter(site, part, i)
                yield from child(inner, item, f".{part}[{i}]", put, f".{part}[:]", in_array=True)


def _putter(site, key):
    def put(new):
        if isinstance(site.value, dict):
            return site.put({**site.value, key: new})
        return site.put(
            type(site.value)(new if i == key else part for i, part in enumerate(site.value))
        )

    return put


def _stacker(site, items, i):
    return lambda new: site.put(stack(site.space.feature_space, [*items[:i], new, *items[i + 1 :]]))


def _row_putter(site, part, i):
    def put(new):
        array = getattr(site.value, part).copy()
        array[i] = new
        return site.put(site.value._replace(**{part: array}))

    return put


def unstacked(space, batch):
    if isinstance(space, spaces.Dict):
        columns = {key: unstacked(child, batch[key]) for key, child in space.spaces.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if isinstance(space, spaces.Tuple):
        return list(
            zip(*(unstacked(child, batch[i]) for i, child in enumerate(space.spaces)), strict=True)
        )
    return list(batch)


# --- what is wrong --------------------------------------------------------------------------------

RAGGED = [[1], [2, 3]]


def spoiled(site, options, rng):
    """Wrong values for a place: what is wrong, and the value."""
    space, value = site.space, site.value
    if isinstance(space, (*ARRAYS, Simplex)):
        # A batch of Simplex values is a tuple of arrays, in which any may differ.
        in_array = site.in_array and not isinstance(space, Simplex)
        return _wrong_numbers(space, value) + ([] if in_array else _wrong_arrays(space, value))
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return [] if site.in_array else _wrong_composites(space, value)
    if isinstance(space, Repeated | spaces.Sequence):
        return _wrong_lists(space, site, options, rng)
    if isinstance(space, spaces.OneOf):
        return _wrong_variants(space, value)
    return (
        _wrong_graphs(space, site, options)
        if isinstance(space, spaces.Graph)
        else _wrong_texts(site, options)
    )


def _with(array, index, number):
    array = np.array(array)
    array.flat[index] = number
    return array if array.shape else array[()]


def _wrong_numbers(space, value):
    """Numbers outside the space, in an array of the right shape and dtype."""
    array = np.asarray(value)
    if not array.size:
        return []
    last = array.size - 1
    if isinstance(space, spaces.Discrete):
        return [
            ("below", value - (value - space.start) - 1),
            ("above", value - (value - space.start) + space.n),
        ]
    if isinstance(space, spaces.MultiDiscrete):
        lowest, n = int(space.start.flat[last]), int(space.nvec.flat[last])
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
    low, high = space.low.flat[last], space.high.flat[last]
    if array.dtype.kind == "f":
        found = [("NaN", _with(array, last, np.nan))]
        # One more than rounding could explain.
        found += [("below", _with(array, last, low - 1))] * bool(low > -np.inf)
        return found + [("above", _with(array, last, high + 1))] * bool(high < np.inf)
    if array.dtype.kind == "b":
        return []
    info = np.iinfo(array.dtype)
    found = [("below", _with(array, last, int(low) - 1))] if low > info.min else []
    return found + ([("above", _with(array, last, int(high) + 1))] if high < info.max else [])


def _wrong_arrays(space, value):
    """What is no array of numbers, or one of another shape or kind."""
    array = np.asarray(value)
    found = [
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
        found.append(("floats", array.astype(np.float32)))
    if array.dtype.kind == "b":
        found.append(("integers", array.astype(np.int64)))
    return found


def _wrong_composites(space, value):
    found = [("None", None), ("a number", 3), ("a text", "ab")]
    if isinstance(space, spaces.Dict):
        last = list(value)[-1]
        missing = {key: part for key, part in value.items() if key != last}
        return [
            *found,
            ("a key too few", missing),
            ("a key too many", {**value, "unknown": 1}),
            ("a misspelt key", {**missing, last + "x": value[last]}),
            ("a list", list(value.values())),
        ]
    return [
        *found,
        ("too short", value[:-1]),
        ("too long", (*value, value[-1])),
        ("a dict", dict(enumerate(value))),
    ]


def _wrong_lists(space, site, options, rng):
    is_repeated = isinstance(space, Repeated)
    most = space.max_len if is_repeated else limit_of(options, "sequence_max_len", site.name)
    child = space.child_space if is_repeated else space.feature_space
    items = [sample(child, rng, options, f"{site.name}[:]") for _ in range(most + 1)]
    found = [("None", None), ("a number", 3), ("an array without axes", np.array(3.0))]
    if not is_repeated and space.stack:
        return [*found, ("too long", stack(child, items))]
    return [
        *found,
        ("too long", type(site.value)(items)),
        ("a dict", {0: 1}),
        ("a text", "ab"),
        ("a set", {1}),
    ]


def _wrong_variants(space, value):
    count = len(space.spaces)
    tags = [count, -1, None, 0.0, "0", RAGGED, np.array([0])]
    found = [(f"tag {tag!r}", (tag, value[1])) for tag in tags]
    return [
        *found,
        ("None", None),
        ("a list", list(value)),
        ("alone", value[:1]),
        ("a third", (*value, 1)),
    ]


def _wrong_graphs(space, site, options):
    graph, found = (
        site.value,
        [("None", None), ("a tuple", tuple(site.value)), ("no nodes", (None, None, None))],
    )
    most = limit_of(options, "graph_max_nodes", site.name)
    found += [
        ("too many nodes", graph._replace(nodes=np.repeat(graph.nodes[:1], most + 1, 0))),
        ("nodes that are None", graph._replace(nodes=None)),
        ("nodes in a list", graph._replace(nodes=list(graph.nodes))),
    ]
    if space.edge_space is None:
        return [
            *found,
            (
                "edges",
                graph._replace(edges=graph.nodes, edge_links=np.zeros((len(graph.nodes), 2), int)),
            ),
        ]
    if graph.edges is None or not len(graph.edges):
        return found
    links, most = graph.edge_links, limit_of(options, "graph_max_edges", site.name)
    many = {
        "edges": np.repeat(graph.edges[:1], most + 1, 0),
        "edge_links": np.repeat(links[:1], most + 1, 0),
    }
    wrong_links = {
        "too great": _with(links, 0, len(graph.nodes)),
        "negative": _with(links, 0, -1),
        "floats": links.astype(np.float32),
        "three ends": np.zeros((len(links), 3), int),
        "too few": links[:-1],
        "None": None,
        "ragged": RAGGED,
    }
    found += [
        (f"links: {what}", graph._replace(edge_links=wrong)) for what, wrong in wrong_links.items()
    ]
    return [
        *found,
        ("too many edges", graph._replace(**many)),
        ("edges that are None", graph._replace(edges=None)),
    ]


def _wrong_texts(site, options):
    space, value = site.space, site.value
    limit = limit_of(options, "text_max_length", site.name)
    found = [
        ("None", None),
        ("a number", 3),
        ("bytes", b"a"),
        ("a list", ["a"]),
        ("foreign", value[:-1] + "\u20ac"),
    ]
    if isinstance(space, Phrases):
        return [*found, ("too long", "a" * (limit + 1)), ("no phrase", "aca")]
    most = min(space.max_length, limit or space.max_length)
    found.append(("too long", space.character_list[0] * (most + 1)))
    return [*found, ("too short", "")] if space.min_length else found


@st.composite
def corrupted(draw, in_array=False, mixed=False, numbers=False):
    """A case, two observations, a place in the first, what is wrong there, and the spoiled
    observation.
    """
    case, seed = draw(cases(rs.mixed_space if mixed else rs.any_space)), draw(seeds)
    obs, good = case.samples(2, seed)
    # Chooses evenly, where Hypothesis prefers the first of a list and the seed 0.
    rng = np.random.default_rng(crc32(f"{case.space} {seed}".encode()))
    found = sites(case, obs, in_array)
    site = found[rng.integers(len(found))]
    wrong = spoiled(site, case.options, rng)
    if numbers:
        wrong = [
            pair
            for pair in wrong
            if pair[0] in ("below", "above", "negative", "NaN", "no sum of 1")
        ]
    assume(wrong)
    what, value = wrong[rng.integers(len(wrong))]
    return case, obs, good, site, what, site.put(value)


def assert_refused(encode, observations, site):
    with pytest.raises(ObservationError) as caught:
        encode(observations)
    assert str(caught.value).startswith(f"{site.path}: expected"), str(caught.value)


# --- checked --------------------------------------------------------------------------------------


@bounded(250)
@given(corrupted())
def test_a_spoiled_observation_is_refused_with_its_path(drawn):
    case, obs, good, site, _, bad = drawn
    preprocessor = case.make("always")
    preprocessor.transform(good)
    assert_refused(preprocessor.transform, bad, site)
    preprocessor.transform(obs)  # the place was the only thing wrong with it


@bounded(150)
@given(corrupted())
def test_a_spoiled_observation_in_a_list_is_refused_with_its_path(drawn):
    case, _, good, site, _, bad = drawn
    preprocessor = case.make("always")
    for rows in ([bad], [good, bad], [bad, good]):
        assert_refused(preprocessor.transform_batch, rows, site)


@bounded(120)
@given(corrupted(in_array=True))
def test_a_spoiled_row_of_a_vector_environment_is_refused_with_its_path(drawn):
    case, _, good, site, _, bad = drawn
    preprocessor = case.make("always")
    assert_refused(preprocessor.transform_batch, vector_batch(case.space, [good, bad]), site)


@bounded(60)
@given(corrupted())
def test_the_first_observation_is_checked_until_one_has_passed(drawn):
    case, obs, good, site, _, bad = drawn
    preprocessor, checked = case.make("first"), []
    check = preprocessor.check
    preprocessor.check = lambda one: (checked.append(1), check(one))
    for count in (1, 2):
        assert_refused(preprocessor.transform, bad, site)
        assert len(checked) == count
    preprocessor.transform(good)
    assert len(checked) == 3
    preprocessor.transform(obs)
    preprocessor.transform_batch([obs, good])
    assert len(checked) == 3


@bounded(40)
@given(cases(), seeds, st.booleans())
def test_one_row_of_the_first_batch_is_checked(case, seed, as_list):
    preprocessor, rows, checked = case.make("first"), case.samples(3, seed), []
    check = preprocessor.check
    preprocessor.check = lambda one: (checked.append(1), check(one))
    for _ in range(2):
        preprocessor.transform_batch(rows if as_list else vector_batch(case.space, rows))
        assert len(checked) == 1


# --- unchecked ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of casts from NaN and complex numbers
@bounded(150)
@given(corrupted(mixed=True), st.sampled_from(["transform", "list", "write"]))
def test_what_is_not_checked_stays_in_its_place_or_is_refused(drawn, way):
    case, obs, _, site, _, bad = drawn
    preprocessor = case.make("never")
    try:
        if way == "transform":
            found = preprocessor.transform(bad)
        elif way == "list":
            found = preprocessor.transform_batch([bad])[0]
        else:
            padded = np.full(preprocessor.size + 2, 7.0, np.float32)
            preprocessor.write(bad, padded, 1)
            np.testing.assert_array_equal(padded[[0, -1]], 7)
            found = padded[1:-1]
    except ObservationError as error:
        assert str(error).startswith("obs")  # noqa: PT017 - either outcome is right
        return
    expected = np.array(encoded(case.space, obs, case.options), np.float32)
    np.testing.assert_array_equal(found[: site.start], expected[: site.start])
    np.testing.assert_array_equal(found[site.stop :], expected[site.stop :])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@bounded(120)
@given(corrupted())
def test_what_is_not_checked_is_refused_by_type_or_has_the_right_shape(drawn):
    case, _, good, _, _, bad = drawn
    for check in ("never", "first"):
        preprocessor = case.make(check)
        preprocessor.transform(good)
        try:
            found = preprocessor.transform(bad)
        except ObservationError:
            continue
        assert found.shape == preprocessor.shape


@bounded(80)
@given(corrupted(numbers=True))
def test_a_wrong_number_passes_unchecked_unless_it_has_no_place(drawn):
    case, _, _, site, _, bad = drawn
    preprocessor = case.make("never")
    if isinstance(site.space, spaces.Discrete | spaces.MultiDiscrete):
        assert_refused(preprocessor.transform, bad, site)  # there is no slot for it
    else:
        assert preprocessor.transform(bad).shape == preprocessor.shape
