"""Faulty environments, in this process and in others: errors name the environment and the step."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog.errors import EnvironmentFaultError, NonFiniteError, ObservationError
from rlcatalog_ppo import PPO
from rlcatalog_ppo.environments import vector

# --- faults of one environment in a vector environment --------------------------------------------

SEED = 7
OBS = {
    "n": 1,
    "t": (np.zeros(2, np.float32), np.zeros(2, np.int8)),
    "x": np.zeros(3, np.float32),
}


def step(obs=None, reward=1.0, terminated=False, truncated=False):
    """Return a step, with these parts of the observation instead of the valid ones."""
    return {**OBS, **(obs or {})}, reward, terminated, truncated, {}


#: Name → what a step returns or raises, and what the message says of it.
STEP_FAULTS = {
    "raises": (RuntimeError("boom"), "raised RuntimeError: boom"),
    "asserts": (AssertionError(), "raised AssertionError"),
    "exits": (SystemExit(3), "raised SystemExit: 3"),
    "nothing": (
        None,
        "returned None; expected (observation, reward, terminated, truncated, info)",
    ),
    "number": (3, "returned 3; expected (observation,"),
    "observation": (OBS, "returned {'n': 1,"),
    "array": (np.zeros(3), "returned an array of shape (3,); expected (observation,"),
    "four": ((OBS, 1.0, True, {}), "Gym's older interface had a single done"),
    "six": ((OBS, 1.0, False, False, {}, {}), "returned 6 values: "),
    "reward_text": (step(reward="x"), "returned the reward 'x'; expected a number"),
    "reward_digits": (step(reward="1.5"), "returned the reward '1.5'; expected a number"),
    "reward_none": (step(reward=None), "returned the reward None; expected a number"),
    "reward_array": (
        step(reward=np.zeros(2)),
        "returned the reward array([0., 0.]); expected a number",
    ),
    "reward_of_one": (
        step(reward=np.ones(1)),
        "returned the reward array([1.]); expected a number",
    ),
    "reward_list": (step(reward=[1.0]), "returned the reward [1.0]; expected a number"),
    "reward_complex": (step(reward=1j), "returned the reward 1j; expected a number"),
    "reward_huge": (step(reward=10**400), "expected a number"),
    "terminated_none": (
        step(terminated=None),
        "returned terminated=None; expected True or False",
    ),
    "terminated_text": (
        step(terminated="no"),
        "returned terminated='no'; expected True or False",
    ),
    "terminated_empty": (
        step(terminated=""),
        "returned terminated=''; expected True or False",
    ),
    "terminated_array": (
        step(terminated=np.zeros(2, bool)),
        "returned terminated=array([False, False]);",
    ),
    "terminated_number": (
        step(terminated=0.5),
        "returned terminated=0.5; expected True or False",
    ),
    "terminated_dict": (
        step(terminated={"__all__": True}),
        "returned terminated={'__all__': True};",
    ),
    "truncated_none": (step(truncated=None), "returned truncated=None; expected True or False"),
    "truncated_two": (step(truncated=2), "returned truncated=2; expected True or False"),
    "info_none": ((OBS, 1.0, False, False, None), "returned info=None; expected a dict"),
    "info_list": ((OBS, 1.0, False, False, []), "returned info=[]; expected a dict"),
    "obs_none": (
        (None, 1.0, False, False, {}),
        "observation that does not match its space: expected a dict with the keys",
    ),
    "obs_text": (("abc", 1.0, False, False, {}), "found 'abc'"),
    "obs_missing_key": (({"n": 1}, 1.0, False, False, {}), "found the keys ['n']"),
    "obs_extra_key": (step({"y": 0}), "found the keys ['n', 't', 'x', 'y']"),
    "obs_shape": (
        step({"x": np.zeros(4, np.float32)}),
        "observation['x'] that does not match its space: expected float32 of shape (3,); found"
        " float32 of shape (4,)",
    ),
    "obs_rank": (step({"x": 0.0}), "found float64 of shape ()"),
    "obs_leaf_none": (
        step({"x": None}),
        "['x'] that does not match its space: expected float32 of shape (3,)",
    ),
    "obs_texts": (
        step({"x": np.array(["a", "b", "c"])}),
        "observation['x'] that does not match its space",
    ),
    "obs_complex": (step({"x": np.zeros(3, np.complex64)}), "found complex64 of shape (3,)"),
    "obs_ragged": (step({"x": [1.0, [2.0, 3.0], 4.0]}), "found 3 values: [1.0, [2.0, 3.0], 4.0]"),
    "obs_choice_float": (
        step({"n": 1.5}),
        "observation['n'] that does not match its space: expected int64 of shape ()",
    ),
    "obs_choice_none": (
        step({"n": None}),
        "observation['n'] that does not match its space: expected int64 of shape ()",
    ),
    "obs_short_tuple": (
        step({"t": OBS["t"][:1]}),
        "observation['t'] that does not match its space: expected a tuple",
    ),
    "obs_long_tuple": (step({"t": (*OBS["t"], 0)}), "expected a tuple of 2; found 3 values"),
    "obs_bits_float": (
        step({"t": (OBS["t"][0], np.zeros(2))}),
        "observation['t'][1] that does not match its space",
    ),
}
#: The same of a reset.
RESET_FAULTS = {
    "raises": (KeyError("map"), "raised KeyError: 'map'"),
    "exits": (SystemExit("gone"), "raised SystemExit: gone"),
    "nothing": (None, "returned None; expected (observation, info)"),
    "observation": (OBS, "returned {'n': 1,"),
    "three": ((OBS, {}, {}), "returned 3 values: "),
    "info_none": ((OBS, None), "returned info=None; expected a dict"),
    "obs_none": (
        (None, {}),
        "observation that does not match its space: expected a dict with the keys",
    ),
    "obs_shape": (
        ({**OBS, "x": np.zeros((3, 1), np.float32)}, {}),
        "found float32 of shape (3, 1)",
    ),
}


def return_or_raise(result):
    if isinstance(result, BaseException):
        raise result
    return result


class FaultyEnv(gym.Env):
    """Episodes of five steps, in which the second environment has a fault.

    Args of `reset`:
        options: Which fault: `{"step": 3, "fault": "raises"}` for the third step of an episode, or
            `{"reset": 2, "fault": "raises"}` for the second reset.
    """

    observation_space = spaces.Dict(
        n=spaces.Discrete(3),
        t=spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.MultiBinary(2)]),
        x=spaces.Box(-1, 1, (3,)),
    )
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.plan = {}
        self.resets = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        if options is not None:
            is_second = seed == SEED + 1  # Gymnasium gives seeds to environments in turn
            self.plan = options if is_second else {}
            self.resets = 0
        self.resets += 1
        if self.plan.get("reset") == self.resets:
            return return_or_raise(RESET_FAULTS[self.plan["fault"]][0])
        return OBS, {}

    def step(self, action):
        self.t += 1
        if self.plan.get("step") == self.t:
            return return_or_raise(STEP_FAULTS[self.plan["fault"]][0])
        return step(terminated=self.t == 5)


NO_ACTIONS = np.zeros(2, np.int64)


@pytest.fixture(scope="module")
def envs(request):
    """Two `FaultyEnv`s, "sync" in this process or "async" in others.

    They serve all tests, because a fault leaves them where they can go on.
    """
    vector_env = vector(FaultyEnv, 2, how=request.param)
    yield vector_env
    vector_env.close()


#: The faults that `make test` tries in other processes; `make attack` tries all.
FEW = ("raises", "exits", "four", "reward_none", "terminated_text", "obs_shape")


def cross_with_ways(faults):
    """Return each fault with each value of the fixture `envs`."""
    cases = []
    for way in ("sync", "async"):
        for fault in faults:
            marks = ()
            if way == "async" and fault not in FEW:
                marks = (pytest.mark.attack,)
            cases.append(pytest.param(way, fault, id=f"{way}-{fault}", marks=marks))
    return cases


@pytest.mark.parametrize(("envs", "fault"), cross_with_ways(STEP_FAULTS), indirect=["envs"])
def test_faulty_step_is_named(envs, fault):
    _, message = STEP_FAULTS[fault]
    envs.reset(seed=SEED, options={"step": 3, "fault": fault})  # in environment 1
    envs.step(NO_ACTIONS)
    envs.step(NO_ACTIONS)

    with pytest.raises(
        EnvironmentFaultError, match=r"environment 1 of 2: step 3 of its episode "
    ) as caught:
        envs.step(NO_ACTIONS)
    assert message in str(caught.value)


@pytest.mark.parametrize(("envs", "fault"), cross_with_ways(RESET_FAULTS), indirect=["envs"])
def test_faulty_first_reset_is_named(envs, fault):
    _, message = RESET_FAULTS[fault]

    with pytest.raises(EnvironmentFaultError, match=r"environment 1 of 2: reset ") as caught:
        envs.reset(seed=SEED, options={"reset": 1, "fault": fault})  # in environment 1
    assert message in str(caught.value)


@pytest.mark.parametrize(("envs", "fault"), cross_with_ways(RESET_FAULTS), indirect=["envs"])
def test_faulty_reset_after_an_episode_is_named(envs, fault):
    _, message = RESET_FAULTS[fault]
    envs.reset(seed=SEED, options={"reset": 2, "fault": fault})  # in environment 1
    for _ in range(4):
        envs.step(NO_ACTIONS)

    # The fifth step ends the episode and begins the next one.
    with pytest.raises(EnvironmentFaultError, match=r"environment 1 of 2: reset ") as caught:
        envs.step(NO_ACTIONS)
    assert message in str(caught.value)


@pytest.mark.parametrize("envs", ["sync", "async"], indirect=True)
def test_environments_go_on_after_a_fault(envs):
    envs.reset(seed=SEED, options={"step": 1, "fault": "four"})  # four values from environment 1
    with pytest.raises(EnvironmentFaultError):
        envs.step(NO_ACTIONS)

    envs.reset(seed=SEED, options={})  # no fault
    for _ in range(4):
        envs.step(NO_ACTIONS)
    _, _, terminated, _, _ = envs.step(NO_ACTIONS)

    assert terminated.tolist() == [True, True]  # the fifth step ends the episodes


# --- unusual values that are valid ----------------------------------------------------------------


@pytest.mark.parametrize(
    "returned",
    [
        step({"x": [0, 1, 0]}),
        step({"x": np.zeros(3)}),
        step({"n": np.array(1)}, reward=np.array(2.0), terminated=np.array(False)),
        step(reward=2, terminated=0, truncated=np.int64(0)),
        step(reward=np.float16(2), terminated=np.False_),
    ],
    ids=["list", "float64", "arrays of rank 0", "integers", "float16"],
)
def test_unusual_step_is_accepted(returned):
    class UnusualEnv(FaultyEnv):
        def step(self, action):
            return returned

    envs = vector(UnusualEnv, 2)
    envs.reset(seed=0)

    obs, reward, terminated, truncated, _ = envs.step(NO_ACTIONS)

    # Both environments returned the same.
    own_obs, own_reward, *_ = returned
    np.testing.assert_array_equal(obs["x"], [own_obs["x"], own_obs["x"]])
    np.testing.assert_array_equal(obs["n"], [own_obs["n"], own_obs["n"]])
    assert reward.tolist() == [float(own_reward), float(own_reward)]
    assert not terminated.any()
    assert not truncated.any()


# --- training -------------------------------------------------------------------------------------

SMALL = {
    "num_envs": 2,
    "rollout_length": 8,
    "minibatch_size": 8,
    "num_epochs": 1,
    "seed": 0,
    "model": {"fcnet_hiddens": [4]},
}


class GymEnv(gym.Env):
    """Has Gym's older interface: `reset` takes no seed and returns no info."""

    observation_space = spaces.Box(-1, 1, (3,))
    action_space = spaces.Discrete(2)

    def reset(self):
        return np.zeros(3, np.float32)


