"""`MeanStdFilter` as RLlib's users call it, compared with NumPy over all observations at once."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import rlcatalog_filters
from rlcatalog.errors import ConfigError, ObservationError
from rlcatalog_filters import MeanStdFilter, NoFilter

RANDOM = np.random.default_rng(0)


def normalize(x, observations, *, demean=True, destd=True, clip=10.0):
    """Return x minus the observations' mean, divided by their deviation, and clipped."""
    observations = np.asarray(observations, np.float64)
    x = np.asarray(x, np.float64)
    if demean:
        x = x - observations.mean(0)
    if destd:
        x = x / (observations.std(0, ddof=1) + 1e-6)
    return x if clip is None else np.clip(x, -clip, clip)


def assert_close(filtered, expected):
    assert filtered.dtype == np.float32
    assert filtered.shape == np.shape(expected)
    np.testing.assert_allclose(filtered, expected, rtol=1e-5, atol=1e-6)


# --- filtering ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 1.0),  # (5 - 3) / 2
        ({"demean": False}, 2.5),  # 5 / 2
        ({"destd": False}, 2.0),  # 5 - 3
        ({"demean": False, "destd": False}, 5.0),
        ({"destd": False, "clip": 1.5}, 1.5),
    ],
    ids=str,
)
def test_observation_is_normalized_by_all_up_to_it(options, expected):
    mean_std = MeanStdFilter((), **options)

    mean_std(1.0)
    mean_std(3.0)
    filtered = mean_std(5.0)

    # The mean of 1, 3 and 5 is 3, and their deviation is 2.
    assert_close(filtered, expected)
    assert mean_std.running_stats.n == 3


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=str)
def test_batch_is_normalized_by_all_including_itself(shape):
    observations = RANDOM.normal(3, 2, (20, *shape)).astype(np.float32)
    mean_std = MeanStdFilter(shape)

    first_batch = mean_std(observations[:12])
    second_batch = mean_std(observations[12:])

    assert_close(first_batch, normalize(observations[:12], observations[:12]))
    assert_close(second_batch, normalize(observations[12:], observations))
    assert mean_std.running_stats.n == 20


def test_empty_batch_is_filtered_to_an_empty_batch():
    mean_std = MeanStdFilter((3,))
    mean_std(np.ones((4, 3)))

    assert mean_std(np.ones((0, 3))).shape == (0, 3)
    assert mean_std.running_stats.n == 4


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.int32])
def test_integers_are_filtered_to_floats(dtype):
    # RLlib converts the result back to integers, so that almost all of it becomes 0.
    observations = np.array([[0, 100], [2, 104], [1, 90]], dtype)
    mean_std = MeanStdFilter((2,))
    mean_std(observations)

    batch = mean_std(observations, update=False)
    single = mean_std(observations[0], update=False)

    assert_close(batch, normalize(observations, observations))
    assert_close(single, normalize(observations[0], observations))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "bool"])
@pytest.mark.parametrize("update", [True, False])
def test_result_is_float32(dtype, update):
    mean_std = MeanStdFilter((2,))

    before_any_update = mean_std(np.ones(2, dtype), update=update)
    mean_std(np.ones(2, dtype))
    after_an_update = mean_std(np.ones(2, dtype), update=update)

    assert before_any_update.dtype == np.float32
    assert after_an_update.dtype == np.float32


def test_numbers_beside_a_large_mean_keep_their_digits():
    observations = RANDOM.normal(1e8, 1.0, (500, 1))
    mean_std = MeanStdFilter((1,))
    mean_std(observations)

    filtered = mean_std(observations, update=False)

    small = observations - 1e8
    np.testing.assert_allclose(filtered, (small - small.mean()) / small.std(ddof=1), atol=1e-5)


def test_first_observation_becomes_zero():
    assert MeanStdFilter((3,))([5.0, -2.0, 0.0]).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("clip", "expected"), [(10.0, [3.0, -10.0]), (None, [3.0, -40.0])])
def test_observation_is_only_clipped_before_anything_was_learned(clip, expected):
    # RLlib divides by 1e-6 here.
    mean_std = MeanStdFilter((2,), clip=clip)

    assert mean_std([3.0, -40.0], update=False).tolist() == expected


def test_constant_observation_becomes_zero():
    mean_std = MeanStdFilter((1,))
    mean_std(np.full((5, 1), 7.0))

    assert mean_std([7.0], update=False).tolist() == [0.0]


