"""`MeanStdFilter` called as RLlib's users call it, against NumPy over the stored stream."""

import pickle

import numpy as np
import pytest

import rlcatalog_filters
from rlcatalog.errors import ConfigError, ObservationError
from rlcatalog_filters import MeanStdFilter, NoFilter, RunningStat

RNG = np.random.default_rng(0)


def normalised(x, stream, demean=True, destd=True, clip=10.0):
    """The definition, over everything seen so far."""
    stream = np.asarray(stream, np.float64)
    mean = stream.mean(0) if demean else 0.0
    std = stream.std(0, ddof=1) + 1e-6 if destd else 1.0
    out = (np.asarray(x, np.float64) - mean) / std
    return out if clip is None else np.clip(out, -clip, clip)


def assert_close(found, expected):
    assert found.dtype == np.float32
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("demean", [True, False])
@pytest.mark.parametrize("destd", [True, False])
@pytest.mark.parametrize("clip", [None, 1.0])
def test_each_observation_is_normalised_by_all_so_far(shape, demean, destd, clip):
    stream = RNG.normal(3, 2, (20, *shape))
    f = MeanStdFilter(shape, demean=demean, destd=destd, clip=clip)
    f(stream[0])
    for i in range(1, len(stream)):
        assert_close(f(stream[i]), normalised(stream[i], stream[: i + 1], demean, destd, clip))
    assert f.running_stats.n == len(stream)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_a_batch_is_learned_from_at_once_and_then_normalised(shape):
    stream = RNG.normal(3, 2, (20, *shape)).astype(np.float32)
    f = MeanStdFilter(shape)
    assert_close(f(stream[:12]), normalised(stream[:12], stream[:12]))
    assert_close(f(stream[12:]), normalised(stream[12:], stream))
    assert f(stream[:0]).shape == (0, *shape)
    assert f.running_stats.n == 20


def test_integer_observations_are_not_truncated_to_zero():
    """RLlib casts the result back to the input's dtype: all of these become 0 there."""
    stream = np.array([[0, 100], [2, 104], [1, 90]])
    for dtype in (np.int64, np.uint8, np.int32):
        f = MeanStdFilter((2,))
        f(stream.astype(dtype))
        assert_close(f(stream.astype(dtype), update=False), normalised(stream, stream))
        assert_close(f(stream[0].astype(dtype), update=False), normalised(stream[0], stream))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "bool"])
def test_the_result_is_float32_whatever_comes_in(dtype):
    f = MeanStdFilter((2,))
    for update in (False, True, True, False):
        assert f(np.ones(2, dtype), update=update).dtype == np.float32


def test_a_large_mean_keeps_its_digits():
    stream = RNG.normal(1e8, 1.0, (500, 1))
    f = MeanStdFilter((1,))
    f(stream)
    expected = (stream - 1e8 - (stream - 1e8).mean()) / (stream - 1e8).std(ddof=1)
    np.testing.assert_allclose(f(stream, update=False), expected, atol=1e-5)


def test_the_first_value_becomes_zero():
    assert MeanStdFilter((3,))([5.0, -2.0, 0.0]).tolist() == [0, 0, 0]


def test_before_the_first_value_nothing_is_scaled():
    """RLlib divides by 1e-6 there. Results still lie within the clip bounds."""
    assert MeanStdFilter((2,))([3.0, -40.0], update=False).tolist() == [3.0, -10.0]
    assert MeanStdFilter((2,), clip=None)([3.0, -40.0], update=False).tolist() == [3.0, -40.0]


def test_what_never_varies_becomes_zero():
    f = MeanStdFilter((1,))
    f(np.full((5, 1), 7.0))
    assert f([7.0], update=False).tolist() == [0.0]
    assert f([8.0], update=False).tolist() == [10.0]  # a novelty stands out, within the bounds


def test_without_update_nothing_is_learned():
    f = MeanStdFilter((2,))
    f(RNG.normal(size=(5, 2)))
    before = f.running_stats.to_state()
    f(RNG.normal(size=(5, 2)), update=False)
    f(np.full(2, np.nan), False)
    for name, array in f.running_stats.to_state().items():
        np.testing.assert_array_equal(array, before[name])
    assert f.buffer.n == 5


def test_the_input_is_left_alone():
    x = np.full((2, 2), 3.0, np.float32)
    out = MeanStdFilter((2,))(x)
    assert x.tolist() == [[3, 3], [3, 3]]
    assert not np.shares_memory(out, x)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused_before_anything_changes(bad):
    f = MeanStdFilter({"a": (2,), "b": ()})
    f({"a": [1.0, 2.0], "b": 3.0})
    for b in (bad, "text", [1.0, 2.0, bad]):
        with pytest.raises(ObservationError, match=r"x\['b'\]: "):
            f({"a": [[9.0, 9.0]], "b": b})
    assert (f.running_stats["a"].n, f.running_stats["b"].n, f.buffer["a"].n, f.buffer["b"].n) == (
        1,
        1,
        1,
        1,
    )


