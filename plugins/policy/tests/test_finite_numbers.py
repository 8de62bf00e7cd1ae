"""Checks for NaN and infinity: what they name, and how little they cost where all numbers are
finite.
"""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog.catalog import default_catalog
from rlcatalog.errors import NonFiniteError
from rlcatalog_policy import check_step
from rlcatalog_policy.non_finite import check_observations, check_rows, place_of

SPACE = spaces.Dict(a=spaces.Box(-1, 1, (2, 3)), b=spaces.Discrete(3), c=spaces.Box(-1, 1, (2,)))
NAN, INF = np.nan, np.inf


@pytest.fixture(scope="module")
def preprocessor():
    return default_catalog().preprocessor_for(SPACE)


def numbers(*values):
    return np.array(values, np.float32)


def step(logp=(0.5, 0.25), value=(1, 2), inputs=((1, 2), (3, 4)), place=None, number=NAN):
    """Return the arguments of a check of two rows, in which one number of the second observation
    may be wrong.
    """
    encoded = np.zeros((2, 11), np.float32)
    if place is not None:
        encoded[1, place] = number
    value = None if value is None else numbers(*value)
    return numbers(*logp), value, numbers(*inputs), encoded


def refused(match, *arguments, row=1):
    with pytest.raises(NonFiniteError, match=match) as caught:
        check_step(*arguments)
    assert caught.value.row == row
    return str(caught.value)


@pytest.fixture
def sums(monkeypatch):
    """Count the sums of products, and let no number be looked at by itself."""
    real, calls = np.vdot, []
    monkeypatch.setattr(np, "vdot", lambda *arguments: calls.append(1) or real(*arguments))

    def never(*arguments):
        pytest.fail("every number was looked at")

    return calls, never


@pytest.mark.parametrize("value", [(1, 2), None], ids=["value", "no value"])
def test_finite_numbers_cost_one_sum_of_products_each(preprocessor, sums, monkeypatch, value):
    calls, never = sums
    monkeypatch.setattr(np, "isfinite", never)
    logp, value, inputs, encoded = step(value=value)
    check_step(logp, value, inputs, encoded, preprocessor)
    assert len(calls) == 3
    check_step(logp, value, inputs, encoded.astype(np.uint8), preprocessor)
    assert len(calls) == 5  # integers are always finite
    check_observations(encoded, preprocessor)
    assert len(calls) == 6
    check_observations(encoded.astype(np.int64), preprocessor)
    assert len(calls) == 6


def test_logit_of_a_forbidden_action_is_finite_at_little_cost(preprocessor, sums, monkeypatch):
    calls, never = sums
    monkeypatch.setattr(np, "argwhere", never)
    check_step(*step(inputs=((np.finfo(np.float32).min, 2), (3, 4))), preprocessor)
    assert len(calls) == 3


@pytest.mark.parametrize("large", ["logp", "value", "inputs", "encoded"])
def test_numbers_whose_squares_overflow_are_finite(preprocessor, large):
    logp, value, inputs, encoded = step()
    arrays = {"logp": logp, "value": value, "inputs": inputs, "encoded": encoded}
    arrays[large][...] = 3e38
    if large in ("logp", "value"):
        arrays["logp"][...] = arrays["value"][...] = 3e38
    check_step(logp, value, inputs, encoded, preprocessor)
    check_observations(encoded, preprocessor)
    check_rows(arrays[large], "it", "why")


FINE = "its observation is finite: look at the model's weights"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"logp": (0.5, NAN)}, "the log density of its action is NaN"),
        ({"logp": (0.5, -INF)}, "the log density of its action is -inf"),
        ({"logp": (0.5, NAN), "value": None}, "the log density of its action is NaN"),
        ({"logp": (0, 0), "value": (1, INF)}, "its value estimate is inf"),
        ({"value": (1, NAN)}, "its value estimate is NaN"),
        ({"inputs": ((1, 2), (3, NAN))}, "a parameter of its action's distribution is NaN"),
        (
            {"inputs": ((1, 2), (INF, 4)), "value": None},
            "a parameter of its action's distribution is inf",
        ),
        ({"inputs": ((1, 2), (INF, NAN))}, "a parameter of its action's distribution is inf"),
        (
            {"logp": (0.5, INF), "value": (1, NAN), "inputs": ((1, 2), (NAN, 4))},
            "the log density of its action is inf",
        ),
    ],
)
def test_first_wrong_number_is_named(preprocessor, changes, problem):
    message = refused(
        f"^row 1 of 2: {problem}; the parameters of its distribution are",
        *step(**changes),
        preprocessor,
    )
    assert FINE in message
    assert message.endswith("set its logit to the lowest finite number.")


