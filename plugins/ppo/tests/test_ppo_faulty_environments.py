"""Environments that misbehave: each is named by its index and step, with what it returned, in turn
and in processes.
"""

from __future__ import annotations

import re
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog.errors import EnvironmentFaultError, NonFiniteError, ObservationError
from rlcatalog_ppo import PPO
from rlcatalog_ppo.environments import vector
from rlcatalog_runs import SeedStream, derive_seed

SEED = 7
#: The seed of the second environment in a run with `SEED`.
SECOND_SEED = derive_seed(SEED, SeedStream.ENVIRONMENTS, 1)
SMALL = {
    "num_envs": 2,
    "rollout_length": 8,
    "minibatch_size": 8,
    "num_epochs": 1,
    "seed": SEED,
    "model": {"fcnet_hiddens": [4]},
}


def good():
    return {
        "n": 1,
        "t": (np.zeros(2, np.float32), np.zeros(2, np.int8)),
        "x": np.zeros(3, np.float32),
    }


def step(obs=None, reward=1.0, terminated=False, truncated=False, info=None):
    return {**good(), **(obs or {})}, reward, terminated, truncated, {} if info is None else info


def failing(error):
    raise error


#: What the second environment does in its third step, and what the message says of it.
STEPS = {
    "raises": (lambda: failing(RuntimeError("boom")), "raised RuntimeError: boom"),
    "asserts": (lambda: failing(AssertionError), "raised AssertionError"),
    "exits": (lambda: sys.exit(3), "raised SystemExit: 3"),
    "nothing": (
        lambda: None,
        "returned None; expected (observation, reward, terminated, truncated, info)",
    ),
    "number": (lambda: 3, "returned 3; expected (observation,"),
    "observation": (good, "returned {'n': 1,"),
    "array": (lambda: np.zeros(3), "returned an array of shape (3,); expected (observation,"),
    "four": (lambda: (good(), 1.0, True, {}), "Gym's older interface had a single done"),
    "six": (lambda: (*step(), {}), "returned 6 values: "),
    "reward_text": (lambda: step(reward="x"), "returned the reward 'x'; expected a number"),
    "reward_digits": (lambda: step(reward="1.5"), "returned the reward '1.5'; expected a number"),
    "reward_none": (lambda: step(reward=None), "returned the reward None; expected a number"),
    "reward_array": (
        lambda: step(reward=np.zeros(2)),
        "returned the reward array([0., 0.]); expected a number",
    ),
    "reward_of_one": (
        lambda: step(reward=np.ones(1)),
        "returned the reward array([1.]); expected a number",
    ),
    "reward_list": (lambda: step(reward=[1.0]), "returned the reward [1.0]; expected a number"),
    "reward_complex": (lambda: step(reward=1j), "returned the reward 1j; expected a number"),
    "reward_huge": (lambda: step(reward=10**400), "expected a number"),
    "terminated_none": (
        lambda: step(terminated=None),
        "returned terminated=None; expected True or False",
    ),
    "terminated_text": (
        lambda: step(terminated="no"),
        "returned terminated='no'; expected True or False",
    ),
    "terminated_empty": (
        lambda: step(terminated=""),
        "returned terminated=''; expected True or False",
    ),
    "terminated_array": (
        lambda: step(terminated=np.zeros(2, bool)),
        "returned terminated=array([False, False]);",
    ),
    "terminated_number": (
        lambda: step(terminated=0.5),
        "returned terminated=0.5; expected True or False",
    ),
    "terminated_dict": (
        lambda: step(terminated={"__all__": True}),
        "returned terminated={'__all__': True};",
    ),
    "truncated_none": (
        lambda: step(truncated=None),
        "returned truncated=None; expected True or False",
    ),
    "truncated_two": (lambda: step(truncated=2), "returned truncated=2; expected True or False"),
    "info_none": (lambda: (*step()[:4], None), "returned info=None; expected a dict"),
    "info_list": (lambda: (*step()[:4], []), "returned info=[]; expected a dict"),
    "obs_none": (
        lambda: (None, *step()[1:]),
        "observation that does not match its space: expected a dict with the keys",
    ),
    "obs_text": (lambda: ("abc", *step()[1:]), "found 'abc'"),
    "obs_missing_key": (lambda: ({"n": 1}, *step()[1:]), "found the keys ['n']"),
    "obs_extra_key": (lambda: step({"y": 0}), "found the keys ['n', 't', 'x', 'y']"),
    "obs_shape": (
        lambda: step({"x": np.zeros(4, np.float32)}),
        "observation['x'] that does not match its space: expected float32 of shape (3,); found"
        " float32 of shape (4,)",
    ),
    "obs_rank": (lambda: step({"x": 0.0}), "found float64 of shape ()"),
    "obs_leaf_none": (
        lambda: step({"x": None}),
        "['x'] that does not match its space: expected float32 of shape (3,)",
    ),
    "obs_texts": (
        lambda: step({"x": np.array(["a", "b", "c"])}),
        "observation['x'] that does not match its space",
    ),
    "obs_complex": (
        lambda: step({"x": np.zeros(3, np.complex64)}),
        "found complex64 of shape (3,)",
    ),
    "obs_ragged": (
        lambda: step({"x": [1.0, [2.0, 3.0], 4.0]}),
        "found 3 values: [1.0, [2.0, 3.0], 4.0]",
    ),
    "obs_choice_float": (
        lambda: step({"n": 1.5}),
        "observation['n'] that does not match its space: expected int64 of shape ()",
    ),
    "obs_choice_none": (
        lambda: step({"n": None}),
        "observation['n'] that does not match its space: expected int64 of shape ()",
    ),
    "obs_short_tuple": (
        lambda: step({"t": good()["t"][:1]}),
        "observation['t'] that does not match its space: expected a tuple",
    ),
    "obs_long_tuple": (
        lambda: step({"t": (*good()["t"], 0)}),
        "expected a tuple of 2; found 3 values",
    ),
    "obs_bits_float": (
        lambda: step({"t": (good()["t"][0], np.zeros(2))}),
        "observation['t'][1] that does not match its space",
    ),
}
#: The same of its reset.
RESETS = {
    "raises": (lambda: failing(KeyError("map")), "raised KeyError: 'map'"),
    "exits": (lambda: sys.exit("gone"), "raised SystemExit: gone"),
    "nothing": (lambda: None, "returned None; expected (observation, info)"),
    "observation": (good, "returned {'n': 1,"),
    "three": (lambda: (good(), {}, {}), "returned 3 values: "),
    "info_none": (lambda: (good(), None), "returned info=None; expected a dict"),
    "obs_none": (
        lambda: (None, {}),
        "observation that does not match its space: expected a dict with the keys",
    ),
    "obs_shape": (
        lambda: ({**good(), "x": np.zeros((3, 1), np.float32)}, {}),
        "found float32 of shape (3, 1)",
    ),
}
#: The kinds that the processes are tried with where the attack is not made in full.
FEW = ("raises", "exits", "four", "reward_none", "terminated_text", "obs_shape")


