"""`MeanStdFilter` in a policy: which values of encoded observations it filters, and which it does
not change.
"""

from __future__ import annotations

import pickle
import string

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog import SpaceInfo, default_catalog
from rlcatalog.errors import CatalogWarning, ConfigError, ConfigTypeError, ObservationError
from rlcatalog.spaces import Repeated, Simplex
from rlcatalog_filters import EncodedMeanStdFilter
from rlcatalog_filters.config import FiltersConfig
from rlcatalog_filters.encoded_filter import leaves_to_filter

CAR = spaces.Dict(
    {
        "action_mask": spaces.Box(0, 1, (3,)),
        "gear": spaces.Discrete(4),
        "lights": spaces.MultiBinary(2),
        "on": spaces.Box(0, 1, (2,), np.bool_),
        "speed": spaces.Box(-np.inf, np.inf, (2,)),
        "speedometer": spaces.Box(0, 300, (), np.float32),
        "wheels": spaces.Tuple((spaces.Box(-5, 5, (2, 2)), spaces.Discrete(2))),
    }
)


def make_filter(space=CAR, **options):
    """Return a filter for encoded observations of a space."""
    preprocessor = default_catalog().preprocessor_for(SpaceInfo.read(space), options)
    space.seed(0)
    return EncodedMeanStdFilter(preprocessor, options)


def sample_encoded(encoded_filter, space=CAR, *, rows=16):
    """Sample observations of a space, and encode them."""
    return encoded_filter.preprocessor.transform_batch([space.sample() for _ in range(rows)])


def is_inside(space, batch):
    within_bounds = (batch >= space.low) & (batch <= space.high)
    return batch.dtype == space.dtype and bool(within_bounds.all())


def check_filtered_leaves(space, paths, **options):
    """Check that a filter normalizes the leaves with these paths, and does not change any bit of
    the others.
    """
    encoded_filter = make_filter(space, **options)
    assert {leaf.path for leaf in encoded_filter.leaves} == set(paths)
    first_batch = sample_encoded(encoded_filter, space)
    second_batch = sample_encoded(encoded_filter, space)

    encoded_filter(first_batch, update=True)
    filtered = encoded_filter(second_batch, update=True)

    assert filtered.dtype == np.float32
    assert filtered.shape == second_batch.shape
    assert is_inside(encoded_filter.processed_space(encoded_filter.preprocessor), filtered)
    seen = np.concatenate([first_batch, second_batch]).reshape(32, -1).astype(np.float64)
    flat_batch = second_batch.reshape(16, -1)
    flat_filtered = filtered.reshape(16, -1)
    for leaf in encoded_filter.preprocessor.leaves():
        columns = slice(leaf.start, leaf.stop)
        if leaf.path in paths:
            mean = seen[:, columns].mean(0)
            deviation = seen[:, columns].std(0, ddof=1) + 1e-6
            expected = np.clip((flat_batch[:, columns] - mean) / deviation, -10, 10)
            np.testing.assert_allclose(flat_filtered[:, columns], expected, rtol=1e-5, atol=1e-6)
        else:
            unchanged = flat_batch[:, columns].astype(np.float32)
            assert flat_filtered[:, columns].tobytes() == unchanged.tobytes(), leaf.path


# --- the default ----------------------------------------------------------------------------------


def test_numbers_are_filtered_but_no_masks_choices_and_flags():
    paths = ["obs['speed']", "obs['speedometer']", "obs['wheels'][0]"]

    check_filtered_leaves(CAR, paths)


def test_lists_texts_graphs_and_probabilities_are_not_filtered():
    numbers = spaces.Box(-1, 1, (2,))
    space = spaces.Dict(
        {
            "choice": spaces.OneOf((numbers, spaces.Discrete(3))),
            "items": Repeated(numbers, 3),
            "map": spaces.Graph(numbers, numbers),
            "share": Simplex((3,)),
            "speed": numbers,
            "words": spaces.Text(4, charset=string.ascii_lowercase),
        }
    )
    # Without limits, a graph cannot be encoded.
    limits = {"graph_max_nodes": 10, "graph_max_edges": 100}

    check_filtered_leaves(space, paths=["obs['speed']"], **limits)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-2, 3, ()),
        spaces.Box(-2, 3, (0,)),
        spaces.Box(-3, 3, (2,), np.int64),
        spaces.Box(1e8, 1e8 + 4, (2,), np.float64),
    ],
    ids=str,
)
def test_boxes_of_any_shape_and_dtype_are_filtered(space):
    check_filtered_leaves(space, ["obs"])