def test_first_wrong_row_is_named_with_its_steps(preprocessor):
    logp, value, inputs, encoded = step()
    inputs[0, 1] = inputs[1, 0] = NAN
    message = refused(
        "^row 0 of 2: a parameter",
        logp,
        value,
        inputs,
        encoded,
        preprocessor,
        np.array([7, 9]),
        row=0,
    )
    assert message.endswith("(after 7 steps of its episode).")
    inputs[0, 1] = 0
    message = refused(
        "^row 1 of 2: a parameter", logp, value, inputs, encoded, preprocessor, np.array([7, 9])
    )
    assert message.endswith("(after 9 steps of its episode).")


def test_at_most_eight_parameters_are_shown(preprocessor):
    logp, value, _, encoded = step()
    for count, shown in ((8, "[0, 1, 2, 3, 4, 5, 6, nan]"), (9, "[0, 1, 2, 3, 4, 5, 6, 7, …]")):
        inputs = np.tile(np.arange(count, dtype=np.float32), (2, 1))
        inputs[1, -1] = NAN
        assert f"its distribution are {shown}, and" in refused(
            "NaN", logp, value, inputs, encoded, preprocessor
        )


@pytest.mark.parametrize(
    ("place", "where"),
    [
        (0, r"obs['a'][0, 0]"),
        (4, r"obs['a'][1, 1]"),
        (5, r"obs['a'][1, 2]"),
        (6, r"obs['b'][0]"),
        (8, r"obs['b'][2]"),
        (9, r"obs['c'][0]"),
        (10, r"obs['c'][1]"),
    ],
)
def test_place_in_an_observation_is_named(preprocessor, place, where):
    logp, value, inputs, encoded = step(place=place, number=-INF)
    assert place_of(preprocessor, encoded[1]) == f"-inf at {where}"
    assert place_of(preprocessor, encoded[0]) is None
    logp[1] = NAN
    message = refused(
        "the log density of its action is NaN", logp, value, inputs, encoded, preprocessor
    )
    assert (
        f"its observation contains values that are not finite: -inf at {where}; fix it in the"
        " environment." in message
    )
    logp[1] = 0  # what the model made of it is finite: the observation is refused nevertheless
    begin = "^row 1 of 2: its observation contains values that are not finite: -inf at"
    assert f"-inf at {where}; fix it in the environment." in refused(
        begin, logp, value, inputs, encoded, preprocessor
    )
    with pytest.raises(NonFiniteError, match=begin) as caught:
        check_observations(encoded, preprocessor, np.array([1, 2]))
    assert str(caught.value).endswith("fix it in the environment (after 2 steps of its episode).")
    assert caught.value.row == 1


def test_number_without_axes_has_no_index():
    preprocessor = default_catalog().preprocessor_for(
        spaces.Tuple([spaces.Box(-1, 1, ()), spaces.Box(-1, 1, (1,))])
    )
    shapes = [leaf.shape for leaf in preprocessor.leaves()]
    places = [place_of(preprocessor, np.array(row)) for row in ([NAN, 0.0], [0.0, INF])]
    assert places == [f"NaN at obs[0]{'[0]' if shapes[0] else ''}", "inf at obs[1][0]"]


def test_of_several_wrong_numbers_the_first_is_named(preprocessor):
    encoded = np.zeros(11)
    encoded[[3, 9]] = INF, NAN
    assert place_of(preprocessor, encoded) == "inf at obs['a'][1, 0]"
    encoded[1] = NAN
    assert place_of(preprocessor, encoded) == "NaN at obs['a'][0, 1]"


@pytest.mark.parametrize(
    ("array", "row", "shown"),
    [
        ([0, NAN, INF], 1, "NaN"),
        ([[1, 2], [3, 4], [5, -INF]], 2, "-inf"),
        ([[1, INF], [NAN, 4]], 0, "inf"),
        ([[[1, 2], [3, 4]], [[5, 6], [NAN, 8]]], 1, "NaN"),
    ],
)
def test_rows_are_checked(array, row, shown):
    array = np.array(array)
    for t, end in (
        (None, "look there."),
        (np.arange(3) * 10, f"look there (after {10 * row} steps of its episode)."),
    ):
        with pytest.raises(NonFiniteError) as caught:
            check_rows(array, "its number", "look there", t)
        assert str(caught.value) == f"row {row} of {len(array)}: its number is {shown}: {end}"
        assert caught.value.row == row
    check_rows(np.zeros((0, 3)), "its number", "look there")
    check_rows(np.nan_to_num(array), "its number", "look there")
