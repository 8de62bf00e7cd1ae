"""Drawing from a policy's generator in TensorFlow: distributions against SciPy's, and states that
can be set again.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

tf = pytest.importorskip("tensorflow")

from rlcatalog_tf import draw_categorical, draw_gamma, draw_normal, draw_uniform  # noqa: E402
from rlcatalog_tf.random import drawing_from, new_generator  # noqa: E402

SHAPES = {"a vector": [20_000], "a matrix": [4000, 5], "none": [0, 3]}
#: Dtype → the distance of neighbouring numbers below 1.
STEPS = {tf.bfloat16: 2.0**-8, tf.float16: 2.0**-11, tf.float32: 2.0**-24, tf.float64: 2.0**-53}
DRAWS = {
    "uniform": lambda shape: draw_uniform(shape),
    "normal": lambda shape: draw_normal(shape),
    "gamma": lambda shape: draw_gamma(tf.fill(shape, 2.0)),
    "categorical": lambda shape: draw_categorical(tf.zeros([shape[0], 4])),
}


def drawn(draw, state=(1, 2, 3), traced=False):
    """Return what a function draws from a generator with a state, and the state after it."""
    generator = new_generator("/cpu:0", list(state))
    with drawing_from(generator):
        found = (tf.function(draw, autograph=False) if traced else draw)()
    return found.numpy(), tuple(generator.state.numpy().tolist())


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", STEPS, ids=lambda dtype: dtype.name)
def test_uniform_and_normal_numbers_are_distributed_as_they_should(dtype, shape):
    for draw, cdf in ((draw_uniform, stats.uniform.cdf), (draw_normal, stats.norm.cdf)):
        found, _ = drawn(lambda draw=draw: draw(shape, dtype))
        assert found.shape == tuple(shape)
        assert found.dtype == dtype.as_numpy_dtype
        if found.size:
            rounding = 0.05 if dtype.size == 2 else 0.0  # few values: the distribution has steps
            assert stats.kstest(found.ravel().astype(float), cdf).statistic < rounding + 0.015
            assert (
                abs(
                    np.corrcoef(found.ravel()[:-1].astype(float), found.ravel()[1:].astype(float))[
                        0, 1
                    ]
                )
                < 0.03
            )


@pytest.mark.parametrize("dtype", STEPS, ids=lambda dtype: dtype.name)
def test_uniform_numbers_lie_between_0_and_1_and_use_all_digits(dtype):
    found = drawn(lambda: draw_uniform([200_000], dtype))[0].astype(float)
    assert found.min() > 0.0
    assert found.max() < 1.0
    steps = found / STEPS[dtype]
    np.testing.assert_array_equal(steps, np.round(steps))
    assert (steps % 2 == 1).mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_state_that_is_set_again_gives_the_same_numbers_and_another_gives_others(draw):
    first, state = drawn(lambda: draw([50, 3]))
    traced, traced_state = drawn(lambda: draw([50, 3]), traced=True)
    np.testing.assert_array_equal(first, traced)
    assert state == traced_state != (1, 2, 3)
    assert not np.array_equal(first, drawn(lambda: draw([50, 3]), state)[0])
    assert not np.array_equal(first, drawn(lambda: draw([50, 3]), (1, 2, 4))[0])


def test_a_shape_may_be_a_tensor_that_a_trace_does_not_know():
    generator = new_generator("/cpu:0", [1, 2, 3])

    @tf.function(input_signature=[tf.TensorSpec([None, 3])], autograph=False)
    def noise(x):
        with drawing_from(generator):
            return draw_uniform(tf.shape(x)), draw_normal(tf.shape(x))

    for rows in (1, 7):
        assert [part.shape for part in noise(tf.zeros([rows, 3]))] == [(rows, 3)] * 2
