"""Checks of environment wrappers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
from gymnasium.utils.env_checker import check_env

from rlcatalog.plugins import Request
from rlcatalog.spaces import SpaceInfo
from rlcatalog.testing.contract import NotApplicable, Part, check, require

#: Environments that wrappers without examples are tried on.
STANDARD = ("CartPole-v1", "Pendulum-v1")


@contextmanager
def environments(part: Part) -> Iterator[list[Any]]:
    """Return fresh environments that a wrapper is for; they are closed afterwards.

    Raises:
        AssertionError: It matches none.
    """
    declared = part.component.declaration.examples
    makers: list[Callable[[], Any]] = (
        list(part.component.imported(declared)())
        if declared is not None
        else [lambda name=name: gymnasium.make(name) for name in STANDARD]  # type: ignore[misc]
    )
    made = [make() for make in makers]
    try:
        found = [env for env in made if _matches(part, env)]
        require(
            bool(found),
            "it matches no standard environment; declare examples='package.module:function', which returns a list of"
            " functions that each make an environment it is for",
        )
        yield found
    finally:
        for env in made:
            env.close()


def _matches(part: Part, env: Any) -> bool:
    config = part.catalog.parse_config(None).values
    found = part.component.declaration.judge(Request(SpaceInfo.read(env.observation_space), config=config, env=env))
    return getattr(found, "rank", None) is not None


@check("env_wrapper", hint="return a new wrapper around env, and leave env itself as it is")
def applied_twice_is_once(part: Part) -> None:
    """A second wrapping changes nothing, and the first leaves the environment inside as it was."""
    with environments(part) as found:
        for env in found:
            before = env.observation_space, env.action_space
            once = part.catalog.wrap_env(env)
            spaces = once.observation_space, once.action_space
            require(once is not env, f"{env}: it returns the environment it is given, changed or not")
            require(
                (env.observation_space, env.action_space) == before, f"{env}: it changes the spaces of what it wraps"
            )
            twice = part.catalog.wrap_env(once)
            require(twice is once, f"{env}: wrapped a second time it became {twice}")
            require(
                (twice.observation_space, twice.action_space) == spaces, f"{env}: a second wrapping changed its spaces"
            )


@check("env_wrapper", hint="keep reset(seed=, options=), step() and the spaces as gymnasium.Wrapper has them")
def wrapped_environments_conform(part: Part) -> None:
    """What it returns passes Gymnasium's own check of environments."""
    with environments(part) as found:
        for env in found:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # advice, such as to check the innermost environment
                check_env(part.catalog.wrap_env(env), skip_render_check=True, skip_close_check=True)


@check(
    "env_wrapper", hint="let match() return NoMatch for environments it is not made for: every user's are asked about"
)
def leaves_others_alone(part: Part) -> None:
    """It is not put around CartPole, unless CartPole is among its examples."""
    with environments(part) as found:
        if part.component.declaration.examples and any(env.spec and env.spec.id == "CartPole-v1" for env in found):
            raise NotApplicable("CartPole is among its examples")
    cartpole: Any = gymnasium.make("CartPole-v1")
    try:
        require(not _matches(part, cartpole), "it matches CartPole-v1")
    finally:
        cartpole.close()