# --- action masks ---------------------------------------------------------------------------------

# RLlib filters action masks.
MASK = spaces.Box(0, 1, (2,))
NESTED_MASK = spaces.Dict(
    {"a": spaces.Dict({"action_mask": MASK, "x": MASK}), "action_masks": MASK}
)


def test_action_mask_is_not_filtered_at_any_level():
    check_filtered_leaves(NESTED_MASK, ["obs['a']['x']", "obs['action_masks']"])


def test_action_mask_under_another_key_is_not_filtered():
    paths = ["obs['a']['action_mask']", "obs['a']['x']"]

    check_filtered_leaves(NESTED_MASK, paths, action_mask_key="action_masks")


@pytest.mark.parametrize("key", ["obs['a']['action_mask']", "a.action_mask"])
def test_action_mask_at_a_path_is_not_filtered(key):
    check_filtered_leaves(
        NESTED_MASK, ["obs['a']['x']", "obs['action_masks']"], action_mask_key=key
    )


def test_parts_of_an_action_mask_are_not_filtered():
    space = spaces.Dict({"action_mask": spaces.Tuple((MASK, MASK)), "x": MASK})

    check_filtered_leaves(space, ["obs['x']"])


def test_action_mask_cannot_be_included():
    with pytest.raises(ConfigError, match="is the action mask") as caught:
        make_filter(filter_include=["obs['action_mask']"])

    assert "action_mask" in str(caught.value).partition(" is the action mask")[0]


# --- paths in the config --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        pytest.param(
            # This is no prefix of obs['speedometer']: a path ends where a key ends.
            {"filter_include": ["obs['speed']"]},
            ["obs['speed']"],
            id="include-a-leaf",
        ),
        pytest.param(
            {"filter_include": ["obs['gear']", "obs['wheels']"]},
            ["obs['gear']", "obs['wheels'][0]", "obs['wheels'][1]"],
            id="include-a-tuple",
        ),
        pytest.param(
            {"filter_exclude": ["obs['wheels']", "obs['speed']"]},
            ["obs['speedometer']"],
            id="exclude",
        ),
        pytest.param(
            {"filter_exclude": ["obs['gear']"]},  # which is not filtered anyway
            ["obs['speed']", "obs['speedometer']", "obs['wheels'][0]"],
            id="exclude-a-choice",
        ),
        pytest.param(
            {
                "filter_include": ["obs"],
                "filter_exclude": ["obs['lights']", "obs['on']", "obs['wheels'][1]"],
            },
            ["obs['gear']", "obs['speed']", "obs['speedometer']", "obs['wheels'][0]"],
            id="include-all-but-some",
        ),
        pytest.param(
            {"filter_include": ["wheels", "speed"], "filter_exclude": ["wheels[1]"]},
            ["obs['speed']", "obs['wheels'][0]"],
            id="short-paths",
        ),
        pytest.param(
            {"filter_include": ["obs['wheels']"], "filter_exclude": ["obs['wheels'][1]"]},
            ["obs['wheels'][0]"],
            id="include-a-tuple-but-a-part",
        ),
    ],
)
def test_include_replaces_the_default_and_exclude_wins(options, paths):
    check_filtered_leaves(CAR, paths, **options)


@pytest.mark.parametrize("key", ["filter_include", "filter_exclude"])
@pytest.mark.parametrize("path", ["obs['spee']", "obs['speed'", "spee", "obs['speed'][0]", ""])
def test_unknown_path_error_lists_the_leaves(key, path):
    with pytest.raises(ConfigError) as caught:
        make_filter(**{key: ["obs['gear']", path]})

    message = str(caught.value)
    assert message.startswith(f"{key}: {path!r} is not a part of the observation.")
    for leaf in default_catalog().preprocessor_for(SpaceInfo.read(CAR), {}).leaves():
        assert leaf.path in message


