"""Errors that name an environment, and the checks of rewards and flags that it returns."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog.errors import NonFiniteError
from rlcatalog_ppo.advantages import check_finite
from rlcatalog_ppo.env_errors import EnvErrors
from rlcatalog_ppo.env_returns import RESET, STEP, ReturnChecker

# --- errors about rows ----------------------------------------------------------------------------


def test_error_about_row_of_subset_names_its_environment():
    lengths = np.array([3, 1, 4, 1, 5])
    environments = np.array([1, 4])  # row 0 is of environment 1, row 1 of environment 4
    message = "environment 4 of 5, after 5 steps of its episode: bad"

    with pytest.raises(NonFiniteError, match=message) as caught, EnvErrors(lengths, environments):
        raise NonFiniteError("bad", row=1)

    assert caught.value.row == 4


@pytest.mark.parametrize(
    "error", [NonFiniteError("of no row", row=None), KeyError("of another type")], ids=str
)
def test_error_about_no_row_is_unchanged(error):
    with pytest.raises(type(error)) as caught, EnvErrors(np.zeros(2, int)):
        raise error

    assert caught.value is error


def test_infinite_target_is_an_error_though_its_terms_are_finite():
    large = np.float32([[1.0, 1.0], [1.0, 3e38]])  # 2 steps of 2 environments
    zeros = np.zeros((2, 2), np.float32)
    check_finite(large, rewards=zeros, values=zeros)  # no error

    # The target, advantage + value = 6e38, is larger than any float32.
    with pytest.raises(NonFiniteError, match="environment 1 of 2, step 1") as caught:
        check_finite(large, rewards=zeros, values=large)

    assert caught.value.row == 1


# --- values that an environment returns -----------------------------------------------------------


def find_fault(returned, names):
    """Return what is wrong with a returned value; the environment has discrete observations."""
    return ReturnChecker(spaces.Discrete(2)).fault(returned, names)


@pytest.mark.parametrize(
    ("names", "returned"),
    [
        pytest.param(STEP, [0, 0.0, True, {}], id="list"),
        pytest.param(STEP, (0, 0.0, True), id="three-values"),
        pytest.param(STEP, (0, 0.0, True, False, 0, {}), id="six-values"),
        pytest.param(RESET, (0, 0.0, True, {}), id="reset"),
    ],
)
def test_other_wrong_returns_do_not_hint_at_older_interface(names, returned):
    fault = find_fault(returned, names)

    assert fault.startswith(f"returned {len(returned)} values")
    assert "older interface" not in fault


def test_observation_alone_is_named_though_it_has_two_numbers():
    fault = find_fault(np.zeros(2), RESET)  # which could be unpacked into two values

    assert "reset returned only an observation" in fault


class FloatSubclass(float):
    """A number of an unusual type."""


@pytest.mark.parametrize(
    "reward",
    [1.5, np.float64(1.5), np.array(1.5), FloatSubclass(1.5), 7, True],
    ids=lambda reward: f"{type(reward).__name__}",
)
def test_reward_may_be_any_number(reward):
    assert find_fault((0, reward, False, False, {}), STEP) is None


@pytest.mark.parametrize(
    "reward",
    [10**400, "1.5", b"1", np.ones(1), [1.5], None],
    ids=["beyond-float", "text", "bytes", "array", "list", "none"],
)
def test_reward_must_be_single_number(reward):
    fault = find_fault((0, reward, False, False, {}), STEP)

    assert fault.endswith("expected a number")


@pytest.mark.parametrize("flag", [np.array(True), 1, np.uint8(0)])
def test_flag_may_be_any_scalar_boolean(flag):
    assert find_fault((0, 0.0, flag, False, {}), STEP) is None


@pytest.mark.parametrize("flag", [np.array([True]), 2, 1.0, "True", None])
def test_flag_must_be_scalar_boolean(flag):
    fault = find_fault((0, 0.0, flag, False, {}), STEP)

    assert fault.endswith("expected True or False")
