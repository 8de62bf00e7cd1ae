"""Checks of what environments return: observations, flags, infos, whole vectors, and where an
exception came from.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from rlcatalog.errors import EnvironmentFaultError, ObservationError
from rlcatalog_ppo.env_errors import EnvErrors, call_env
from rlcatalog_ppo.env_returns import RESET, STEP, ReturnChecker
from rlcatalog_ppo.external_env import ExternalVectorEnv

THREE = spaces.Box(-1, 1, (3,), np.float32)
FOUR = spaces.Discrete(4)
ONE = np.zeros(3, np.float32)
BOTH = spaces.Dict({"a": THREE, "b": FOUR})
PAIR = spaces.Tuple((THREE, FOUR))
TEXTS = spaces.Dict({"a": spaces.Text(5), "b": THREE})

#: Space, observation, whether the quick test takes it.
VALID = [
    (THREE, ONE, True),
    (THREE, ONE.astype(np.float64), False),
    (THREE, [0, 1, 0], False),
    (THREE, np.zeros(3, np.int64), False),
    (spaces.Box(0, 1, (), np.float32), np.float32(0.5), True),
    (spaces.Box(0, 1, (), np.float32), 0.5, False),
    (spaces.Box(0, 1, (), np.float32), 1, False),
    (spaces.Box(0, 255, (), np.uint8), 5, True),
    (FOUR, 2, True),
    (FOUR, np.int64(2), True),
    (FOUR, np.int32(2), False),
    (FOUR, True, False),
    (spaces.MultiBinary(2), np.zeros(2, np.int8), True),
    (spaces.MultiDiscrete([2, 3]), np.zeros(2, np.int64), True),
    (spaces.Text(5), object(), True),  # a preprocessor reads it
    (BOTH, {"a": ONE, "b": 1}, True),
    (BOTH, {"a": ONE.astype(np.float64), "b": 1}, False),
    (BOTH, {"a": ONE, "b": np.int32(1)}, False),
    (PAIR, (ONE, 1), True),
    (PAIR, [ONE, 1], False),
    (PAIR, (ONE, np.int32(1)), False),
    (PAIR, ([0, 0, 0], 1), False),
    (TEXTS, {"a": "hello", "b": ONE}, True),
    (TEXTS, {"a": "hello", "b": [0, 0, 0]}, False),
]

FLOATS = "expected float32 of shape (3,)"
#: Space, observation, what the message says was expected and found.
INVALID = [
    (THREE, np.zeros(2, np.float32), f"{FLOATS}; found float32 of shape (2,)"),
    (THREE, np.zeros((3, 1), np.float32), f"{FLOATS}; found float32 of shape (3, 1)"),
    (THREE, np.zeros(3, complex), f"{FLOATS}; found complex128 of shape (3,)"),
    (THREE, ["x", "y", "z"], f"{FLOATS}; found 3 values: ['x', 'y', 'z']"),
    (THREE, [[0], [0, 1], 0], f"{FLOATS}; found 3 values: [[0], [0, 1], 0]"),
    (THREE, None, f"{FLOATS}; found None"),
    (THREE, np.array(["x", "y", "z"]), f"{FLOATS}; found an array of shape (3,)"),
    (FOUR, 2.0, "expected int64 of shape (); found float64 of shape ()"),
    (FOUR, np.array([1]), "expected int64 of shape (); found int64 of shape (1,)"),
    (BOTH, {"a": ONE}, "expected a dict with the keys ['a', 'b']; found the keys ['a']"),
    (
        BOTH,
        {"a": ONE, "b": 1, "c": 1},
        "expected a dict with the keys ['a', 'b']; found the keys ['a', 'b', 'c']",
    ),
    (BOTH, (ONE, 1), "expected a dict with the keys ['a', 'b']; found 2 values"),
    (BOTH, ONE, "expected a dict with the keys ['a', 'b']; found an array of shape (3,)"),
    (BOTH, ["a", "b"], "expected a dict with the keys ['a', 'b']; found 2 values: ['a', 'b']"),
    (BOTH, {"a": ONE, "b": 1.5}, "['b'] that does not match its space: expected int64 of shape ()"),
    (BOTH, {"a": ONE[:2], "b": 1}, f"['a'] that does not match its space: {FLOATS}"),
    (PAIR, (ONE,), "expected a tuple of 2; found 1 values"),
    (PAIR, (ONE, 1, 2), "expected a tuple of 2; found 3 values"),
    (PAIR, np.zeros(2), "expected a tuple of 2; found an array of shape (2,)"),
    (PAIR, {"a": 1, "b": 2}, "expected a tuple of 2; found {'a': 1, 'b': 2}"),
    (PAIR, (ONE, 1.5), "[1] that does not match its space: expected int64 of shape ()"),
    (PAIR, (ONE[:1], 1), f"[0] that does not match its space: {FLOATS}"),
    (TEXTS, {"a": "hello", "b": ONE[:1]}, f"['b'] that does not match its space: {FLOATS}"),
]


@pytest.mark.parametrize(("space", "obs", "quick"), VALID)
def test_valid_observations_pass_and_only_the_usual_format_passes_quickly(space, obs, quick):
    checker = ReturnChecker(space)
    assert checker.fits(obs) is quick
    assert checker.fault((obs, {}), RESET) is None
    assert checker.fault((obs, 1.0, True, False, {}), STEP) is None
    # The infos are checked whether or not the observation passed quickly.
    assert checker.fault((obs, [1]), RESET) == "returned info=[1]; expected a dict"


@pytest.mark.parametrize(("space", "obs", "message"), INVALID)
def test_invalid_observation_is_described(space, obs, message):
    checker = ReturnChecker(space)
    assert checker.fits(obs) is False
    for returned, names in (((obs, {}), RESET), ((obs, 1.0, True, False, {}), STEP)):
        fault = checker.fault(returned, names)
        assert fault.startswith("returned observation")
        assert message in fault


@pytest.mark.parametrize(
    ("returned", "names", "message"),
    [
        ((ONE,), RESET, "returned 1 values: "),
        ((ONE, 1, {}), RESET, "expected (observation, info)"),
        (None, RESET, "returned None; expected (observation, info)"),
        (7, STEP, "returned 7; expected (observation, reward, terminated, truncated, info)"),
        ((ONE, 1.0, False, False, 0, {}), STEP, "returned 6 values: "),
        ((ONE, "1", False, False, {}), STEP, "returned the reward '1'; expected a number"),
        ((ONE, 1.0, 2, False, {}), STEP, "returned terminated=2; expected True or False"),
        ((ONE, 1.0, False, "no", {}), STEP, "returned truncated='no'; expected True or False"),
        ((ONE, 1.0, 0.5, False, {}), STEP, "returned terminated=0.5; expected True or False"),
        ((ONE, 1.0, False, False, None), STEP, "returned info=None; expected a dict"),
    ],
)
def test_each_returned_value_is_named(returned, names, message):
    assert message in ReturnChecker(THREE).fault(returned, names)


def test_long_values_are_cut_to_eighty_characters():
    fault = ReturnChecker(THREE).fault("x" * 500, STEP)
    shown = fault.removeprefix("returned ").partition("; expected")[0]
    assert len(shown) <= 80
    assert shown.startswith("'xxx")


# --- exceptions -----------------------------------------------------------------------------------


def inner(kind):
    raise kind("no paint")


def outer(kind):
    inner(kind)


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit])
def test_exception_is_placed_where_it_was_raised(kind):
    """Not where the environment was called, nor anywhere between."""
    with pytest.raises(EnvironmentFaultError) as caught:
        call_env(EnvironmentFaultError, outer, kind)
    text = str(caught.value)
    assert text.startswith(f"raised {kind.__name__}: no paint (")
    assert text.endswith(", in inner)")
    assert f"{__file__}:{inner.__code__.co_firstlineno + 1}" in text
    assert isinstance(caught.value.__cause__, kind)


def test_wrappers_own_error_stays_as_it_is():
    error = ObservationError("it explains itself")

    def method():
        raise error

    with pytest.raises(ObservationError) as caught:
        call_env(EnvironmentFaultError, method)
    assert caught.value is error
    assert call_env(EnvironmentFaultError, max, 1, 2, key=lambda x: -x) == 1


def test_encoding_updates_the_filter_only_if_asked():
    asked = []
    policy = SimpleNamespace(preprocess=lambda observed, update: asked.append(update) or observed)
    errors = EnvErrors(np.zeros(2, int))
    assert errors.encode(policy, [1, 2]) == [1, 2]
    errors.encode(policy, [1, 2], update=True)
    assert asked == [False, True]


# --- a vector environment that the caller made ----------------------------------------------------


class Canned(VectorEnv):
    """Returns what it is given."""

    def __init__(self, returned, mode=AutoresetMode.SAME_STEP):
        self.num_envs, self.returned, self.metadata = 2, returned, {"autoreset_mode": mode}
        self.single_observation_space, self.single_action_space = THREE, FOUR
        self.closed_with = []

    def reset(self, **options):
        return options

    def step(self, actions):
        return self.returned

    def close(self, **kwargs):
        self.closed_with.append(kwargs)


OBS, NONE, FIRST, REWARDS = (
    np.zeros((2, 3), np.float32),
    np.zeros(2, bool),
    np.array([True, False]),
    np.ones(2),
)


@pytest.mark.parametrize(
    ("terminated", "truncated"), [(FIRST, NONE), (NONE, FIRST), (FIRST, FIRST), (FIRST, ~FIRST)]
)
def test_the_end_of_any_episode_needs_its_last_observation_under_same_step_alone(
    terminated, truncated
):
    ended = (OBS, REWARDS, terminated, truncated, {})
    with pytest.raises(
        EnvironmentFaultError,
        match=r'the vector environment Canned returned no infos\["final_obs"\]',
    ):
        ExternalVectorEnv(Canned(ended)).step([0, 0])
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED):
        assert ExternalVectorEnv(Canned(ended, mode)).step([0, 0])[4] == {}
    infos = {"final_obs": OBS}
    found = ExternalVectorEnv(Canned((OBS, REWARDS, terminated, truncated, infos))).step([0, 0])
    assert [part.tolist() for part in found[1:4]] == [
        [1, 1],
        terminated.tolist(),
        truncated.tolist(),
    ]
    assert found[4] is infos


def test_steps_within_episodes_need_no_last_observation():
    found = ExternalVectorEnv(Canned((OBS, [1, 2], [False, False], NONE, {}))).step([0, 0])
    # Lists become arrays.
    assert [part.tolist() for part in found[1:4]] == [[1, 2], [False] * 2, [False] * 2]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            (OBS, np.ones(3), NONE, NONE, {}),
            r"returned reward of shape \(3,\) and float64; .*\(2,\) and numbers",
        ),
        ((OBS, np.ones(2, complex), NONE, NONE, {}), "returned reward .*complex128.* and numbers"),
        ((OBS, REWARDS, np.zeros(2, int), NONE, {}), "returned terminated .*int64.* and booleans"),
        (
            (OBS, REWARDS, NONE, np.zeros((2, 1), bool), {}),
            r"returned truncated of shape \(2, 1\) and bool",
        ),
        ((OBS, REWARDS, NONE, {}), r"expected \(obs, reward, terminated, truncated, infos\)"),
        (
            (OBS, REWARDS, NONE, NONE, NONE, {}),
            r"expected \(obs, reward, terminated, truncated, infos\)",
        ),
    ],
)
def test_columns_of_a_wrong_form_are_named(returned, message):
    with pytest.raises(EnvironmentFaultError, match=message):
        ExternalVectorEnv(Canned(returned)).step([0, 0])


def test_a_passed_vector_environment_is_reset_with_all_options_and_never_closed():
    canned = Canned(None)
    wrapper = ExternalVectorEnv(canned)
    assert wrapper.reset(seed=3, options={"reset_mask": 1}) == {
        "seed": 3,
        "options": {"reset_mask": 1},
    }
    wrapper.close()
    wrapper.close(terminate=True)
    assert canned.closed_with == []


def test_a_passed_vector_environment_says_that_it_cannot_report_its_state():
    wrapper = ExternalVectorEnv(Canned(None))
    places, reasons = wrapper.call("where"), wrapper.call("go_to", [{}, {}])
    assert len(places) == len(reasons) == 2
    assert [place["generator"] for place in places] == [{}, {}]
    assert {place["why"] for place in places} == set(reasons)
    assert "belongs to a passed vector environment" in reasons[0]
