"""Checks for adapters of environments."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from rlcatalog.catalog import close_env, count_envs, is_environment, make_env
from rlcatalog_policy import autoreset_of
from rlcatalog_testing.contract import NotApplicable, Subject, check, require

#: Number of steps that an adapted environment is tried for.
_STEPS = 50


def adapted_environments(subject: Subject) -> Iterator[tuple[Any, Any]]:
    """Yield each example of an adapter, and what the adapter makes of it; close it afterwards.

    Raises:
        AssertionError: The adapter declares no examples.
        NotApplicable: There are none here, because the other package is not installed.
    """
    path = subject.part.declaration.examples
    require(
        path is not None,
        "it has no examples; declare examples='package.module:function', which returns functions"
        " that each make an environment of the other kind",
    )
    makers = subject.part.import_target(str(path))()
    if not makers:
        raise NotApplicable("it has no examples in this environment")
    for make in makers:
        env = make()
        with warnings.catch_warnings(action="ignore"):  # the other package's own
            adapted = make_env(env)
        try:
            yield env, adapted
        finally:
            close_env(adapted)


#: Checks for adapters, with an environment and the adapted one.
check_adapters = partial(check, "env_adapter", each=adapted_environments)


@check_adapters(
    hint="return a gymnasium.Env or VectorEnv that has neither the modules nor all the"
    " attributes by which the adapter is recognised"
)
def adapted_twice_is_once(env: Any, adapted: Any) -> None:
    """The adapter recognises its example, and leaves what it made of it unchanged."""
    require(is_environment(env), f"{env}: none of its modules or attributes recognises it")
    require(adapted is not env, f"{env}: it is not adapted")
    again = make_env(adapted)
    require(again is adapted, f"{adapted}: adapted a second time, it became {again}")


@check_adapters(
    hint="set num_envs, both spaces for one environment, and"
    " metadata['autoreset_mode'] of a vector environment"
)
def spaces_and_mode_are_declared(_env: Any, adapted: Any) -> None:
    """The adapted environment has Gymnasium spaces; a vector environment also says how many there
    are and when it resets them.
    """
    num_envs = count_envs(adapted)
    names = ["observation_space", "action_space"]
    if num_envs is not None:
        require(num_envs > 0, f"{adapted}: it has {num_envs} environments")
        require(
            isinstance(adapted, VectorEnv), f"{adapted}: it must be a gymnasium.vector.VectorEnv"
        )
        autoreset_of(adapted)  # raises an error without a mode
        names += ["single_observation_space", "single_action_space"]
    for name in names:
        space = getattr(adapted, name, None)  # of the author's class
        require(isinstance(space, gymnasium.Space), f"{adapted}: its {name} is {space!r}")


@check_adapters(
    hint="return new arrays with the space's dtypes and shapes, one row for each environment"
)
def steps_return_what_the_spaces_say(_env: Any, adapted: Any) -> None:
    """Observations lie in the observation space; rewards and flags have a row for each
    environment.
    """
    with warnings.catch_warnings(action="ignore"):
        obs, infos = adapted.reset()
        require(isinstance(infos, dict), f"{adapted}: reset returned {infos!r} as infos")
        adapted.action_space.seed(0)
        for _ in range(_STEPS):
            _check_obs(adapted, obs)
            obs, *columns, infos = adapted.step(adapted.action_space.sample())
            ended = _check_columns(adapted, columns)
            if count_envs(adapted) is None:
                if ended.any():
                    obs, infos = adapted.reset()
                continue
            if autoreset_of(adapted) == "same_step" and ended.any():
                _check_final_obs(adapted, infos, ended)
            if autoreset_of(adapted) == "disabled" and ended.any():
                obs, infos = adapted.reset(options={"reset_mask": ended})


def _check_obs(env: Any, obs: Any) -> None:
    require(
        env.observation_space.contains(obs),
        f"{env}: the observation {obs!r} is not in {env.observation_space}",
    )


def _check_columns(env: Any, columns: list[Any]) -> np.ndarray[Any, Any]:
    """Check reward, terminated and truncated; return where an episode has ended."""
    num_envs = count_envs(env)
    shape = () if num_envs is None else (num_envs,)
    reward, *flags = columns
    require(np.shape(reward) == shape, f"{env}: its rewards have the shape {np.shape(reward)}")
    ended = np.zeros(shape, np.bool_)
    for flag in flags:
        array = np.asarray(flag)
        require(
            array.shape == shape and array.dtype.kind == "b",
            f"{env}: expected booleans of shape {shape} as flags, found {flag!r}",
        )
        ended = ended | array
    return ended


def _check_final_obs(env: Any, infos: Any, ended: np.ndarray[Any, Any]) -> None:
    """Check the last observations of the episodes that have ended."""
    require("final_obs" in infos, f"{env}: mode SAME_STEP needs infos['final_obs']")
    for index in np.flatnonzero(ended):
        obs = infos["final_obs"][index]
        require(
            env.single_observation_space.contains(obs),
            f"{env}: the last observation {obs!r} is not in {env.single_observation_space}",
        )