def test_path_with_two_meanings_is_an_error():
    space = spaces.Dict({"a": spaces.Dict({"b": spaces.Box(-1, 1)}), "a.b": spaces.Box(-1, 1)})

    with pytest.raises(ConfigError, match=r"'a\.b' has several meanings"):
        make_filter(space, filter_include=["a.b"])
    check_filtered_leaves(space, ["obs['a.b']"], filter_include=["obs['a.b']"])


@pytest.mark.parametrize("clip", [0.0, -1])
def test_clip_must_be_positive(clip):
    with pytest.raises(ConfigError, match="filter_clip") as caught:
        default_catalog().parse_config({"filter_clip": clip})

    assert not isinstance(caught.value, ConfigTypeError)


@pytest.mark.parametrize(
    ("key", "value"), [("filter_clip", "ten"), ("filter_include", "obs"), ("filter_exclude", [1])]
)
def test_config_value_of_another_type_is_an_error(key, value):
    with pytest.raises(ConfigTypeError, match=key):
        default_catalog().parse_config({key: value})


@pytest.mark.parametrize(
    ("claimed", "options", "paths"),
    [
        pytest.param([], {}, ["obs['avail'][0]", "obs['avail'][1]", "obs['available']"], id="none"),
        pytest.param(["obs['avail']"], {}, ["obs['available']"], id="tuple"),
        pytest.param(
            ["obs['avail'][1]"], {}, ["obs['avail'][0]", "obs['available']"], id="part-of-a-tuple"
        ),
        pytest.param(["obs['avail']", "obs['available']"], {}, [], id="all"),
        pytest.param(
            ["obs['avail']"],
            {"filter_include": ["obs['avail'][0]"]},
            ["obs['avail'][0]"],
            id="included-by-config",
        ),
    ],
)
def test_claimed_leaves_are_filtered_only_if_included(claimed, options, paths):
    # A head of the model claims the leaves that it reads by itself.
    space = spaces.Dict(
        avail=spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1,))]),
        available=spaces.Box(-1, 1, (2,)),
    )
    leaves = default_catalog().preprocessor_for(SpaceInfo.read(space), {}).leaves()

    chosen = leaves_to_filter(leaves, FiltersConfig(**options), "action_mask", claimed)

    assert [leaf.path for leaf in chosen] == paths


@pytest.mark.parametrize("key", ["filter_include", "filter_exclude"])
@pytest.mark.parametrize("path", ["robot.mass", "obs['robot']"])
def test_hidden_leaf_may_be_named(key, path):
    # An exported policy does not see the mass of the robot.
    preprocessor = default_catalog().preprocessor_for(CAR, {})
    options = {key: [path, "speed"], "hidden": ["obs['robot']['mass']"]}

    encoded_filter = EncodedMeanStdFilter(preprocessor, options)

    paths = [leaf.path for leaf in encoded_filter.leaves]
    assert ("obs['speed']" in paths) == (key == "filter_include")


def test_filter_whose_leaves_are_all_hidden_does_not_warn():
    preprocessor = default_catalog().preprocessor_for(spaces.Discrete(3), {})

    # pytest makes any warning an error.
    encoded_filter = EncodedMeanStdFilter(preprocessor, {"hidden": ["obs['mass']"]})

    assert encoded_filter.leaves == []


# --- the processed space --------------------------------------------------------------------------


def test_filtered_image_becomes_float32():
    space = spaces.Box(0, 255, (4, 5, 3), np.uint8)
    encoded_filter = make_filter(space, filter_include=["obs"])
    assert sample_encoded(encoded_filter, space).dtype == np.uint8

    processed = encoded_filter.processed_space(encoded_filter.preprocessor)

    assert processed == spaces.Box(-10, 10, (4, 5, 3), np.float32)  # the default clip


