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


#: What the step of a faulty environment returns or raises.
FAULTY_STEPS = {
    "raises": RuntimeError("boom"),
    "exits": SystemExit(3),
    "nothing": None,
    "observation": OBS,
    "four": (OBS, 1.0, True, {}),
    "reward": step(reward=None),
    "terminated": step(terminated="no"),
    "info": (OBS, 1.0, False, False, []),
    "shape": step({"x": np.zeros(4, np.float32)}),
    "nested": step({"t": (OBS["t"][0], np.zeros(2))}),
}
#: What the reset of a faulty environment returns or raises.
FAULTY_RESETS = {
    "raises": KeyError("map"),
    "exits": SystemExit("gone"),
    "nothing": None,
    "info": (OBS, None),
    "shape": ({**OBS, "x": np.zeros((3, 1), np.float32)}, {}),
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
            return return_or_raise(FAULTY_RESETS[self.plan["fault"]])
        return OBS, {}

    def step(self, action):
        self.t += 1
        if self.plan.get("step") == self.t:
            return return_or_raise(FAULTY_STEPS[self.plan["fault"]])
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


both_ways = pytest.mark.parametrize("envs", ["sync", "async"], indirect=True)
reset_faults = pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raises", "raised KeyError: 'map'"),
        ("exits", "raised SystemExit: gone"),
        ("nothing", "returned None; expected (observation, info)"),
        ("info", "returned info=None; expected a dict"),
        ("shape", "found float32 of shape (3, 1)"),
    ],
)


@both_ways
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raises", "raised RuntimeError: boom"),
        ("exits", "raised SystemExit: 3"),
        ("nothing", "returned None; expected (observation, reward, terminated, truncated, info)"),
        ("observation", "returned {'n': 1,"),
        ("four", "gym's older interface, step returned a single"),
        ("reward", "returned the reward None; expected a number"),
        ("terminated", "returned terminated='no'; expected True or False"),
        ("info", "returned info=[]; expected a dict"),
        ("shape", "expected float32 of shape (3,); found float32 of shape (4,)"),
        ("nested", "observation['t'][1] that does not match its space"),
    ],
)
def test_faulty_step_is_named(envs, fault, message):
    # Environment 1 has this fault in its third step.
    envs.reset(seed=SEED, options={"step": 3, "fault": fault})
    envs.step(NO_ACTIONS)
    envs.step(NO_ACTIONS)

    with pytest.raises(EnvironmentFaultError) as caught:
        envs.step(NO_ACTIONS)

    assert "environment 1 of 2: step 3 of its episode " in str(caught.value)
    assert message in str(caught.value)


@both_ways
@reset_faults
def test_faulty_first_reset_is_named(envs, fault, message):
    with pytest.raises(EnvironmentFaultError, match="environment 1 of 2: reset ") as caught:
        envs.reset(seed=SEED, options={"reset": 1, "fault": fault})  # in environment 1

    assert message in str(caught.value)


@both_ways
@reset_faults
def test_faulty_reset_after_an_episode_is_named(envs, fault, message):
    # Environment 1 has this fault in its second reset.
    envs.reset(seed=SEED, options={"reset": 2, "fault": fault})
    for _ in range(4):
        envs.step(NO_ACTIONS)

    # The fifth step ends the episode and begins the next one.
    with pytest.raises(EnvironmentFaultError, match="environment 1 of 2: reset ") as caught:
        envs.step(NO_ACTIONS)

    assert message in str(caught.value)


@both_ways
def test_environments_go_on_after_a_fault(envs):
    envs.reset(seed=SEED, options={"step": 1, "fault": "four"})
    with pytest.raises(EnvironmentFaultError):
        envs.step(NO_ACTIONS)  # environment 1 returns only four values

    envs.reset(seed=SEED, options={})  # without a fault
    for _ in range(4):
        envs.step(NO_ACTIONS)
    _, _, terminated, _, _ = envs.step(NO_ACTIONS)

    assert terminated.tolist() == [True, True]  # an episode has five steps


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

    returned_obs, returned_reward, *_ = returned
    for env in (0, 1):
        assert obs["x"][env].tolist() == list(returned_obs["x"])
        assert obs["n"][env] == returned_obs["n"]
        assert reward[env] == returned_reward
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
    with pytest.raises(EnvironmentFaultError, match="reset does not take a seed") as caught:
        PPO(GymEnv, SMALL)

    assert "reset(self, *, seed=None, options=None)" in str(caught.value)


class GymEnvWithSeed(GymEnv):
    """Takes a seed, but returns no info."""

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32)


def test_reset_without_an_info_names_the_older_interface():
    with pytest.raises(EnvironmentFaultError, match="reset returned only an observation"):
        PPO(GymEnvWithSeed, SMALL)


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

    # `ReturnsObservationAlone` does so in the third step of its environment 1.
    message = r"environment 1 of 2: step 3 of its episode returned {'n': 1,"
    with pytest.raises(EnvironmentFaultError, match=message):
        algo.train()

    algo.stop()
    for name, weight in copy_weights(algo).items():
        np.testing.assert_array_equal(weight, before[name])