def test_reset_without_a_seed_is_named():
    message = r"environment 0 of 2: reset raised TypeError: .*seed"
    with pytest.raises(EnvironmentFaultError, match=message):
        PPO(GymEnv, SMALL)


class EnvWithOddThirdStep(gym.Env):
    """Environment 1 returns the values in its config in its third step: `n`, `x` or `reward`."""

    observation_space = spaces.Dict(n=spaces.Discrete(3), x=spaces.Box(-1, 1, (3,)))
    action_space = spaces.Discrete(2)

    def __init__(self, config):
        self.config = config

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return {"n": 1, "x": np.zeros(3, np.float32)}, {}

    def step(self, action):
        self.t += 1
        values = {"n": 1, "x": 0.0, "reward": 1.0}
        if self.is_odd():
            values |= self.config
        obs = {"n": values["n"], "x": np.full(3, values["x"], np.float32)}
        return obs, values["reward"], False, False, {}

    def is_odd(self):
        return self.config.index == 1 and self.t == 3


def copy_weights(algo):
    return {name: weight.copy() for name, weight in algo.policy.model.get_weights().items()}


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"x": np.nan}, NonFiniteError, r"after 3 steps of its episode: .*NaN"),
        ({"x": np.inf}, NonFiniteError, r"after 3 steps of its episode: .*inf"),
        ({"reward": np.nan}, NonFiniteError, r"step 3 of its episode: the reward is nan"),
        ({"reward": 1e300}, NonFiniteError, r"step 3 of its episode: the reward is 1e\+300"),
        (
            {"n": 7},
            ObservationError,
            r"after 3 steps of its episode: obs\['n'\]: expected .*found 7",
        ),
    ],
    ids=["nan", "inf", "nan reward", "huge reward", "outside the space"],
)
def test_training_ends_at_invalid_numbers(values, error, message):
    algo = PPO(EnvWithOddThirdStep, {**SMALL, "env_config": values})
    before = copy_weights(algo)

    with pytest.raises(error, match=f"environment 1 of 2, {message}"):
        algo.train()

    algo.stop()
    for name, weight in copy_weights(algo).items():
        np.testing.assert_array_equal(weight, before[name])


class ReturnsObservationAlone(EnvWithOddThirdStep):
    """Returns only an observation in the third step of environment 1."""

    def step(self, action):
        returned = super().step(action)
        return returned[0] if self.is_odd() else returned


@pytest.mark.parametrize("how", ["sync", "async"])
def test_training_ends_at_a_faulty_step(how):
    algo = PPO(ReturnsObservationAlone, {**SMALL, "vector": how})
    before = copy_weights(algo)

    message = r"environment 1 of 2: step 3 of its episode returned {'n': 1,"
    with pytest.raises(EnvironmentFaultError, match=message):
        algo.train()

    algo.stop()
    for name, weight in copy_weights(algo).items():
        np.testing.assert_array_equal(weight, before[name])