def test_change_of_a_constant_is_clipped():
    mean_std = MeanStdFilter((1,))
    mean_std(np.full((5, 1), 7.0))

    # The deviation is 0, so that the change by 1 is divided by 1e-6.
    assert mean_std([8.0], update=False).tolist() == [10.0]


def test_filter_does_not_learn_without_update():
    mean_std = MeanStdFilter((2,))
    mean_std([[1.0, 2.0], [3.0, 4.0]])

    mean_std([[5.0, 6.0]], update=False)
    mean_std([np.nan, np.nan], update=False)

    assert mean_std.running_stats.mean.tolist() == [2, 3]
    assert mean_std.running_stats.n == 2
    assert mean_std.buffer.n == 2


def test_update_may_be_positional():
    mean_std = MeanStdFilter((2,))

    mean_std([1.0, 2.0], False)

    assert mean_std.running_stats.n == 0


def test_filter_does_not_change_its_input():
    x = np.full((2, 2), 3.0, np.float32)

    filtered = MeanStdFilter((2,))(x)

    assert x.tolist() == [[3, 3], [3, 3]]
    assert not np.shares_memory(filtered, x)


# --- structures -----------------------------------------------------------------------------------


def test_leaves_of_a_structure_are_filtered():
    # Where the shape is None, nothing is filtered.
    mean_std = MeanStdFilter({"pose": ((2,), None), "speed": (), "id": None})

    mean_std({"pose": ([0.0, 1.0], 3), "speed": 10.0, "id": "first"})
    filtered = mean_std({"pose": ([2.0, 5.0], 4), "speed": 14.0, "id": "second"})

    # The second of two values is half their difference above the mean, which is
    # 1 / sqrt(2) = 0.7071 of their deviation.
    assert_close(filtered["pose"][0], [0.70711, 0.70711])
    assert_close(filtered["speed"], 0.70711)
    assert filtered["pose"][1] == 4
    assert filtered["id"] == "second"


def test_statistics_have_the_structure_of_the_shape():
    mean_std = MeanStdFilter({"pose": ((2,), None), "speed": ()})

    pose, nothing = mean_std.running_stats["pose"]
    assert isinstance(mean_std.running_stats["pose"], tuple)
    assert pose.shape == (2,)
    assert nothing is None
    assert mean_std.running_stats["speed"].shape == ()
    assert mean_std.buffer["speed"].shape == ()


def test_filter_of_none_returns_its_input():
    obs = {"id": "a text"}

    assert MeanStdFilter(None)(obs) is obs


def test_batch_of_structures_is_normalized_by_itself():
    mean_std = MeanStdFilter({"pose": (2,), "speed": ()})

    filtered = mean_std({"pose": [[0.0, 1.0], [2.0, 5.0]], "speed": [10.0, 14.0]})

    # As above, both values are 1 / sqrt(2) deviations from their mean.
    assert_close(filtered["pose"], [[-0.70711, -0.70711], [0.70711, 0.70711]])
    assert_close(filtered["speed"], [-0.70711, 0.70711])
    assert mean_std.running_stats["speed"].n == 2


def test_shapes_in_a_tuple_may_be_arrays():
    # RLlib converts each shape of a structure to an array.
    first, second, third = MeanStdFilter((np.array((2,)), None, np.array(()))).running_stats

    assert first.shape == (2,)
    assert second is None
    assert third.shape == ()


@pytest.mark.parametrize("shape", [[2], (np.int64(2),)], ids=["list", "numpy-integer"])
def test_shape_may_be_a_list_or_have_numpy_integers(shape):
    assert MeanStdFilter(shape).running_stats.shape == (2,)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad_value", [np.nan, np.inf, "text", [1.0, 2.0, np.nan], [1.0, np.inf]])
def test_bad_value_in_a_leaf_changes_no_statistics(bad_value):
    mean_std = MeanStdFilter({"a": (2,), "b": ()})
    mean_std({"a": [1.0, 2.0], "b": 3.0})

    with pytest.raises(ObservationError, match=r"x\['b'\]: "):
        mean_std({"a": [[9.0, 9.0]], "b": bad_value})

    for stats in (mean_std.running_stats, mean_std.buffer):
        assert stats["a"].n == 1
        assert stats["b"].n == 1


@pytest.mark.parametrize("shape", [3, "ab", ((2,), 3), {"a": 2.5}, (2.5,)], ids=str)
def test_invalid_shape_is_an_error(shape):
    with pytest.raises(ConfigError, match="shape must be a tuple of integers"):
        MeanStdFilter(shape)


