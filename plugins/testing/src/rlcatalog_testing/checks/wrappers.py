"""Checks for environment wrappers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
from gymnasium.utils.env_checker import check_env

from rlcatalog import Match
from rlcatalog.internals import ask_wrapper
from rlcatalog_testing.contract import NotApplicable, Subject, check, require

#: Environments on which wrappers without examples are tried.
STANDARD = ("CartPole-v1", "Pendulum-v1")


def environments(subject: Subject) -> Iterator[tuple[Subject, Any, Mapping[str, Any]]]:
    """Yield the part, a new environment for the part, and a config; close all environments
    afterwards.

    Raises:
        AssertionError: It matches no environment.
    """
    declared = subject.part.declaration.examples
    examples: list[Any] = [lambda name=name: gymnasium.make(name) for name in STANDARD]
    if declared is not None:
        examples = list(subject.part.import_target(declared)())
    pairs = [example if isinstance(example, tuple) else (example, {}) for example in examples]
    made: list[tuple[Any, Mapping[str, Any]]] = [(make(), config) for make, config in pairs]
    try:
        verdicts = [_verdict_on(subject, env, config) for env, config in made]
        require(
            any(verdict.rank is not None for verdict in verdicts),
            _why_none(subject, made, verdicts),
        )
        for (env, config), verdict in zip(made, verdicts, strict=True):
            if verdict.rank is not None:
                yield subject, env, config
    finally:
        for env, _ in made:
            env.close()


def _verdict_on(subject: Subject, env: Any, config: Mapping[str, Any]) -> Match:
    return ask_wrapper(subject.part, env, subject.catalog.parse_config(config))


def _why_none(
    subject: Subject, made: list[tuple[Any, Mapping[str, Any]]], said: list[Match]
) -> str:
    """Return why a wrapper was not applied to any environment."""
    declaration = subject.part.declaration
    if declaration.match is None and getattr(declaration, "switch", None) is None:
        return "it has no switch, so it is never applied; declare switch='KEY', a key in its config"
    tried = "; ".join(
        f"{env}{f' with {dict(config)}' if config else ''}: {answer.why}"
        for (env, config), answer in zip(made, said, strict=True)
    )
    if declaration.examples is not None:
        return f"it matches none of its examples: {tried}"
    return (
        f"it matches no standard environment: {tried}; declare examples='package.module:function',"
        " which returns a list of functions that each create a matching environment, or of pairs"
        " of such a function and a config"
    )


#: Checks for wrappers, with the part, an environment and a config.
check_wrappers = partial(check, "env_wrapper", each=environments)


@check_wrappers(hint="return a new wrapper around env, and do not modify env")
def applied_twice_is_once(subject: Subject, env: Any, config: Mapping[str, Any]) -> None:
    """Wrapping an environment again has no effect, and wrapping does not modify the inner
    environment.
    """
    before = env.observation_space, env.action_space
    once = subject.catalog.wrap_env(env, config, move_masks=False)
    spaces = once.observation_space, once.action_space
    require(once is not env, f"{env}: it returns the given environment itself")
    require(
        (env.observation_space, env.action_space) == before,
        f"{env}: it changes the wrapped environment's spaces",
    )
    twice = subject.catalog.wrap_env(once, config, move_masks=False)
    require(twice is once, f"{env}: wrapped a second time, it became {twice}")
    same = (twice.observation_space, twice.action_space) == spaces
    require(same, f"{env}: a second wrapping changed its spaces")


@check_wrappers(hint="keep reset(seed=, options=), step() and the spaces as in gymnasium.Wrapper")
def wrapped_environments_conform(subject: Subject, env: Any, config: Mapping[str, Any]) -> None:
    """The wrapped environment passes Gymnasium's environment checker."""
    # Advice, such as to check the innermost environment.
    with warnings.catch_warnings(action="ignore"):
        check_env(
            subject.catalog.wrap_env(env, config, move_masks=False),
            skip_render_check=True,
            skip_close_check=True,
        )


@check(
    "env_wrapper",
    hint="let match() return Match(None, why) for other environments: it is called for every"
    " environment",
)
def leaves_others_alone(subject: Subject) -> None:
    """The wrapper leaves CartPole unwrapped, unless CartPole is among its examples."""
    plain = [env.spec and env.spec.id for _, env, config in environments(subject) if not config]
    if subject.part.declaration.examples and "CartPole-v1" in plain:
        raise NotApplicable("CartPole is among its examples")
    with closing(gymnasium.make("CartPole-v1")) as cartpole:
        require(_verdict_on(subject, cartpole, {}).rank is None, "it matches CartPole-v1")