@pytest.mark.parametrize(("clip", "bound"), [(0.5, 0.5), (10.0, 10.0), (None, np.inf)])
def test_processed_space_has_the_clip_bounds(clip, bound):
    space = spaces.Dict({"gear": spaces.Discrete(2), "speed": spaces.Box(-99, 99, (3,))})
    encoded_filter = make_filter(space, filter_clip=clip)

    processed = encoded_filter.processed_space(encoded_filter.preprocessor)

    # The gear is encoded as two numbers from 0 to 1. The three numbers of the speed are filtered.
    assert processed.low.tolist() == [0, 0, -bound, -bound, -bound]
    assert processed.high.tolist() == [1, 1, bound, bound, bound]
    assert processed.original_space is space
    assert processed.preprocessor is encoded_filter.preprocessor


@pytest.mark.parametrize("clip", [0.5, 10.0])
def test_filtered_numbers_are_clipped(clip):
    encoded_filter = make_filter(spaces.Box(-9, 9, (2,)), filter_clip=clip)
    encoded_filter(np.float32([[1, 2], [3, 5]]), update=True)

    filtered = encoded_filter(np.float32([[1e6, -1e6]]))

    assert filtered.tolist() == [[clip, -clip]]


def test_filtered_numbers_are_unlimited_without_clip():
    encoded_filter = make_filter(spaces.Box(-9, 9, (2,)), filter_clip=None)
    encoded_filter(np.float32([[1, 2], [3, 5]]), update=True)

    filtered = encoded_filter(np.float32([[1e6, -1e6]]))

    assert filtered[0, 0] > 1e5
    assert filtered[0, 1] < -1e5


# --- nothing to filter ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "options"),
    [
        pytest.param(spaces.Discrete(5), {}, id="one-hot"),
        pytest.param(spaces.Discrete(5), {"_disable_preprocessor_api": True}, id="index"),
        pytest.param(
            spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2))), {}, id="choices-in-a-tuple"
        ),
        pytest.param(spaces.Box(0, 1, (2,)), {"filter_exclude": ["obs"]}, id="excluded"),
        pytest.param(spaces.Box(0, 255, (4, 5, 3), np.uint8), {}, id="image"),
        pytest.param(spaces.Box(0, 1, (4, 5, 3), np.float32), {}, id="image-of-floats"),
        pytest.param(spaces.Box(0, 1, (6,), np.int8), {}, id="flags"),
        pytest.param(
            spaces.Box(0, 255, (2, 2), np.uint8), {"filter_include": []}, id="nothing-included"
        ),
    ],
)
def test_filter_with_nothing_to_filter_returns_its_input(space, options):
    with pytest.warns(CatalogWarning, match="has nothing to filter in the leaves "):
        encoded_filter = make_filter(space, **options)
    encoded = sample_encoded(encoded_filter, space)

    filtered = encoded_filter(encoded, update=True)

    np.testing.assert_array_equal(filtered, encoded)
    assert filtered.dtype == encoded.dtype  # integers for an embedding stay integers
    processed = encoded_filter.processed_space(encoded_filter.preprocessor)
    assert processed is encoded_filter.preprocessor.observation_space
    # Nothing was learned. An empty state can be restored, too.
    assert encoded_filter.statistics.running_stats.n == 0
    encoded_filter.set_state(encoded_filter.get_state())


def test_filter_with_something_to_filter_does_not_warn():
    # pytest makes any warning an error.
    make_filter(spaces.Box(0, 1, (2,)))


# --- errors ---------------------------------------------------------------------------------------


#: The encoded matrix has the columns 0 to 3, and the number column 4.
MATRIX_AND_NUMBER = spaces.Dict(
    {"matrix": spaces.Box(-9, 9, (2, 2)), "number": spaces.Box(-9, 9, ())}
)