class Faulty(gym.Env):
    """Does what its reset's options say: `{"in": "step" or "reset", "kind": ..., "at": ...}`."""

    observation_space = spaces.Dict(
        n=spaces.Discrete(3),
        t=spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.MultiBinary(2)]),
        x=spaces.Box(-1, 1, (3,)),
    )
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.fault, self.resets = None, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        if options is not None:
            self.fault, self.resets = (options if seed == SEED + 1 else None), 0
        self.resets += 1
        if (
            self.fault is not None
            and self.fault["in"] == "reset"
            and self.resets == self.fault["at"]
        ):
            return RESETS[self.fault["kind"]][0]()
        return good(), {}

    def step(self, action):
        self.t += 1
        if self.fault is not None and self.fault["in"] == "step" and self.t == self.fault["at"]:
            return STEPS[self.fault["kind"]][0]()
        return step(terminated=self.t == 5)


def kinds(table):
    """All kinds in turn, a few in processes; all in both where the attack is made in full."""
    return [
        pytest.param(
            how,
            kind,
            id=f"{how}-{kind}",
            marks=[pytest.mark.attack] if how == "async" and kind not in FEW else [],
        )
        for how in ("sync", "async")
        for kind in table
    ]


@pytest.fixture(scope="module")
def pools():
    """One pool of each way: a fault in an environment leaves the others, and itself, where they can
    go on.
    """
    made = {}
    yield lambda how: made.setdefault(how, vector(Faulty, 2, how=how))
    for pool in made.values():
        pool.close()


def caught(message, run):
    """Raise unless a run ends in the error that names the second environment."""
    with pytest.raises(
        EnvironmentFaultError, match=re.escape(f"environment 1 of 2: {message}")
    ) as found:
        run()
    return str(found.value)


@pytest.mark.parametrize(("how", "kind"), kinds(STEPS))
def test_a_faulty_step_is_named(pools, how, kind):
    envs, (_, said) = pools(how), STEPS[kind]
    envs.reset(seed=SEED, options={"in": "step", "kind": kind, "at": 3})
    for _ in range(2):
        envs.step(np.zeros(2, np.int64))
    text = caught("step 3 of its episode ", lambda: envs.step(np.zeros(2, np.int64)))
    assert said in text


