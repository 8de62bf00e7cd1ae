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

# Environments with `OrderEnforcing` as their only wrapper. Both are partial functions of Gymnasium,
# because other processes make them and cannot import the functions of a test file.
cartpole = partial(gym.make, "CartPole-v1", max_episode_steps=-1, disable_env_checker=True)
pendulum = partial(gym.make, "Pendulum-v1", max_episode_steps=-1, disable_env_checker=True)


def atari():
    ale_py = pytest.importorskip("ale_py")
    gym.register_envs(ale_py)
    return wrappers.AtariPreprocessing(gym.make("ALE/Pong-v5", frameskip=1))


#: A wrapper, and the attributes that change with steps but need not be restored.
WRAPPERS = {
    "TimeLimit": (lambda: wrappers.TimeLimit(cartpole(), 500), ()),
    "OrderEnforcing": (lambda: wrappers.OrderEnforcing(cartpole().unwrapped), ()),
    # It is about a warning, which may come twice.
    "PassiveEnvChecker": (lambda: wrappers.PassiveEnvChecker(cartpole()), ("checked_data_reuse",)),
    "AtariPreprocessing": (atari, ()),
    # A step computes the first from the queue, and a reset sets the second.
    "FrameStackObservation": (
        lambda: wrappers.FrameStackObservation(cartpole(), 3),
        ("stacked_obs", "padding_value"),
    ),
    "TransformObservation": (lambda: wrappers.TransformObservation(cartpole(), abs, None), ()),
    "TransformReward": (lambda: wrappers.TransformReward(cartpole(), abs), ()),
    "TransformAction": (lambda: wrappers.TransformAction(cartpole(), int, None), ()),
    "ClipAction": (lambda: wrappers.ClipAction(pendulum()), ()),
    "RescaleAction": (lambda: wrappers.RescaleAction(pendulum(), -1.0, 1.0), ()),
    "FlattenObservation": (lambda: wrappers.FlattenObservation(cartpole()), ()),
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


@pytest.mark.parametrize(("make_env", "derived"), WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of Gymnasium's checker, about the bare env
def test_changing_attributes_are_all_that_steps_change(make_env, derived):
    env = make_env()
    before = plain_attributes(env)

    play(env, steps=3)

    after = plain_attributes(env)
    changed = {name for name in after if name not in before or differs(before[name], after[name])}
    changing_attributes = private_api.changing_attributes(env)
    assert changing_attributes is not None, f"{VERSION}: {env} lacks one of its attributes"
    # Attributes that are derived from others need not be restored.
    assert changed - set(derived) <= set(changing_attributes), VERSION


def copy_changing_attributes(source, target):
    """Copy what steps change of a wrapper to another wrapper of the same class."""
    for name in private_api.changing_attributes(target):
        setattr(target, name, deepcopy(getattr(source, name)))


def test_restored_time_limit_counts_earlier_steps():
    played = wrappers.TimeLimit(cartpole(), max_episode_steps=5)
    play(played, steps=3)
    restored = wrappers.TimeLimit(cartpole(), max_episode_steps=5)
    restored.reset(seed=0)

    copy_changing_attributes(played, restored)

    _, _, _, truncated_after_4_steps, _ = restored.step(0)
    _, _, _, truncated_after_5_steps, _ = restored.step(0)
    assert not truncated_after_4_steps, VERSION
    assert truncated_after_5_steps, VERSION


def test_restored_order_enforcing_needs_no_reset():
    played = wrappers.OrderEnforcing(cartpole().unwrapped)
    play(played, steps=1)
    restored = wrappers.OrderEnforcing(cartpole().unwrapped)
    restored.unwrapped.reset(seed=0)  # of the inner environment only
    with pytest.raises(gym.error.ResetNeeded):
        restored.step(0)

    copy_changing_attributes(played, restored)

    restored.step(0)  # raises no error now


def test_restored_frames_precede_next_observation():
    played = wrappers.FrameStackObservation(cartpole(), stack_size=3)
    play(played, steps=3)
    restored = wrappers.FrameStackObservation(cartpole(), stack_size=3)
    restored.reset(seed=1)

    restored.unwrapped.state = played.unwrapped.state
    copy_changing_attributes(played, restored)

    expected_frames, *_ = played.step(1)
    frames, *_ = restored.step(1)
    np.testing.assert_array_equal(frames, expected_frames, err_msg=VERSION)


def test_changing_attributes_are_unknown_if_one_is_missing():
    env = wrappers.TimeLimit(cartpole(), max_episode_steps=5)
    del env._elapsed_steps

    assert private_api.changing_attributes(env) is None


def test_changing_attributes_of_other_wrappers_are_unknown():
    class OwnTimeLimit(wrappers.TimeLimit):
        pass

    env = OwnTimeLimit(cartpole(), max_episode_steps=5)

    assert private_api.changing_attributes(env) is None


@pytest.fixture
def envs():
    """Two environments, each in a process."""
    envs = AsyncVectorEnv([cartpole, cartpole], context="forkserver")
    yield envs
    if not envs.closed:
        private_api.forget_calls(envs)
        envs.close(terminate=True)


def test_processes_run_until_environments_are_closed(envs):
    processes = private_api.processes_of(envs)
    assert [process.is_alive() for process in processes] == [True, True], VERSION

    envs.close()

    assert [process.exitcode for process in processes] == [0, 0], VERSION


def test_unfinished_constructor_has_no_processes():
    unfinished = AsyncVectorEnv.__new__(AsyncVectorEnv)  # without a call of __init__

    assert private_api.processes_of(unfinished) == []


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("reset", []),
        ("step", [np.zeros(2, int)]),
        ("call", ["has_wrapper_attr", "x"]),  # a method of the environments, and its argument
    ],
    ids=["reset", "step", "call"],
)
def test_environments_are_idle_except_during_calls(envs, method, arguments):
    begin_call = getattr(envs, f"{method}_async")
    end_call = getattr(envs, f"{method}_wait")
    envs.reset(seed=0)
    assert private_api.is_idle(envs), VERSION

    begin_call(*arguments)
    assert not private_api.is_idle(envs), f"{VERSION}: a call of {method} goes unnoticed"

    end_call()
    assert private_api.is_idle(envs), VERSION


def test_forgotten_calls_do_not_keep_environments_from_closing():
    def make_slow_env():
        # Each step takes a minute.
        return wrappers.TransformReward(cartpole(), lambda reward: time.sleep(60))

    envs = AsyncVectorEnv([make_slow_env], context="forkserver")
    envs.reset(seed=0)
    envs.step_async(np.zeros(1, int))
    [process] = private_api.processes_of(envs)
    process.kill()
    process.join()

    private_api.forget_calls(envs)
    envs.close(terminate=True)  # an EOFError if it waits for the step of the killed process

    assert envs.closed, VERSION