@pytest.mark.parametrize("clip", [0, -1.0, float("nan")])
def test_clip_must_be_positive(clip):
    with pytest.raises(ConfigError, match="clip must be a number above 0"):
        MeanStdFilter((2,), clip=clip)


@pytest.mark.parametrize("update", [True, False], ids=["update", "no-update"])
@pytest.mark.parametrize(
    ("shape", "x", "match"),
    [
        pytest.param(
            (3,),
            np.zeros(2),
            r"shape \(3,\), or .*; found shape \(2,\)",
            id="length",
        ),
        pytest.param((3,), np.zeros((2, 2, 3)), r"found shape \(2, 2, 3\)", id="three-axes"),
        pytest.param((), np.zeros((2, 2)), r"x: expected shape \(\)", id="two-axes"),
        pytest.param(
            {"a": (2,)}, {"a": np.zeros(3)}, r"x\['a'\]: expected shape \(2,\)", id="entry"
        ),
        pytest.param(
            {"a": (2,)},
            {"b": np.zeros(2)},
            r"with the keys \['a'\], found \['b'\]",
            id="keys",
        ),
        pytest.param(
            {"a": (2,)}, np.zeros(2), r"x: expected a dict .* found ndarray", id="no-dict"
        ),
        pytest.param(
            ((2,), None),
            (np.zeros(2),),
            "a tuple of 2 values, found 1 values",
            id="shorter-tuple",
        ),
        pytest.param(
            ((2,), None),
            np.zeros(2),
            "a tuple of 2 values, found ndarray",
            id="no-tuple",
        ),
    ],
)
def test_observation_of_another_shape_is_an_error(shape, x, match, update):
    with pytest.raises(ObservationError, match=match):
        MeanStdFilter(shape)(x, update=update)


# --- workers --------------------------------------------------------------------------------------


def synchronize(local_filter, worker_filters):
    """Send the workers' buffers to the local filter, and its statistics back, as RLlib's
    FilterManager does.
    """
    for worker_filter in worker_filters:
        sent = pickle.loads(pickle.dumps(worker_filter.as_serializable()))
        local_filter.apply_changes(sent)
        worker_filter.reset_buffer()
    for worker_filter in worker_filters:
        worker_filter.sync(local_filter)
        worker_filter.reset_buffer()


def test_synchronized_workers_know_all_observations():
    local_filter = MeanStdFilter((3,))
    worker_filters = [MeanStdFilter((3,)), MeanStdFilter((3,))]
    observations = []

    for _ in range(4):
        for worker_filter in worker_filters:
            batch = RANDOM.normal(loc=2, scale=5, size=(7, 3))
            worker_filter(batch)
            observations.extend(batch)
        synchronize(local_filter, worker_filters)

    for mean_std in (local_filter, *worker_filters):
        stats = mean_std.running_stats
        assert stats.n == len(observations)
        np.testing.assert_allclose(stats.mean, np.mean(observations, axis=0), rtol=1e-12)
        np.testing.assert_allclose(stats.var, np.var(observations, axis=0, ddof=1), rtol=1e-12)


def test_buffer_has_the_statistics_since_its_reset():
    mean_std = MeanStdFilter(())
    mean_std([1.0, 2.0])
    assert mean_std.buffer.mean == 1.5

    mean_std.reset_buffer()
    assert mean_std.buffer.n == 0

    mean_std([7.0, 9.0])
    assert mean_std.buffer.n == 2
    assert mean_std.buffer.mean == 8.0
    assert mean_std.running_stats.n == 4


@pytest.fixture
def filter_with_buffer():
    """A filter that has learned from 100 and 200, with 5, 7 and 9 in its buffer."""
    mean_std = MeanStdFilter(())
    mean_std([100.0, 200.0])
    mean_std.reset_buffer()
    mean_std([5.0, 7.0, 9.0])
    return mean_std


@pytest.mark.parametrize("with_buffer", [False, True], ids=["stats-only", "with-buffer"])
def test_apply_changes_adds_the_buffer_of_the_other(filter_with_buffer, with_buffer):
    mean_std = MeanStdFilter(())
    mean_std([1.0, 3.0])

    mean_std.apply_changes(filter_with_buffer, with_buffer=with_buffer)

    assert mean_std.running_stats.n == 5
    assert mean_std.running_stats.mean == 5.0  # of 1, 3, 5, 7 and 9
    assert filter_with_buffer.running_stats.n == 5
    assert filter_with_buffer.buffer.n == 3