# --- structures -----------------------------------------------------------------------------------

NESTED = {"pose": ((3,), None, {"speed": ()}), "id": None}


def sample(batch=()):
    return {
        "pose": (
            RNG.normal(5, 3, (*batch, 3)),
            RNG.integers(4, size=batch),
            {"speed": RNG.normal(size=batch)},
        ),
        "id": "left alone",
    }


def test_structures_are_filtered_leaf_by_leaf():
    f = MeanStdFilter(NESTED)
    stream = [sample() for _ in range(10)]
    for x in stream:
        out = f(x)
    poses = [x["pose"][0] for x in stream]
    assert_close(out["pose"][0], normalised(poses[-1], poses))
    speeds = [x["pose"][2]["speed"] for x in stream]
    assert_close(out["pose"][2]["speed"], normalised(speeds[-1], speeds))
    assert isinstance(f.running_stats["pose"], tuple)
    assert isinstance(f.running_stats["pose"][2]["speed"], RunningStat)
    assert f.buffer["pose"][0].n == 10


def test_a_leaf_of_none_is_untouched():
    f, x = MeanStdFilter(NESTED), sample((4,))
    out = f(x)
    assert out["pose"][1] is x["pose"][1]
    assert out["id"] is x["id"]
    assert f.running_stats["id"] is None
    assert f.running_stats["pose"][1] is None
    assert MeanStdFilter(None)(x) is x


def test_batches_of_structures_are_learned_from_at_once():
    f, x = MeanStdFilter(NESTED), sample((6,))
    assert_close(f(x)["pose"][0], normalised(x["pose"][0], x["pose"][0]))
    assert f.running_stats["pose"][2]["speed"].n == 6


def test_shapes_as_rllib_gives_them_are_taken():
    f = MeanStdFilter((np.array((2,)), None, np.array(())))
    assert [stat.shape for stat in (f.running_stats[0], f.running_stats[2])] == [(2,), ()]
    assert (
        MeanStdFilter([2]).running_stats.shape
        == MeanStdFilter((np.int64(2),)).running_stats.shape
        == (2,)
    )


@pytest.mark.parametrize("shape", [3, "ab", ((2,), 3), {"a": 2.5}, (2.5,)])
def test_what_is_no_shape_is_refused(shape):
    with pytest.raises(ConfigError, match="shape must be a tuple of integers"):
        MeanStdFilter(shape)


@pytest.mark.parametrize("clip", [0, -1.0, float("nan")])
def test_a_clip_that_cuts_everything_is_refused(clip):
    with pytest.raises(ConfigError, match="clip must be a number above 0"):
        MeanStdFilter((2,), clip=clip)


@pytest.mark.parametrize(
    ("shape", "x", "message"),
    [
        ((3,), np.zeros(2), r"x: expected shape \(3,\), or a batch .*; found shape \(2,\)"),
        ((3,), np.zeros((2, 2, 3)), r"found shape \(2, 2, 3\)"),
        ((), np.zeros((2, 2)), r"x: expected shape \(\)"),
        ({"a": (2,)}, {"a": np.zeros(3)}, r"x\['a'\]: expected shape \(2,\)"),
        (
            {"a": (2,)},
            {"b": np.zeros(2)},
            r"x: expected a dict with the keys \['a'\], found \['b'\]",
        ),
        ({"a": (2,)}, np.zeros(2), r"x: expected a dict .* found ndarray"),
        (((2,), None), (np.zeros(2),), r"x: expected a tuple of 2 values, found 1 values"),
        (((2,), None), np.zeros(2), r"x: expected a tuple of 2 values, found ndarray"),
    ],
)
@pytest.mark.parametrize("update", [True, False])
def test_another_form_than_the_filters_is_refused(shape, x, message, update):
    with pytest.raises(ObservationError, match=message):
        MeanStdFilter(shape)(x, update=update)


# --- workers --------------------------------------------------------------------------------------


def round_of(local, workers, batches):
    """One round as RLlib's FilterManager does it: flush the workers' buffers into the local filter,
    send it back.
    """
    for worker, batch in zip(workers, batches, strict=True):
        worker(batch)
        local.apply_changes(pickle.loads(pickle.dumps(worker.as_serializable())))
        worker.reset_buffer()
    for worker in workers:
        worker.sync(local)
        worker.reset_buffer()


