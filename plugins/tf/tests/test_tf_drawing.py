"""Random numbers of a policy's generator in TensorFlow: their distributions, and its states."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

tf = pytest.importorskip("tensorflow")

from rlcatalog_tf import draw_categorical, draw_gamma, draw_normal, draw_uniform  # noqa: E402
from rlcatalog_tf.random import drawing_from, new_generator  # noqa: E402

each_dtype = pytest.mark.parametrize(
    "dtype", [tf.bfloat16, tf.float16, tf.float32, tf.float64], ids=lambda dtype: dtype.name
)


def draw_from(state, draw):
    """Return what a function draws from a generator with a state, and the state after it."""
    generator = new_generator("/cpu:0", list(state))
    with drawing_from(generator):
        numbers = draw()
    return numbers.numpy(), tuple(generator.state.numpy().tolist())


# --- distributions --------------------------------------------------------------------------------

each_distribution = pytest.mark.parametrize(
    ("draw", "cdf"),
    [(draw_uniform, stats.uniform.cdf), (draw_normal, stats.norm.cdf)],
    ids=["uniform", "normal"],
)


@each_distribution
@each_dtype
@pytest.mark.parametrize("shape", [[20_000], [4000, 5]], ids=["vector", "matrix"])
def test_numbers_follow_their_distribution(draw, cdf, dtype, shape):
    numbers, _ = draw_from((1, 2, 3), lambda: draw(shape, dtype))

    # In half precision there are few values, and the distribution has steps.
    tolerance = 0.065 if dtype.size == 2 else 0.015
    assert stats.kstest(numbers.ravel().astype(float), cdf).statistic < tolerance


@each_distribution
@each_dtype
@pytest.mark.parametrize("shape", [[20_000], [4000, 5]], ids=["vector", "matrix"])
def test_successive_numbers_are_independent(draw, cdf, dtype, shape):
    numbers, _ = draw_from((1, 2, 3), lambda: draw(shape, dtype))

    numbers = numbers.ravel().astype(float)
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03


@each_distribution
@each_dtype
@pytest.mark.parametrize("shape", [[20_000], [4000, 5], [0, 3]], ids=["vector", "matrix", "empty"])
def test_numbers_have_the_given_shape_and_dtype(draw, cdf, dtype, shape):
    numbers, _ = draw_from((1, 2, 3), lambda: draw(shape, dtype))

    assert numbers.shape == tuple(shape)
    assert numbers.dtype == dtype.as_numpy_dtype


@each_dtype
def test_uniform_numbers_are_between_0_and_1(dtype):
    numbers, _ = draw_from((1, 2, 3), lambda: draw_uniform([200_000], dtype))

    assert numbers.astype(float).min() > 0.0
    assert numbers.astype(float).max() < 1.0


@pytest.mark.parametrize(
    ("dtype", "step"),
    # The distance of neighbouring numbers below 1.
    [
        (tf.bfloat16, 2.0**-8),
        (tf.float16, 2.0**-11),
        (tf.float32, 2.0**-24),
        (tf.float64, 2.0**-53),
    ],
    ids=["bfloat16", "float16", "float32", "float64"],
)
def test_uniform_numbers_use_all_digits(dtype, step):
    numbers, _ = draw_from((1, 2, 3), lambda: draw_uniform([200_000], dtype))

    steps = numbers.astype(float) / step
    np.testing.assert_array_equal(steps, np.round(steps))
    assert (steps % 2 == 1).mean() == pytest.approx(0.5, abs=0.01)  # the last digit is random


# --- states ---------------------------------------------------------------------------------------

each_draw = pytest.mark.parametrize(
    "draw",
    [
        lambda: draw_uniform([50, 3]),
        lambda: draw_normal([50, 3]),
        lambda: draw_gamma(tf.fill([50, 3], 2.0)),
        lambda: draw_categorical(tf.zeros([50, 4])),
    ],
    ids=["uniform", "normal", "gamma", "categorical"],
)


@each_draw
def test_same_state_draws_the_same_numbers_in_a_trace(draw):
    eager, eager_state = draw_from((1, 2, 3), draw)
    traced, traced_state = draw_from((1, 2, 3), tf.function(draw, autograph=False))

    np.testing.assert_array_equal(eager, traced)
    assert eager_state == traced_state


@each_draw
def test_drawing_changes_the_state_and_the_next_numbers(draw):
    first, state = draw_from((1, 2, 3), draw)
    second, _ = draw_from(state, draw)

    assert state != (1, 2, 3)
    assert not np.array_equal(first, second)


@each_draw
def test_another_state_draws_other_numbers(draw):
    numbers, _ = draw_from((1, 2, 3), draw)
    other_numbers, _ = draw_from((1, 2, 4), draw)

    assert not np.array_equal(numbers, other_numbers)


def test_shape_may_be_a_tensor_of_unknown_size():
    generator = new_generator("/cpu:0", state=[1, 2, 3])

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])  # any number of rows
    def draw_like(x):
        with drawing_from(generator):
            return draw_uniform(tf.shape(x)), draw_normal(tf.shape(x))

    uniform, normal = draw_like(tf.zeros([7, 3]))
    assert uniform.shape == (7, 3)
    assert normal.shape == (7, 3)
