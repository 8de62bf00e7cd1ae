"""Checks of what environments return: observations, flags, infos and whole vectors."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rlcatalog.errors import EnvironmentFaultError
from rlcatalog_ppo.env_errors import EnvErrors, call_env
from rlcatalog_ppo.env_returns import RESET, STEP, ReturnChecker
from rlcatalog_ppo.external_env import ExternalVectorEnv

# --- one environment ------------------------------------------------------------------------------

THREE_FLOATS = spaces.Box(-1, 1, (3,), np.float32)
ONE_FLOAT = spaces.Box(0, 1, (), np.float32)
ONE_BYTE = spaces.Box(0, 255, (), np.uint8)
CHOICE = spaces.Discrete(4)
DICT = spaces.Dict({"a": THREE_FLOATS, "b": CHOICE})
TUPLE = spaces.Tuple((THREE_FLOATS, CHOICE))
WITH_TEXT = spaces.Dict({"a": spaces.Text(5), "b": THREE_FLOATS})
ZEROS = np.zeros(3, np.float32)

#: Space, and an observation whose types and shapes are those of the space.
USUAL = [
    (THREE_FLOATS, ZEROS),
    (ONE_FLOAT, np.float32(0.5)),
    (ONE_BYTE, 5),
    (CHOICE, 2),
    (CHOICE, np.int64(2)),
    (spaces.MultiBinary(2), np.zeros(2, np.int8)),
    (spaces.MultiDiscrete([2, 3]), np.zeros(2, np.int64)),
    (spaces.Text(5), object()),  # a preprocessor reads it
    (DICT, {"a": ZEROS, "b": 1}),
    (TUPLE, (ZEROS, 1)),
    (WITH_TEXT, {"a": "hello", "b": ZEROS}),
]
#: Space, and an observation that can be converted to it.
UNUSUAL = [
    (THREE_FLOATS, ZEROS.astype(np.float64)),
    (THREE_FLOATS, [0, 1, 0]),
    (THREE_FLOATS, np.zeros(3, np.int64)),
    (ONE_FLOAT, 0.5),
    (ONE_FLOAT, 1),
    (CHOICE, np.int32(2)),
    (CHOICE, True),
    (DICT, {"a": ZEROS.astype(np.float64), "b": 1}),
    (DICT, {"a": ZEROS, "b": np.int32(1)}),
    (TUPLE, [ZEROS, 1]),
    (TUPLE, (ZEROS, np.int32(1))),
    (TUPLE, ([0, 0, 0], 1)),
    (WITH_TEXT, {"a": "hello", "b": [0, 0, 0]}),
]

FLOATS = "expected float32 of shape (3,)"
KEYS = "expected a dict with the keys ['a', 'b']"
#: Space, observation, what the message says was expected and found.
INVALID = [
    (THREE_FLOATS, np.zeros(2, np.float32), f"{FLOATS}; found float32 of shape (2,)"),
    (THREE_FLOATS, np.zeros((3, 1), np.float32), f"{FLOATS}; found float32 of shape (3, 1)"),
    (THREE_FLOATS, np.zeros(3, complex), f"{FLOATS}; found complex128 of shape (3,)"),
    (THREE_FLOATS, ["x", "y", "z"], f"{FLOATS}; found 3 values: ['x', 'y', 'z']"),
    (THREE_FLOATS, [[0], [0, 1], 0], f"{FLOATS}; found 3 values: [[0], [0, 1], 0]"),
    (THREE_FLOATS, None, f"{FLOATS}; found None"),
    (THREE_FLOATS, np.array(["x", "y", "z"]), f"{FLOATS}; found an array of shape (3,)"),
    (CHOICE, 2.0, "expected int64 of shape (); found float64 of shape ()"),
    (CHOICE, np.array([1]), "expected int64 of shape (); found int64 of shape (1,)"),
    (DICT, {"a": ZEROS}, f"{KEYS}; found the keys ['a']"),
    (DICT, {"a": ZEROS, "b": 1, "c": 1}, f"{KEYS}; found the keys ['a', 'b', 'c']"),
    (DICT, (ZEROS, 1), f"{KEYS}; found 2 values"),
    (DICT, ZEROS, f"{KEYS}; found an array of shape (3,)"),
    (DICT, ["a", "b"], f"{KEYS}; found 2 values: ['a', 'b']"),
    (
        DICT,
        {"a": ZEROS, "b": 1.5},
        "['b'] that does not match its space: expected int64 of shape ()",
    ),
    (DICT, {"a": ZEROS[:2], "b": 1}, f"['a'] that does not match its space: {FLOATS}"),
    (TUPLE, (ZEROS,), "expected a tuple of 2; found 1 values"),
    (TUPLE, (ZEROS, 1, 2), "expected a tuple of 2; found 3 values"),
    (TUPLE, np.zeros(2), "expected a tuple of 2; found an array of shape (2,)"),
    (TUPLE, {"a": 1, "b": 2}, "expected a tuple of 2; found {'a': 1, 'b': 2}"),
    (TUPLE, (ZEROS, 1.5), "[1] that does not match its space: expected int64 of shape ()"),
    (TUPLE, (ZEROS[:1], 1), f"[0] that does not match its space: {FLOATS}"),
    (WITH_TEXT, {"a": "hello", "b": ZEROS[:1]}, f"['b'] that does not match its space: {FLOATS}"),
]


@pytest.mark.parametrize(("space", "obs"), [*USUAL, *UNUSUAL])
def test_valid_observation_is_accepted(space, obs):
    checker = ReturnChecker(space)

    assert checker.fault((obs, {}), RESET) is None
    assert checker.fault((obs, 1.0, True, False, {}), STEP) is None


@pytest.mark.parametrize(("space", "obs"), USUAL)
def test_usual_observation_passes_the_quick_test(space, obs):
    assert ReturnChecker(space).has_usual_format(obs) is True


@pytest.mark.parametrize(("space", "obs"), UNUSUAL)
def test_unusual_observation_is_checked_in_detail(space, obs):
    assert ReturnChecker(space).has_usual_format(obs) is False


@pytest.mark.parametrize("obs", [np.float32([0, 0, 0]), [0, 0, 0]], ids=["usual", "unusual"])
def test_info_is_checked_whatever_the_observation(obs):
    fault = ReturnChecker(THREE_FLOATS).fault((obs, [1]), RESET)

    assert fault == "returned info=[1]; expected a dict"


@pytest.mark.parametrize(("space", "obs", "message"), INVALID)
def test_invalid_observation_of_a_step_is_described(space, obs, message):
    checker = ReturnChecker(space)

    fault = checker.fault((obs, 1.0, True, False, {}), STEP)

    assert checker.has_usual_format(obs) is False
    assert fault.startswith("returned observation")
    assert message in fault


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ((ZEROS, 1.0, False, "no", {}), "returned truncated='no'; expected True or False"),
        ((ZEROS, 1.0, False, False, None), "returned info=None; expected a dict"),
    ],
)
def test_invalid_value_of_a_step_is_named(returned, message):
    assert message in ReturnChecker(THREE_FLOATS).fault(returned, STEP)


def test_long_values_are_cut_to_eighty_characters():
    fault = ReturnChecker(THREE_FLOATS).fault("x" * 500, STEP)

    shown_value = fault.removeprefix("returned ").partition("; expected")[0]
    assert len(shown_value) <= 80
    assert shown_value.startswith("'xxx")


# --- exceptions -----------------------------------------------------------------------------------


def paint(error_type):
    raise error_type("no paint")


def step_and_paint(error_type):
    paint(error_type)


@pytest.mark.parametrize("error_type", [RuntimeError, SystemExit])
def test_call_env_names_the_line_that_raised(error_type):
    """Not the line where the environment was called, nor one between."""
    with pytest.raises(EnvironmentFaultError) as caught:
        call_env(EnvironmentFaultError, step_and_paint, error_type)

    message = str(caught.value)
    line = paint.__code__.co_firstlineno + 1
    assert message.startswith(f"raised {error_type.__name__}: no paint (")
    assert message.endswith(f"{__file__}:{line}, in paint)")
    assert isinstance(caught.value.__cause__, error_type)


def test_encode_updates_the_filter_only_if_asked():
    updates = []

    class RecordingPolicy:
        def preprocess(self, observed, update):
            updates.append(update)
            return observed

    errors = EnvErrors(lengths=np.array([0, 0]))  # two environments that begin an episode

    observations = [1, 2]
    errors.encode(RecordingPolicy(), observations)
    errors.encode(RecordingPolicy(), observations, update=True)

    assert updates == [False, True]


# --- a vector environment of the caller -----------------------------------------------------------

#: Values for two environments.
OBS = np.zeros((2, 3), np.float32)
REWARDS = np.ones(2)
NEITHER = np.array([False, False])
FIRST = np.array([True, False])
SECOND = np.array([False, True])


class CannedVectorEnv(VectorEnv):
    """Two environments whose steps return a given value; resets return their arguments."""

    def __init__(self, returned=None, mode=AutoresetMode.SAME_STEP):
        self.num_envs = 2
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = THREE_FLOATS
        self.single_action_space = CHOICE
        self.observation_space = batch_space(THREE_FLOATS, 2)
        self.action_space = batch_space(CHOICE, 2)
        self.returned = returned
        self.was_closed = False

    def reset(self, **arguments):
        return arguments

    def step(self, actions):
        return self.returned

    def close(self, **arguments):
        self.was_closed = True


#: terminated, truncated.
some_ends = pytest.mark.parametrize(
    ("terminated", "truncated"),
    [(FIRST, NEITHER), (NEITHER, FIRST), (FIRST, FIRST), (FIRST, SECOND)],
    ids=["terminated", "truncated", "both in one", "one in each"],
)


@some_ends
def test_ends_in_mode_same_step_need_final_observations(terminated, truncated):
    envs = CannedVectorEnv((OBS, REWARDS, terminated, truncated, {}))

    message = r'the vector environment CannedVectorEnv returned no infos\["final_obs"\]'
    with pytest.raises(EnvironmentFaultError, match=message):
        ExternalVectorEnv(envs).step([0, 0])


@some_ends
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_ends_in_other_modes_need_no_final_observations(terminated, truncated, mode):
    envs = CannedVectorEnv((OBS, REWARDS, terminated, truncated, {}), mode)

    *_, infos = ExternalVectorEnv(envs).step([0, 0])

    assert infos == {}


@some_ends
def test_ends_with_final_observations_are_passed_on(terminated, truncated):
    infos = {"final_obs": OBS}
    envs = CannedVectorEnv((OBS, REWARDS, terminated, truncated, infos))

    step = ExternalVectorEnv(envs).step([0, 0])

    assert step[1].tolist() == [1, 1]
    np.testing.assert_array_equal(step[2], terminated)
    np.testing.assert_array_equal(step[3], truncated)
    assert step[4] is infos


def test_steps_within_episodes_need_no_final_observations():
    envs = CannedVectorEnv((OBS, REWARDS, NEITHER, NEITHER, {}))

    *_, infos = ExternalVectorEnv(envs).step([0, 0])

    assert infos == {}


def test_lists_become_arrays():
    envs = CannedVectorEnv((OBS, [1, 2], [False, False], NEITHER, {}))

    _, rewards, terminated, truncated, _ = ExternalVectorEnv(envs).step([0, 0])

    assert rewards.tolist() == [1, 2]
    assert terminated.tolist() == [False, False]
    assert truncated.tolist() == [False, False]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            (OBS, np.ones(3), NEITHER, NEITHER, {}),
            r"reward of shape \(3,\) .*\(2,\) and num",
        ),
        (
            (OBS, np.ones(2, complex), NEITHER, NEITHER, {}),
            "reward .*complex128.* and numbers",
        ),
        (
            (OBS, REWARDS, np.zeros(2, int), NEITHER, {}),
            "terminated .*int64.* and booleans",
        ),
        (
            (OBS, REWARDS, NEITHER, np.zeros((2, 1), bool), {}),
            r"truncated of shape \(2, 1\) and bool",
        ),
        ((OBS, REWARDS, NEITHER, {}), r"\(obs, reward, terminated, truncated,"),
        (
            (OBS, REWARDS, NEITHER, NEITHER, NEITHER, {}),
            r"\(obs, reward, terminated, truncated,",
        ),
    ],
    ids=["length", "dtype", "not booleans", "shape", "too few values", "too many values"],
)
def test_invalid_value_of_a_vector_environment_is_named(returned, message):
    with pytest.raises(EnvironmentFaultError, match=message):
        ExternalVectorEnv(CannedVectorEnv(returned)).step([0, 0])


def test_external_env_passes_the_arguments_of_a_reset():
    env = ExternalVectorEnv(CannedVectorEnv())

    arguments = {"seed": 3, "options": {"reset_mask": 1}}
    assert env.reset(**arguments) == arguments


def test_external_env_is_not_closed():
    envs = CannedVectorEnv()

    ExternalVectorEnv(envs).close()
    ExternalVectorEnv(envs).close(terminate=True)

    assert not envs.was_closed


def test_external_env_does_not_report_its_state():
    env = ExternalVectorEnv(CannedVectorEnv())

    first, second = env.call("resume_state")

    assert first["generator"] == {}
    assert "belongs to a passed vector environment" in first["why"]
    assert second == first


def test_external_env_does_not_go_to_a_state():
    env = ExternalVectorEnv(CannedVectorEnv())
    why = env.call("resume_state")[0]["why"]

    reasons = env.call("resume_from", [{}, {}])

    assert reasons == (why, why)
