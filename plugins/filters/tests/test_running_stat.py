"""Running statistics against NumPy's over the stored stream."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from safetensors.numpy import load, save

from rlcatalog.errors import CatalogError, ObservationError, SavedPolicyError
from rlcatalog_filters import RunningStat

SHAPES = [(), (3,), (2, 0), (2, 3)]


def assert_knows(stat, stream, rtol=1e-12):
    """The statistics are those of the stream, by NumPy in two passes."""
    stream = np.asarray(stream, np.float64)
    assert stat.n == stat.num_pushes == len(stream)
    assert stat.shape == stat.mean.shape == stat.var.shape == stat.std.shape == stream.shape[1:]
    assert stat.mean.dtype == stat.var.dtype == stat.std.dtype == np.float64
    scale = np.abs(stream).max(initial=1e-300)
    np.testing.assert_allclose(stat.mean, stream.mean(0), rtol=rtol, atol=rtol * scale)
    np.testing.assert_allclose(stat.var, stream.var(0, ddof=1), rtol=rtol, atol=(rtol * scale) ** 2)
    np.testing.assert_allclose(stat.std, stream.std(0, ddof=1), rtol=rtol, atol=rtol * scale)


def state(stat):
    return {name: array.tolist() for name, array in stat.to_state().items()}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "uint8", "bool"])
def test_statistics_of_a_stream_are_numpys(shape, dtype):
    stream = (np.random.default_rng(0).normal(3, 2, (50, *shape)) * 10).astype(dtype)
    one_by_one, at_once, in_batches = RunningStat(shape), RunningStat(shape), RunningStat(shape)
    for x in stream:
        one_by_one.push(x)
    at_once.push_batch(stream)
    for batch in np.split(stream, [1, 1, 20, 49]):
        in_batches.push_batch(batch)
    for stat in (one_by_one, at_once, in_batches):
        assert_knows(stat, stream)


def test_lists_and_numbers_are_taken():
    stat, scalar = RunningStat([2]), RunningStat()
    stat.push([1, 5])
    stat.push_batch([[3.0, 5.0]])
    scalar.push(4)
    scalar.push_batch([6, 8])
    assert_knows(stat, [[1, 5], [3, 5]])
    assert_knows(scalar, [4, 6, 8])


def test_nothing_seen_is_zero():
    stat = RunningStat((2,))
    assert (stat.n, stat.mean.tolist(), stat.var.tolist(), stat.std.tolist()) == (
        0,
        [0, 0],
        [0, 0],
        [0, 0],
    )


def test_variance_of_one_value_is_the_square_of_its_mean():
    """RLlib's convention, on which its filter's first result, 0, rests."""
    for push in ("push", "push_batch"):
        stat = RunningStat((2,))
        getattr(stat, push)([-3.0, 0.5] if push == "push" else [[-3.0, 0.5]])
        assert (stat.var.tolist(), stat.std.tolist()) == ([9.0, 0.25], [3.0, 0.5])


@pytest.mark.parametrize("size", [1, 7, 2000])
def test_a_large_mean_does_not_drown_the_variance(size):
    """With sums of squares in float64, a mean of 1e8 leaves no digit of a variance of 1."""
    stream = np.random.default_rng(1).normal(1e8, 1.0, 2000)
    naive = (stream**2).mean() - stream.mean() ** 2
    assert not np.isclose(naive, 1.0, atol=0.2)
    stat = RunningStat()
    for start in range(0, len(stream), size):
        stat.push_batch(stream[start : start + size])
    exact = (stream - 1e8).var(ddof=1)  # the subtraction is exact
    assert stat.var == pytest.approx(exact, rel=1e-6)
    assert stat.mean == pytest.approx(1e8, abs=0.1)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_merging_in_any_split_and_order_gives_the_whole(data):
    stream = data.draw(st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=40))
    stream = np.asarray(stream)[:, None] * [1.0, -3.0]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    parts = []
    for piece in np.split(stream, cuts):
        parts.append(RunningStat((2,)))
        parts[-1].push_batch(piece)
    while len(parts) > 1:  # any two at a time: in any order and any tree
        parts = data.draw(st.permutations(parts))
        parts[0].update(parts.pop())
    assert_knows(parts[0], stream, rtol=1e-9)


def test_merging_leaves_the_other_as_it_was():
    one, other = RunningStat((2,)), RunningStat((2,))
    one.push_batch([[1.0, 2.0], [3.0, 4.0]])
    other.push_batch([[5.0, 6.0]])
    before = state(other)
    one.update(other)
    assert state(other) == before
    assert_knows(one, [[1, 2], [3, 4], [5, 6]])
    one.update(RunningStat((2,)))
    assert_knows(one, [[1, 2], [3, 4], [5, 6]])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
def test_what_is_not_finite_is_refused_before_anything_changes(bad):
    stat = RunningStat((2,))
    stat.push_batch([[1.0, 2.0], [3.0, 5.0]])
    before = state(stat)
    with pytest.raises(
        ObservationError, match=r"expected finite values.*at \[0, 1\].*nothing was changed"
    ):
        stat.push([0.0, bad])
    with pytest.raises(
        ObservationError, match=r"found .*at \[2, 0\] of an array of shape \(3, 2\)"
    ):
        stat.push_batch([[0.0, 0.0], [1.0, 1.0], [bad, 1.0]])
    assert state(stat) == before


def test_sums_that_would_overflow_are_refused_before_anything_changes():
    stat = RunningStat()
    stat.push(1.2e154)
    before = state(stat)
    with pytest.raises(ObservationError, match="too large"):
        stat.push(-1.2e154)
    assert state(stat) == before
    assert np.isfinite(stat.std)


@pytest.mark.parametrize(
    ("push", "value", "found"),
    [
        ("push", np.zeros(2), "(2,)"),
        ("push", np.zeros((1, 3)), "(1, 3)"),
        ("push", 1.0, "()"),
        ("push_batch", np.zeros(3), "(3,)"),
        ("push_batch", np.zeros((4, 2)), "(4, 2)"),
        ("push_batch", 1.0, "()"),
    ],
)
def test_a_wrong_shape_is_refused_and_both_are_named(push, value, found):
    stat = RunningStat((3,))
    with pytest.raises(ValueError) as caught:
        getattr(stat, push)(value)
    assert isinstance(caught.value, CatalogError)
    assert "(3,)" in str(caught.value)
    assert f"found shape {found}." in str(caught.value)
    assert stat.n == 0


def test_statistics_of_another_shape_are_not_merged():
    with pytest.raises(ValueError, match=r"shape \(3,\).*found shape \(2,\)"):
        RunningStat((3,)).update(RunningStat((2,)))


@pytest.mark.parametrize("value", ["abc", None, [1, "a"], 1j])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ObservationError, match=r"expected numbers, found .* of dtype"):
        RunningStat().push(value)


def test_the_values_themselves_are_left_alone():
    batch = np.arange(6.0).reshape(3, 2)
    RunningStat((2,)).push_batch(batch)
    np.testing.assert_array_equal(batch, np.arange(6.0).reshape(3, 2))


def test_results_cannot_be_changed_from_outside():
    stat = RunningStat((2,))
    stat.push_batch(np.ones((3, 2)))
    with pytest.raises(ValueError, match="read-only"):
        stat.mean[0] = 7
    stat.to_state()["mean"][0] = 7
    assert stat.mean.tolist() == [1, 1]


@pytest.mark.parametrize("shape", SHAPES)
def test_state_goes_through_safetensors_and_back_bit_for_bit(shape):
    stat = RunningStat(shape)
    stat.push_batch(np.random.default_rng(2).normal(size=(5, *shape)))
    for restored in (
        RunningStat.from_state(load(save(stat.to_state()))),
        pickle.loads(pickle.dumps(stat)),
        stat.copy(),
    ):
        assert state(restored) == state(stat)
        assert restored.shape == shape
        restored.push(np.zeros(shape))
        assert (restored.n, stat.n) == (6, 5)


@pytest.mark.parametrize(
    "damage",
    [
        {"n": np.array(-1)},
        {"n": np.array(2.0)},
        {"n": np.array([2])},
        {"mean": np.zeros(3)},
        {"mean": np.zeros(2, np.float32)},
        {"m2": np.array([1.0, -1.0])},
        {"m2": np.array([1.0, np.inf])},
        {"mean": np.array([np.nan, 0.0])},
    ],
)
def test_a_damaged_state_is_refused(damage):
    stat = RunningStat((2,))
    stat.push_batch(np.ones((3, 2)))
    with pytest.raises(SavedPolicyError, match="expected an integer n >= 0"):
        RunningStat.from_state({**stat.to_state(), **damage})


def test_an_incomplete_state_is_refused():
    with pytest.raises(SavedPolicyError, match=r"missing \['m2'\], found \['mean', 'n'\]"):
        RunningStat.from_state({"n": np.array(0), "mean": np.zeros(2)})


def test_repr_says_how_much_was_seen():
    assert repr(RunningStat((2,))) == "RunningStat(n=0, shape=(2,))"
