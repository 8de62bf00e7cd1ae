"""Checks for NaN and infinity: what the errors name, and what the checks cost."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog.catalog import default_catalog
from rlcatalog.errors import NonFiniteError
from rlcatalog_policy import check_finite_step
from rlcatalog_policy.non_finite import check_observations, check_rows, place_of

NAN = np.nan
INF = np.inf


@pytest.fixture(scope="module")
def preprocessor():
    """A preprocessor that encodes six numbers `a`, a one-hot choice `b`, and two numbers `c`."""
    space = spaces.Dict(
        a=spaces.Box(-1, 1, (2, 3)), b=spaces.Discrete(3), c=spaces.Box(-1, 1, (2,))
    )
    return default_catalog().preprocessor_for(space)


def make_step(*, logp=(0.5, 0.25), value=(1, 2), inputs=((1, 2), (3, 4)), encoded=None):
    """Return the arrays of a step with two rows, as the keywords of `check_finite_step`."""
    if encoded is None:
        encoded = np.zeros((2, 11))
    return {
        "logp": np.array(logp, np.float32),
        "value": None if value is None else np.array(value, np.float32),
        "inputs": np.array(inputs, np.float32),
        "encoded": np.array(encoded, np.float32),
    }


def make_encoded(*, place, number):
    """Return two encoded observations of 11 zeros; the second has a number in this place."""
    encoded = np.zeros((2, 11), np.float32)
    encoded[1, place] = number
    return encoded


# --- cost -----------------------------------------------------------------------------------------


@pytest.fixture
def sums(monkeypatch):
    """A list with an entry for each sum of products that is computed."""
    real_vdot = np.vdot
    calls = []

    def vdot(*arguments):
        calls.append("vdot")
        return real_vdot(*arguments)

    monkeypatch.setattr(np, "vdot", vdot)
    return calls


@pytest.fixture
def forbid_looking_at_numbers(monkeypatch):
    """Makes a function of NumPy fail: `forbid_looking_at_numbers("isfinite")`."""

    def forbid(name):
        def fail(*arguments):
            pytest.fail("every number was looked at")

        monkeypatch.setattr(np, name, fail)

    return forbid


@pytest.mark.parametrize("value", [(1, 2), None], ids=["value", "no-value"])
def test_finite_step_costs_three_sums(preprocessor, sums, forbid_looking_at_numbers, value):
    forbid_looking_at_numbers("isfinite")

    check_finite_step(**make_step(value=value), preprocessor=preprocessor)

    # One for logp and value together, one for the inputs, one for the observations.
    assert len(sums) == 3


@pytest.mark.parametrize("value", [(1, 2), None], ids=["value", "no-value"])
def test_integer_observations_cost_no_sum(preprocessor, sums, forbid_looking_at_numbers, value):
    forbid_looking_at_numbers("isfinite")
    step = make_step(value=value)
    step["encoded"] = step["encoded"].astype(np.uint8)

    check_finite_step(**step, preprocessor=preprocessor)

    assert len(sums) == 2


def test_check_of_finite_observations_costs_one_sum(preprocessor, sums, forbid_looking_at_numbers):
    forbid_looking_at_numbers("isfinite")

    check_observations(np.zeros((2, 11), np.float32), preprocessor)

    assert len(sums) == 1


def test_check_of_integer_observations_costs_nothing(preprocessor, sums):
    check_observations(np.zeros((2, 11), np.int64), preprocessor)

    assert sums == []


def test_logit_of_a_masked_action_is_finite(preprocessor, sums, forbid_looking_at_numbers):
    # Its square overflows, but the places of wrong numbers need not be searched.
    forbid_looking_at_numbers("argwhere")
    lowest_float = np.finfo(np.float32).min

    check_finite_step(**make_step(inputs=((lowest_float, 2), (3, 4))), preprocessor=preprocessor)

    assert len(sums) == 3


# The squares of these numbers, and the product of two of them, overflow.
LARGE = 3e38


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(make_step(logp=(LARGE, LARGE), value=(LARGE, LARGE)), id="logp-and-value"),
        pytest.param(make_step(inputs=((LARGE, LARGE), (LARGE, LARGE))), id="inputs"),
        pytest.param(make_step(encoded=np.full((2, 11), LARGE)), id="observations"),
    ],
)
def test_large_numbers_of_a_step_are_finite(preprocessor, step):
    check_finite_step(**step, preprocessor=preprocessor)  # no error


def test_large_numbers_of_observations_are_finite(preprocessor):
    check_observations(np.full((2, 11), LARGE, np.float32), preprocessor)  # no error


@pytest.mark.parametrize("shape", [(2,), (2, 11)], ids=str)
def test_large_numbers_of_rows_are_finite(shape):
    check_rows(np.full(shape, LARGE, np.float32), "its number", "look there")  # no error


# --- steps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrays", "problem"),
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
        # Of several wrong numbers, the first one is named.
        ({"inputs": ((1, 2), (INF, NAN))}, "a parameter of its action's distribution is inf"),
        (
            {"logp": (0.5, INF), "value": (1, NAN), "inputs": ((1, 2), (NAN, 4))},
            "the log density of its action is inf",
        ),
    ],
)
def test_error_names_the_first_wrong_number_of_a_step(preprocessor, arrays, problem):
    with pytest.raises(NonFiniteError) as caught:
        check_finite_step(**make_step(**arrays), preprocessor=preprocessor)

    message = str(caught.value)
    assert message.startswith(f"row 1 of 2: {problem}; the parameters of its distribution are")
    assert "its observation is finite: look at the model's weights" in message
    assert message.endswith("set its logit to the lowest finite number.")
    assert caught.value.row == 1


@pytest.mark.parametrize(
    ("inputs", "row", "steps"),
    [
        pytest.param(((1, NAN), (NAN, 4)), 0, 7, id="both-rows"),
        pytest.param(((1, 2), (NAN, 4)), 1, 9, id="second-row"),
    ],
)
def test_error_names_the_first_wrong_row_with_its_steps(preprocessor, inputs, row, steps):
    steps_of_episodes = np.array([7, 9])

    with pytest.raises(NonFiniteError, match=f"row {row} of 2: a parameter") as caught:
        check_finite_step(
            **make_step(inputs=inputs), preprocessor=preprocessor, t=steps_of_episodes
        )

    assert str(caught.value).endswith(f"(after {steps} steps of its episode).")
    assert caught.value.row == row


@pytest.mark.parametrize(
    ("inputs", "list_of_inputs"),
    [
        ([0, 1, 2, 3, 4, 5, 6, NAN], "[0, 1, 2, 3, 4, 5, 6, nan]"),
        ([0, 1, 2, 3, 4, 5, 6, 7, NAN], "[0, 1, 2, 3, 4, 5, 6, 7, …]"),
    ],
    ids=["eight", "nine"],
)
def test_error_lists_at_most_eight_parameters(preprocessor, inputs, list_of_inputs):
    step = make_step(inputs=(np.zeros(len(inputs)), inputs))

    with pytest.raises(NonFiniteError, match="NaN") as caught:
        check_finite_step(**step, preprocessor=preprocessor)

    assert f"its distribution are {list_of_inputs}, and" in str(caught.value)


# --- observations ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "name"),
    [
        # The first six numbers are a matrix of shape (2, 3).
        (0, "obs['a'][0, 0]"),
        (4, "obs['a'][1, 1]"),
        (5, "obs['a'][1, 2]"),
        (6, "obs['b'][0]"),
        (8, "obs['b'][2]"),
        (9, "obs['c'][0]"),
        (10, "obs['c'][1]"),
    ],
)
def test_place_of_a_number_in_an_observation(preprocessor, place, name):
    encoded = make_encoded(place=place, number=-INF)

    assert place_of(preprocessor, encoded[1]) == f"-inf at {name}"


def test_finite_observation_has_no_wrong_place(preprocessor):
    assert place_of(preprocessor, np.zeros(11)) is None


def test_step_error_names_the_place_in_the_observation(preprocessor):
    encoded = make_encoded(place=10, number=-INF)
    step = make_step(logp=(0.5, NAN), encoded=encoded)

    with pytest.raises(NonFiniteError, match="the log density of its action is NaN") as caught:
        check_finite_step(**step, preprocessor=preprocessor)

    assert "not finite: -inf at obs['c'][1]; fix it in the environment" in str(caught.value)
    assert caught.value.row == 1


def test_step_with_finite_outputs_needs_finite_observations(preprocessor):
    step = make_step(encoded=make_encoded(place=10, number=-INF))

    with pytest.raises(NonFiniteError) as caught:
        check_finite_step(**step, preprocessor=preprocessor)

    assert str(caught.value) == (
        "row 1 of 2: its observation contains values that are not finite: -inf at obs['c'][1];"
        " fix it in the environment."
    )


def test_observation_error_names_place_and_steps(preprocessor):
    encoded = make_encoded(place=10, number=-INF)

    with pytest.raises(NonFiniteError, match=r"row 1 of 2: .* -inf at obs\['c'\]\[1\]") as caught:
        check_observations(encoded, preprocessor, t=np.array([1, 2]))

    assert str(caught.value).endswith("(after 2 steps of its episode).")
    assert caught.value.row == 1


@pytest.mark.parametrize(
    ("encoded", "place"),
    [
        pytest.param([NAN, 0], "NaN at obs[0]", id="shape-()"),
        pytest.param([0, INF], "inf at obs[1][0]", id="shape-(1,)"),
    ],
)
def test_place_of_a_number_without_axes_has_no_index(encoded, place):
    space = spaces.Tuple([spaces.Box(-1, 1, ()), spaces.Box(-1, 1, (1,))])
    preprocessor = default_catalog().preprocessor_for(space)

    assert place_of(preprocessor, np.array(encoded)) == place


@pytest.mark.parametrize(
    ("numbers", "place"),
    [
        ({3: INF, 9: NAN}, "inf at obs['a'][1, 0]"),
        ({1: NAN, 3: INF, 9: NAN}, "NaN at obs['a'][0, 1]"),
    ],
    ids=["two", "three"],
)
def test_place_is_that_of_the_first_wrong_number(preprocessor, numbers, place):
    encoded = np.zeros(11)
    for index, number in numbers.items():
        encoded[index] = number

    assert place_of(preprocessor, encoded) == place


# --- rows of any numbers --------------------------------------------------------------------------


rows_with_wrong_numbers = pytest.mark.parametrize(
    ("array", "row", "number"),
    [
        ([0, NAN, INF], 1, "NaN"),
        ([[1, 2], [3, 4], [5, -INF]], 2, "-inf"),
        ([[1, INF], [NAN, 4]], 0, "inf"),
        ([[[1, 2], [3, 4]], [[5, 6], [NAN, 8]]], 1, "NaN"),
    ],
)


@rows_with_wrong_numbers
def test_error_names_the_first_wrong_row(array, row, number):
    with pytest.raises(NonFiniteError) as caught:
        check_rows(np.array(array), "its number", "look there")

    assert str(caught.value) == f"row {row} of {len(array)}: its number is {number}: look there."
    assert caught.value.row == row


def test_error_names_the_steps_of_the_wrong_row():
    with pytest.raises(NonFiniteError) as caught:
        check_rows(np.array([0, 0, NAN]), "its number", "look there", t=np.array([0, 10, 20]))

    assert str(caught.value) == (
        "row 2 of 3: its number is NaN: look there (after 20 steps of its episode)."
    )


@rows_with_wrong_numbers
def test_rows_of_finite_numbers_are_accepted(array, row, number):
    check_rows(np.nan_to_num(np.array(array)), "its number", "look there")  # no error


def test_empty_array_is_accepted():
    check_rows(np.zeros((0, 3)), "its number", "look there")  # no error