@pytest.mark.grid
@pytest.mark.parametrize(("how", "kind"), kinds(RESETS))
@pytest.mark.parametrize("at", [1, 2], ids=["first", "next"])
def test_a_faulty_reset_is_named(pools, how, kind, at):
    """The first one, and the one with which the next episode begins by itself."""
    envs, (_, said) = pools(how), RESETS[kind]
    options = {"in": "reset", "kind": kind, "at": at}

    def run():
        envs.reset(seed=SEED, options=options)
        for _ in range(5):
            envs.step(np.zeros(2, np.int64))

    assert said in caught("reset ", run)


@pytest.mark.parametrize("how", ["sync", "async"])
def test_the_rest_goes_on_after_a_fault(pools, how):
    envs = pools(how)
    envs.reset(seed=SEED, options={"in": "step", "kind": "four", "at": 1})
    with pytest.raises(EnvironmentFaultError):
        envs.step(np.zeros(2, np.int64))
    envs.reset(seed=SEED, options={"in": None})
    assert [envs.step(np.zeros(2, np.int64))[2].tolist() for _ in range(5)][4] == [True, True]


UNUSUAL = {
    "list": (lambda: step({"x": [0, 1, 0]})),
    "float64": (lambda: step({"x": np.zeros(3)})),
    "array_of_rank_0": (
        lambda: step({"n": np.array(1)}, reward=np.array(2.0), terminated=np.array(False))
    ),
    "whole_numbers": (lambda: step(reward=2, terminated=0, truncated=np.int64(0))),
    "float16": (lambda: step(reward=np.float16(2), terminated=np.False_)),
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_what_is_unusual_and_means_the_same_passes(kind):
    class Unusual(Faulty):
        def step(self, action):
            return UNUSUAL[kind]()

    envs = vector(Unusual, 2)
    envs.reset(seed=0)
    obs, reward, terminated, truncated, _ = envs.step(np.zeros(2, np.int64))
    expected = UNUSUAL[kind]()
    np.testing.assert_array_equal(obs["x"], [expected[0]["x"]] * 2)
    np.testing.assert_array_equal(obs["n"], [expected[0]["n"]] * 2)
    assert reward.tolist() == [float(expected[1])] * 2
    assert not terminated.any()
    assert not truncated.any()


class Older(gym.Env):
    """Gym's older interface: no seed, no info."""

    observation_space, action_space = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)

    def reset(self):
        return np.zeros(3, np.float32)


def test_the_older_interface_is_named():
    with pytest.raises(
        EnvironmentFaultError, match=r"environment 0 of 2: reset raised TypeError: .*seed"
    ):
        PPO(Older, SMALL)


class Numbers(gym.Env):
    """Returns what its config says in the third step of the second environment."""

    observation_space, action_space = (
        spaces.Dict(n=spaces.Discrete(3), x=spaces.Box(-1, 1, (3,))),
        spaces.Discrete(2),
    )

    def __init__(self, config):
        self.config = config

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return {"n": 1, "x": np.zeros(3, np.float32)}, {}

    def step(self, action):
        self.t += 1
        found = {"n": 1, "x": 0.0, "reward": 1.0} | (
            self.config if self.np_random_seed == SECOND_SEED and self.t == 3 else {}
        )
        return (
            {"n": found["n"], "x": np.full(3, found["x"], np.float32)},
            found["reward"],
            False,
            False,
            {},
        )


@pytest.mark.parametrize(
    ("numbers", "error", "said"),
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
)
def test_numbers_that_nothing_can_be_learned_from_are_named(numbers, error, said):
    algo = PPO(Numbers, {**SMALL, "env_config": numbers})
    before = {name: weight.copy() for name, weight in algo.policy.model.get_weights().items()}
    with pytest.raises(error, match=rf"environment 1 of 2, {said}"):
        algo.train()
    algo.stop()
    for name, weight in algo.policy.model.get_weights().items():
        np.testing.assert_array_equal(weight, before[name])


@pytest.mark.parametrize("how", ["sync", "async"])
def test_training_ends_at_a_fault_and_leaves_the_weights(how):
    class Falls(Numbers):
        def step(self, action):
            obs, *rest = super().step(action)
            return (obs, *rest) if self.t < 3 or self.np_random_seed != SECOND_SEED else obs

    algo = PPO(Falls, {**SMALL, "vector": how, "env_config": {"n": 1}})
    before = {name: weight.copy() for name, weight in algo.policy.model.get_weights().items()}
    caught("step 3 of its episode returned {'n': 1,", algo.train)
    algo.stop()
    for name, weight in algo.policy.model.get_weights().items():
        np.testing.assert_array_equal(weight, before[name])