def test_workers_that_share_buffers_know_what_one_would_have_learned():
    local, workers = MeanStdFilter((3,)), [MeanStdFilter((3,)) for _ in range(3)]
    seen = []
    for _ in range(4):
        batches = [RNG.normal(2, 5, (7, 3)) for _ in workers]
        round_of(local, workers, batches)
        seen += batches
        stream = np.concatenate(seen)
        for f in (local, *workers):
            assert f.running_stats.n == len(stream)
            np.testing.assert_allclose(f.running_stats.mean, stream.mean(0), rtol=1e-12)
            np.testing.assert_allclose(f.running_stats.var, stream.var(0, ddof=1), rtol=1e-12)
            assert_close(f(stream[0], update=False), normalised(stream[0], stream))


def test_the_buffer_holds_what_came_since_it_was_reset():
    f = MeanStdFilter({"a": (), "b": None})
    f({"a": [1.0, 2.0], "b": 0})
    assert f.buffer["a"].mean == 1.5
    f.reset_buffer()
    assert f.buffer["a"].n == 0
    f({"a": [7.0, 9.0], "b": 0})
    assert (f.buffer["a"].n, f.buffer["a"].mean, f.running_stats["a"].n) == (2, 8.0, 4)


@pytest.mark.parametrize("with_buffer", [False, True])
def test_changes_are_taken_from_the_others_buffer_alone(with_buffer):
    here, there = MeanStdFilter(()), MeanStdFilter(())
    here([1.0, 3.0])
    there([100.0, 200.0])
    there.reset_buffer()
    there([5.0, 7.0, 9.0])
    here.apply_changes(there, with_buffer=with_buffer)
    assert (here.running_stats.n, here.running_stats.mean) == (5, 5.0)
    assert (here.buffer.n, here.buffer.mean) == ((3, 7.0) if with_buffer else (2, 2.0))
    assert (there.running_stats.n, there.buffer.n) == (5, 3)


def test_sync_takes_over_everything_and_shares_nothing():
    here, there = MeanStdFilter((2,)), MeanStdFilter((2,), demean=False, destd=False, clip=3.0)
    there(RNG.normal(size=(4, 2)))
    here.sync(there)
    assert (here.demean, here.destd, here.clip) == (False, False, 3.0)
    assert here.buffer.n == 4
    x = np.array([0.3, 50.0])
    np.testing.assert_array_equal(here(x, update=False), there(x, update=False))
    here(x)
    assert (here.running_stats.n, there.running_stats.n, there.buffer.n) == (5, 4, 4)


@pytest.mark.parametrize("method", ["copy", "as_serializable", "pickle"])
def test_copies_are_equal_and_independent(method):
    f = MeanStdFilter(NESTED, clip=2.0)
    f(sample((5,)))
    copied = pickle.loads(pickle.dumps(f)) if method == "pickle" else getattr(f, method)()
    x = sample()
    found, expected = copied(x, update=False), f(x, update=False)
    np.testing.assert_array_equal(found["pose"][0], expected["pose"][0])
    assert repr(copied) == repr(f)
    copied(x)
    assert (copied.running_stats["pose"][0].n, f.running_stats["pose"][0].n) == (6, 5)
    assert (copied.buffer["pose"][0].n, f.buffer["pose"][0].n) == (6, 5)


@pytest.mark.parametrize("method", ["apply_changes", "sync"])
@pytest.mark.parametrize("other", [(3,), {"a": (2,)}, ((2,),), None])
def test_filters_of_another_shape_are_not_mixed(method, other):
    with pytest.raises(ObservationError, match="expected a filter with shape"):
        getattr(MeanStdFilter((2,)), method)(MeanStdFilter(other))


# --- NoFilter -------------------------------------------------------------------------------------


def test_no_filter_hands_on_what_it_is_given():
    f = NoFilter((3,))
    for x in (np.arange(3), {"a": 1}, (1, 2)):
        assert f(x) is x
        assert f(x, update=False) is x
    assert f([1, 2]).tolist() == [1, 2]
    f.apply_changes(f, with_buffer=True)
    f.sync(f)
    f.reset_buffer()
    assert isinstance(f.copy(), NoFilter)
    assert isinstance(pickle.loads(pickle.dumps(f.as_serializable())), NoFilter)


def test_only_the_exported_names_are_found():
    for name in rlcatalog_filters.__all__:
        assert getattr(rlcatalog_filters, name).__name__ == name
    with pytest.raises(AttributeError, match="No rlcatalog_filters attribute Filter"):
        rlcatalog_filters.Filter