def test_apply_changes_keeps_the_own_buffer(filter_with_buffer):
    mean_std = MeanStdFilter(())
    mean_std([1.0, 3.0])

    mean_std.apply_changes(filter_with_buffer)

    assert mean_std.buffer.n == 2
    assert mean_std.buffer.mean == 2.0  # of 1 and 3


def test_apply_changes_replaces_the_own_buffer_on_request(filter_with_buffer):
    mean_std = MeanStdFilter(())
    mean_std([1.0, 3.0])

    mean_std.apply_changes(filter_with_buffer, with_buffer=True)

    assert mean_std.buffer.n == 3
    assert mean_std.buffer.mean == 7.0  # of 5, 7 and 9


def test_sync_copies_settings_and_statistics():
    other = MeanStdFilter((2,), demean=False, destd=False, clip=3.0)
    other([[1.0, 2.0], [3.0, 4.0]])
    mean_std = MeanStdFilter((2,))

    mean_std.sync(other)

    assert mean_std.demean is False
    assert mean_std.destd is False
    assert mean_std.clip == 3.0
    assert mean_std.running_stats.mean.tolist() == [2, 3]
    assert mean_std.buffer.n == 2


def test_synced_filter_learns_independently():
    other = MeanStdFilter((2,))
    other([[1.0, 2.0], [3.0, 4.0]])
    mean_std = MeanStdFilter((2,))

    mean_std.sync(other)
    mean_std([5.0, 6.0])

    assert mean_std.running_stats.n == 3
    assert other.running_stats.n == 2
    assert other.buffer.n == 2


def pickle_and_unpickle(value):
    return pickle.loads(pickle.dumps(value))


all_copies = pytest.mark.parametrize(
    "make_copy",
    [MeanStdFilter.copy, MeanStdFilter.as_serializable, pickle_and_unpickle],
    ids=["copy", "as_serializable", "pickle"],
)


@all_copies
def test_copy_filters_alike(make_copy):
    mean_std = MeanStdFilter({"speed": (), "id": None}, clip=2.0)
    mean_std({"speed": [1.0, 3.0], "id": "first"})

    copied = make_copy(mean_std)

    obs = {"speed": 4.0, "id": "second"}
    assert copied(obs, update=False) == mean_std(obs, update=False)
    assert repr(copied) == repr(mean_std)


@all_copies
def test_copy_learns_independently(make_copy):
    mean_std = MeanStdFilter((2,))
    mean_std([[1.0, 2.0], [3.0, 4.0]])

    copied = make_copy(mean_std)
    copied([5.0, 6.0])

    assert copied.running_stats.n == 3
    assert copied.buffer.n == 3
    assert mean_std.running_stats.n == 2
    assert mean_std.buffer.n == 2


@pytest.mark.parametrize("method", ["apply_changes", "sync"])
@pytest.mark.parametrize("other_shape", [(3,), {"a": (2,)}, ((2,),), None], ids=str)
def test_filters_of_another_shape_are_not_combined(method, other_shape):
    mean_std = MeanStdFilter((2,))

    with pytest.raises(ObservationError, match="expected a filter with shape"):
        getattr(mean_std, method)(MeanStdFilter(other_shape))


# --- NoFilter -------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [np.arange(3), {"a": 1}, (1, 2)], ids=["array", "dict", "tuple"])
def test_nofilter_returns_its_input(x):
    no_filter = NoFilter((3,))

    assert no_filter(x) is x
    assert no_filter(x, update=False) is x


def test_nofilter_returns_a_list_as_an_array():
    assert NoFilter((3,))([1, 2]).tolist() == [1, 2]


def test_nofilter_has_the_methods_of_a_filter():
    no_filter = NoFilter((3,))

    no_filter.apply_changes(no_filter, with_buffer=True)
    no_filter.sync(no_filter)
    no_filter.reset_buffer()

    assert isinstance(no_filter.copy(), NoFilter)
    assert isinstance(pickle_and_unpickle(no_filter.as_serializable()), NoFilter)


# --- the package ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", rlcatalog_filters.__all__)
def test_package_exports_a_name(name):
    assert getattr(rlcatalog_filters, name).__name__ == name


def test_package_has_no_other_names():
    with pytest.raises(AttributeError, match="No rlcatalog_filters attribute Filter"):
        rlcatalog_filters.Filter
