"""Running statistics, compared with NumPy's over all values at once."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from safetensors.numpy import load, save

from rlcatalog.errors import CatalogError, ObservationError, SavedPolicyError
from rlcatalog_filters import RunningStat
from rlcatalog_filters.running_stat import worst_place

SHAPES = [(), (3,), (2, 0), (2, 3)]


def assert_statistics_of(stat, values, rtol=1e-12):
    """Check that these are the count, mean, variance and deviation of the values."""
    values = np.asarray(values, np.float64)
    assert stat.n == len(values)
    assert stat.num_pushes == len(values)
    assert stat.shape == values.shape[1:]
    scale = np.abs(values).max(initial=1e-300)
    np.testing.assert_allclose(stat.mean, values.mean(0), rtol=rtol, atol=rtol * scale)
    np.testing.assert_allclose(stat.var, values.var(0, ddof=1), rtol=rtol, atol=(rtol * scale) ** 2)
    np.testing.assert_allclose(stat.std, values.std(0, ddof=1), rtol=rtol, atol=rtol * scale)
    for array in (stat.mean, stat.var, stat.std):
        assert array.shape == values.shape[1:]
        assert array.dtype == np.float64


def read_state(stat):
    return {name: array.tolist() for name, array in stat.to_state().items()}


def stat_of(batch):
    """Return the statistics of these values."""
    stat = RunningStat(np.shape(batch)[1:])
    stat.push_batch(batch)
    return stat


# --- values ---------------------------------------------------------------------------------------


@pytest.fixture(
    params=[
        *(("float64", shape) for shape in SHAPES),
        *((dtype, (3,)) for dtype in ("float32", "float16", "int64", "uint8", "bool")),
    ],
    ids=str,
)
def fifty_values(request):
    """Fifty random values of a dtype and a shape."""
    dtype, shape = request.param
    values = np.random.default_rng(0).normal(3, 2, (50, *shape)) * 10
    return values.astype(dtype)


def test_push_adds_a_value(fifty_values):
    stat = RunningStat(fifty_values.shape[1:])

    for value in fifty_values:
        stat.push(value)

    assert_statistics_of(stat, fifty_values)


def test_push_batch_adds_all_values(fifty_values):
    stat = RunningStat(fifty_values.shape[1:])

    stat.push_batch(fifty_values)

    assert_statistics_of(stat, fifty_values)


def test_push_batch_may_be_called_with_batches_of_any_size(fifty_values):
    stat = RunningStat(fifty_values.shape[1:])

    for batch in np.split(fifty_values, [1, 1, 20, 49]):  # 1, 0, 19, 29 and 1 values
        stat.push_batch(batch)

    assert_statistics_of(stat, fifty_values)


def test_values_may_be_lists():
    stat = RunningStat([2])

    stat.push([1, 5])
    stat.push_batch([[3.0, 5.0]])

    assert_statistics_of(stat, [[1, 5], [3, 5]])


def test_values_may_be_numbers():
    stat = RunningStat()

    stat.push(4)
    stat.push_batch([6, 8])

    assert_statistics_of(stat, [4, 6, 8])


def test_statistics_of_no_values_are_zero():
    stat = RunningStat((2,))

    assert stat.n == 0
    assert stat.mean.tolist() == [0, 0]
    assert stat.var.tolist() == [0, 0]
    assert stat.std.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("method", "value"), [("push", [-3.0, 0.5]), ("push_batch", [[-3.0, 0.5]])]
)
def test_variance_of_one_value_is_its_square(method, value):
    # This is RLlib's convention, because of which the first value is filtered to 0.
    stat = RunningStat((2,))

    getattr(stat, method)(value)

    assert stat.var.tolist() == [9.0, 0.25]
    assert stat.std.tolist() == [3.0, 0.5]


@pytest.mark.parametrize("batch_size", [1, 7, 2000])
def test_variance_beside_a_large_mean_is_exact(batch_size):
    # A sum of squares has 16 digits, so it would lose a variance of 1 beside 1e8 squared.
    values = np.random.default_rng(1).normal(1e8, 1.0, 2000)
    stat = RunningStat()

    for start in range(0, len(values), batch_size):
        stat.push_batch(values[start : start + batch_size])

    small_values = values - 1e8  # exact, with the same variance
    assert stat.var == pytest.approx(small_values.var(ddof=1), rel=1e-6)
    assert stat.mean == pytest.approx(1e8, abs=0.1)


def test_pushed_values_are_not_changed():
    batch = np.arange(6.0).reshape(3, 2)

    RunningStat((2,)).push_batch(batch)

    np.testing.assert_array_equal(batch, np.arange(6.0).reshape(3, 2))


def test_mean_is_read_only():
    stat = stat_of(np.ones((3, 2)))

    with pytest.raises(ValueError, match="read-only"):
        stat.mean[0] = 7


def test_changing_a_state_does_not_change_the_statistics():
    stat = stat_of(np.ones((3, 2)))

    stat.to_state()["mean"][0] = 7

    assert stat.mean.tolist() == [1, 1]


def test_repr_contains_the_number_of_values():
    assert repr(RunningStat((2,))) == "RunningStat(n=0, shape=(2,))"


# --- merging --------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=40), data=st.data())
def test_parts_may_be_merged_in_any_order(values, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=6)))
    stats = [stat_of(part) for part in np.split(np.array(values), cuts)]

    while len(stats) > 1:
        stats = data.draw(st.permutations(stats))
        last = stats.pop()
        stats[0].update(last)

    assert_statistics_of(stats[0], values, rtol=1e-9)


def test_update_adds_the_values_of_the_other():
    stat = stat_of([[1.0, 2.0], [3.0, 4.0]])

    stat.update(stat_of([[5.0, 6.0]]))

    assert_statistics_of(stat, [[1, 2], [3, 4], [5, 6]])


def test_update_does_not_change_the_other():
    stat = stat_of([[1.0, 2.0], [3.0, 4.0]])
    other = stat_of([[5.0, 6.0]])
    state_before = read_state(other)

    stat.update(other)

    assert read_state(other) == state_before


def test_update_with_empty_statistics_changes_nothing():
    stat = stat_of([[1.0, 2.0], [3.0, 4.0]])

    stat.update(RunningStat((2,)))

    assert_statistics_of(stat, [[1, 2], [3, 4]])


def test_update_with_statistics_of_another_shape_is_an_error():
    with pytest.raises(ValueError, match=r"shape \(3,\).*found shape \(2,\)"):
        RunningStat((3,)).update(RunningStat((2,)))


# --- values that are rejected ---------------------------------------------------------------------


# The square of 1e200 overflows.
unusable_numbers = pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e200])


@unusable_numbers
def test_push_rejects_numbers_without_a_finite_square(number):
    stat = stat_of([[1.0, 2.0], [3.0, 5.0]])
    state_before = read_state(stat)

    with pytest.raises(ObservationError, match=r"expected finite values.*at \[0, 1\]") as caught:
        stat.push([0.0, number])

    assert "nothing was changed" in str(caught.value)
    assert read_state(stat) == state_before


@unusable_numbers
def test_push_batch_rejects_numbers_without_a_finite_square(number):
    stat = stat_of([[1.0, 2.0], [3.0, 5.0]])
    state_before = read_state(stat)

    with pytest.raises(ObservationError, match=r"at \[2, 0\] of an array of shape"):
        stat.push_batch([[0.0, 0.0], [1.0, 1.0], [number, 1.0]])

    assert read_state(stat) == state_before


def test_push_rejects_a_value_with_which_sums_overflow():
    stat = RunningStat()
    stat.push(1.2e154)  # twice its square is beyond float64
    state_before = read_state(stat)

    with pytest.raises(ObservationError, match="too large"):
        stat.push(-1.2e154)

    assert read_state(stat) == state_before
    assert np.isfinite(stat.std)


@pytest.mark.parametrize(
    ("method", "value", "shape"),
    [
        ("push", np.zeros(2), "(2,)"),
        ("push", np.zeros((1, 3)), "(1, 3)"),
        ("push", 1.0, "()"),
        ("push_batch", np.zeros(3), "(3,)"),
        ("push_batch", np.zeros((4, 2)), "(4, 2)"),
        ("push_batch", 1.0, "()"),
    ],
)
def test_error_for_another_shape_names_both(method, value, shape):
    stat = RunningStat((3,))

    with pytest.raises(ValueError, match="found shape") as caught:
        getattr(stat, method)(value)

    assert isinstance(caught.value, CatalogError)
    assert "(3,)" in str(caught.value)
    assert f"found shape {shape}." in str(caught.value)
    assert stat.n == 0


@pytest.mark.parametrize("value", ["abc", None, [1, "a"], 1j], ids=repr)
def test_push_rejects_values_that_are_not_numbers(value):
    with pytest.raises(ObservationError, match=r"expected numbers, found .* of dtype"):
        RunningStat().push(value)


@pytest.mark.parametrize(
    ("batch", "place"),
    [
        ([[1, 2], [3, -9]], (1, 1)),
        ([[-5, 2], [3, 4]], (0, 0)),
        ([[1, 2], [7, -4]], (1, 0)),
    ],
)
def test_worst_place_is_that_of_the_largest_number(batch, place):
    assert worst_place(np.array(batch, np.float64)) == place


@pytest.mark.parametrize(
    ("batch", "place"),
    [([[1, 2], [np.nan, np.inf]], (1, 0)), ([[1, -np.inf], [np.nan, 2]], (0, 1))],
)
def test_worst_place_is_that_of_the_first_non_finite_number(batch, place):
    assert worst_place(np.array(batch, np.float64)) == place


# --- states ---------------------------------------------------------------------------------------


def save_and_load(stat):
    return RunningStat.from_state(load(save(stat.to_state())))


def pickle_and_unpickle(stat):
    return pickle.loads(pickle.dumps(stat))


all_copies = pytest.mark.parametrize(
    "make_copy",
    [save_and_load, pickle_and_unpickle, RunningStat.copy],
    ids=["safetensors", "pickle", "copy"],
)


@all_copies
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_copy_has_exactly_the_same_state(shape, make_copy):
    stat = stat_of(np.random.default_rng(2).normal(size=(5, *shape)))

    copied = make_copy(stat)

    assert read_state(copied) == read_state(stat)
    assert copied.shape == shape


@all_copies
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_copy_learns_independently(shape, make_copy):
    stat = stat_of(np.random.default_rng(2).normal(size=(5, *shape)))

    copied = make_copy(stat)
    copied.push(np.zeros(shape))

    assert copied.n == 6
    assert stat.n == 5


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param({"n": np.array(-1)}, id="n-negative"),
        pytest.param({"n": np.array(2.0)}, id="n-float"),
        pytest.param({"n": np.array([2])}, id="n-with-axis"),
        pytest.param({"mean": np.zeros(3)}, id="mean-of-another-shape"),
        pytest.param({"mean": np.zeros(2, np.float32)}, id="mean-of-another-dtype"),
        pytest.param({"m2": np.array([1.0, -1.0])}, id="m2-negative"),
        pytest.param({"m2": np.array([1.0, np.inf])}, id="m2-infinite"),
        pytest.param({"mean": np.array([np.nan, 0.0])}, id="mean-nan"),
    ],
)
def test_damaged_state_is_rejected(damage):
    state = stat_of(np.ones((3, 2))).to_state()

    with pytest.raises(SavedPolicyError, match="expected an integer n >= 0"):
        RunningStat.from_state({**state, **damage})


def test_incomplete_state_is_rejected():
    with pytest.raises(SavedPolicyError, match=r"missing \['m2'\], found \['mean', 'n'\]"):
        RunningStat.from_state({"n": np.array(0), "mean": np.zeros(2)})
