"""Private names of Gymnasium: each still does what rlcatalog relies on in the installed version.

If one of these tests fails after an upgrade, Gymnasium has changed the name: adapt
`rlcatalog_ppo/private_api.py`, which says what the name is for.
"""

import time
from collections import deque
from copy import deepcopy
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.vector import AsyncVectorEnv

from rlcatalog_ppo import private_api

#: Names the version in the message of every failure.
VERSION = f"Gymnasium {gym.__version__}"

bare = partial(gym.make, "CartPole-v1", max_episode_steps=-1, disable_env_checker=True)
pendulum = partial(gym.make, "Pendulum-v1", max_episode_steps=-1, disable_env_checker=True)


def atari():
    ale_py = pytest.importorskip("ale_py")
    gym.register_envs(ale_py)
    return wrappers.AtariPreprocessing(gym.make("ALE/Pong-v5", frameskip=1))


#: A wrapper, and the attributes that change with steps but need not be restored.
WRAPPERS = {
    "TimeLimit": (lambda: wrappers.TimeLimit(bare(), 500), ()),
    "OrderEnforcing": (lambda: wrappers.OrderEnforcing(bare().unwrapped), ()),
    # It is about a warning, which may come twice.
    "PassiveEnvChecker": (lambda: wrappers.PassiveEnvChecker(bare()), ("checked_data_reuse",)),
    "AtariPreprocessing": (atari, ()),
    # A step computes the first from the queue, and a reset sets the second.
    "FrameStackObservation": (
        lambda: wrappers.FrameStackObservation(bare(), 3),
        ("stacked_obs", "padding_value"),
    ),
    "TransformObservation": (lambda: wrappers.TransformObservation(bare(), abs, None), ()),
    "TransformReward": (lambda: wrappers.TransformReward(bare(), abs), ()),
    "TransformAction": (lambda: wrappers.TransformAction(bare(), int, None), ()),
    "ClipAction": (lambda: wrappers.ClipAction(pendulum()), ()),
    "RescaleAction": (lambda: wrappers.RescaleAction(pendulum(), -1.0, 1.0), ()),
    "FlattenObservation": (lambda: wrappers.FlattenObservation(bare()), ()),
}


def plain_attributes(wrapper):
    """Return copies of the attributes that may be state, not spaces, functions or environments."""
    kinds = bool | int | float | str | list | deque | np.ndarray | None
    return {
        name: list(map(np.copy, value)) if isinstance(value, deque) else deepcopy(value)
        for name, value in vars(wrapper).items()
        if isinstance(value, kinds)
    }


def play(env, steps):
    """Begin an episode and take some steps in it."""
    env.reset(seed=0)
    for _ in range(steps):
        env.step(env.action_space.sample())


def differs(first, second):
    try:
        np.testing.assert_equal(first, second)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of Gymnasium's checker, about the bare env
def test_changing_attributes_are_all_that_steps_change(name):
    make, derived = WRAPPERS[name]
    env = make()
    known = private_api.changing_attributes(env)
    before = plain_attributes(env)

    play(env, steps=3)

    after = plain_attributes(env)
    changed = {key for key in after if key not in before or differs(before[key], after[key])}
    assert known is not None, f"{VERSION}: {name} lacks one of its attributes"
    assert changed - set(derived) <= set(known), VERSION


def test_elapsed_steps_decide_when_a_time_limit_ends():
    played, fresh = (wrappers.TimeLimit(bare(), 5) for _ in range(2))
    play(played, steps=3)
    fresh.reset(seed=0)
    for name in private_api.changing_attributes(fresh):
        setattr(fresh, name, getattr(played, name))

    ends = [fresh.step(0)[3] for _ in range(2)]

    assert ends == [False, True], VERSION


def test_restored_order_enforcing_needs_no_reset():
    played, fresh = (wrappers.OrderEnforcing(bare().unwrapped) for _ in range(2))
    play(played, steps=1)
    fresh.unwrapped.reset(seed=0)
    with pytest.raises(gym.error.ResetNeeded):
        fresh.step(0)
    for name in private_api.changing_attributes(fresh):
        setattr(fresh, name, getattr(played, name))
    fresh.step(0)


def test_restored_frames_precede_the_next_observation():
    played, fresh = (wrappers.FrameStackObservation(bare(), 3) for _ in range(2))
    play(played, steps=3)
    fresh.reset(seed=1)
    fresh.unwrapped.state = played.unwrapped.state
    for name in private_api.changing_attributes(fresh):
        setattr(fresh, name, deepcopy(getattr(played, name)))

    np.testing.assert_array_equal(fresh.step(1)[0], played.step(1)[0], err_msg=VERSION)


def test_changing_attributes_are_unknown_if_one_is_missing():
    env = wrappers.TimeLimit(bare(), 5)
    del env._elapsed_steps
    assert private_api.changing_attributes(env) is None


def test_changing_attributes_of_other_wrappers_are_unknown():
    class Mine(wrappers.TimeLimit):
        pass

    assert private_api.changing_attributes(Mine(bare(), 5)) is None


@pytest.fixture
def envs():
    """Two environments, each in a process."""
    both = AsyncVectorEnv([bare, bare], context="forkserver")
    yield both
    if not both.closed:
        private_api.forget_calls(both)
        both.close(terminate=True)


def test_processes_of_environments_run_until_they_are_closed(envs):
    processes = private_api.processes_of(envs)
    assert [process.is_alive() for process in processes] == [True, True], VERSION
    envs.close()
    assert [process.exitcode for process in processes] == [0, 0], VERSION


def test_processes_of_an_unfinished_constructor_are_none():
    assert private_api.processes_of(AsyncVectorEnv.__new__(AsyncVectorEnv)) == []


@pytest.mark.parametrize("kind", ["reset", "step", "call"])
def test_environments_are_idle_between_calls_alone(envs, kind):
    arguments = {"reset": (), "step": (np.zeros(2, int),), "call": ("has_wrapper_attr", "x")}[kind]
    envs.reset(seed=0)
    assert private_api.is_idle(envs), VERSION
    getattr(envs, f"{kind}_async")(*arguments)
    assert not private_api.is_idle(envs), f"{VERSION}: a call of {kind} goes unnoticed"
    getattr(envs, f"{kind}_wait")()
    assert private_api.is_idle(envs), VERSION


def test_forgotten_calls_do_not_keep_environments_from_closing():
    # A lambda, because functions of a test file cannot be imported in another process.
    slow = lambda: wrappers.TransformReward(bare(), lambda reward: time.sleep(60))  # noqa: E731
    envs = AsyncVectorEnv([slow], context="forkserver")
    (process,) = private_api.processes_of(envs)
    envs.reset(seed=0)
    envs.step_async(np.zeros(1, int))
    process.kill()
    process.join()

    private_api.forget_calls(envs)
    envs.close(terminate=True)  # an EOFError if it waits for the step

    assert envs.closed, VERSION