@pytest.mark.parametrize(
    ("column", "number", "message"),
    [
        (2, np.nan, "obs['matrix']: expected finite values to filter; found nan at [1, 0] in row"),
        (3, -np.inf, "obs['matrix']: expected finite values to filter; found -inf at [1, 1] in"),
        (4, np.inf, "obs['number']: expected finite values to filter; found inf in row 1 of "),
    ],
)
def test_error_for_a_number_that_is_not_finite_names_its_place(column, number, message):
    encoded_filter = make_filter(MATRIX_AND_NUMBER)
    encoded = np.zeros((3, 5), np.float32)
    encoded[1, column] = number

    with pytest.raises(ObservationError) as caught:
        encoded_filter(encoded, update=True)

    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_number_that_is_not_finite_does_not_change_the_filter(number):
    encoded_filter = make_filter(spaces.Box(-9, 9, (2,)))
    encoded_filter(np.float32([[1, 2], [3, 5]]), update=True)
    state_before = encoded_filter.get_state()

    with pytest.raises(ObservationError):
        encoded_filter(np.float32([[0, 0], [0, number]]), update=True)

    assert encoded_filter.statistics.buffer.n == 2  # rows, both of the first call
    for name, array in encoded_filter.get_state().items():
        np.testing.assert_array_equal(array, state_before[name])


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_number_that_is_not_finite_is_filtered_without_update(number):
    encoded_filter = make_filter(spaces.Box(-9, 9, (2,)))
    encoded_filter(np.float32([[1, 2], [3, 5]]), update=True)

    filtered = encoded_filter(np.float32([[2, number]]))

    assert filtered[0, 0] == 0  # the mean of 1 and 3


def test_leaves_that_are_not_filtered_may_contain_any_number():
    encoded_filter = make_filter(MATRIX_AND_NUMBER, filter_exclude=["obs['matrix']"])
    encoded = np.float32([[np.nan, -np.inf, 0, 0, 1]])

    filtered = encoded_filter(encoded, update=True)

    np.testing.assert_array_equal(filtered[0, :4], [np.nan, -np.inf, 0, 0])
    assert encoded_filter.statistics.running_stats.n == 1


@pytest.mark.parametrize("shape", [(), (2,), (3, 1), (4, 5, 2)], ids=str)
def test_encoded_observations_of_another_shape_are_an_error(shape):
    encoded_filter = make_filter(spaces.Box(-9, 9, (2,)))

    with pytest.raises(ObservationError, match=r"expected encoded observations \[B, \*\("):
        encoded_filter(np.zeros(shape))


# --- copies and workers ---------------------------------------------------------------------------


def test_pickled_filter_filters_alike_and_learns_independently():
    encoded_filter = make_filter()
    encoded = sample_encoded(encoded_filter, rows=16)
    encoded_filter(encoded, update=True)

    copied = pickle.loads(pickle.dumps(encoded_filter))

    np.testing.assert_array_equal(copied(encoded), encoded_filter(encoded))
    copied(encoded + 1, update=True)
    assert copied.statistics.running_stats.n == 16 + 16
    assert encoded_filter.statistics.running_stats.n == 16


def test_apply_changes_adds_the_observations_of_a_worker():
    main_filter = make_filter(spaces.Box(-9, 9, (2,)))
    worker_filter = make_filter(spaces.Box(-9, 9, (2,)))
    main_filter(np.float32([[1, 2], [3, 4]]), update=True)
    worker_filter(np.float32([[5, 6]]), update=True)

    main_filter.statistics.apply_changes(worker_filter.statistics)

    # The observations have the means 3 and 4, and the deviation 2.
    filtered = main_filter(np.float32([[5, 2]]))
    np.testing.assert_allclose(filtered, [[1, -1]], rtol=1e-5)


def test_sync_takes_effect_after_the_filter_was_used():
    main_filter = make_filter(spaces.Box(-9, 9, (2,)))
    worker_filter = make_filter(spaces.Box(-9, 9, (2,)))
    encoded = np.float32([[1, 2], [3, 4]])
    main_filter(encoded, update=True)
    worker_filter(np.float32([[7, 8], [9, 9]]), update=True)  # has computed its scaling

    worker_filter.statistics.sync(main_filter.statistics)

    np.testing.assert_array_equal(worker_filter(encoded), main_filter(encoded))
