"""Checks for environment wrappers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import gymnasium
from gymnasium.utils.env_checker import check_env

from rlcatalog import Match
from rlcatalog.internals import ask_wrapper
from rlcatalog_testing.contract import NotApplicable, Subject, check, require

#: Environments on which wrappers without examples are tried.
STANDARD = ("CartPole-v1", "Pendulum-v1")


def environments(
    subject: Subject,
) -> Iterator[tuple[Subject, gymnasium.Env[Any, Any], Mapping[str, Any]]]:
    """Yield the part, a new environment for the part, and a config; close all environments
    afterwards.

    Raises:
        AssertionError: It matches no environment.
    """
    settings = [_Setting(make_env(), config) for make_env, config in _examples_of(subject)]
    try:
        verdicts = [_verdict_on(subject, setting.env, setting.config) for setting in settings]
        is_applied = any(verdict.rank is not None for verdict in verdicts)
        require(is_applied, _reason_for_none(subject, settings, verdicts))
        for setting, verdict in zip(settings, verdicts, strict=True):
            if verdict.rank is not None:
                yield subject, setting.env, setting.config
    finally:
        for setting in settings:
            setting.env.close()


class _Setting(NamedTuple):
    """An environment that a wrapper is tried on, with the config."""

    env: gymnasium.Env[Any, Any]
    config: Mapping[str, Any]


def _examples_of(
    subject: Subject,
) -> Iterator[tuple[Callable[[], gymnasium.Env[Any, Any]], Mapping[str, Any]]]:
    """Yield functions that create an environment, each with a config."""
    path = subject.part.declaration.examples
    if path is None:
        for name in STANDARD:
            yield partial(gymnasium.make, name), {}
        return
    list_examples = subject.part.import_target(path)
    for example in list_examples():
        if isinstance(example, tuple):
            make_env, config = example
            yield make_env, config
        else:
            yield example, {}


def _verdict_on(subject: Subject, env: gymnasium.Env[Any, Any], config: Mapping[str, Any]) -> Match:
    return ask_wrapper(subject.part, env, subject.catalog.parse_config(config))


def _reason_for_none(
    subject: Subject, settings: Sequence[_Setting], verdicts: Sequence[Match]
) -> str:
    """Return why a wrapper was not applied to any environment."""
    declaration = subject.part.declaration
    if declaration.match is None and declaration.switch is None:
        return "it has no switch, so it is never applied; declare switch='KEY', a key in its config"
    attempts = []
    for setting, verdict in zip(settings, verdicts, strict=True):
        attempt = str(setting.env)
        if setting.config:
            attempt += f" with {dict(setting.config)}"
        attempts.append(f"{attempt}: {verdict.why}")
    tried = "; ".join(attempts)
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
def applied_twice_is_once(
    subject: Subject, env: gymnasium.Env[Any, Any], config: Mapping[str, Any]
) -> None:
    """Wrapping an environment again has no effect, and wrapping does not modify the inner
    environment.
    """
    spaces_before = _spaces_of(env)
    once = subject.catalog.wrap_env(env, config, move_masks=False)
    spaces_of_once = _spaces_of(once)
    require(once is not env, f"{env}: it returns the given environment itself")
    require(_spaces_of(env) == spaces_before, f"{env}: it changes the wrapped environment's spaces")
    twice = subject.catalog.wrap_env(once, config, move_masks=False)
    require(twice is once, f"{env}: wrapped a second time, it became {twice}")
    require(_spaces_of(twice) == spaces_of_once, f"{env}: a second wrapping changed its spaces")


def _spaces_of(
    env: gymnasium.Env[Any, Any],
) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
    return env.observation_space, env.action_space


@check_wrappers(hint="keep reset(seed=, options=), step() and the spaces as in gymnasium.Wrapper")
def wrapped_environments_conform(
    subject: Subject, env: gymnasium.Env[Any, Any], config: Mapping[str, Any]
) -> None:
    """The wrapped environment passes Gymnasium's environment checker."""
    # The checker warns with advice, such as to check the innermost environment instead.
    with warnings.catch_warnings(action="ignore"):
        wrapped = subject.catalog.wrap_env(env, config, move_masks=False)
        check_env(wrapped, skip_render_check=True, skip_close_check=True)


@check(
    "env_wrapper",
    hint="let match() return Match(None, why) for other environments: it is called for every"
    " environment",
)
def leaves_others_alone(subject: Subject) -> None:
    """The wrapper leaves CartPole unwrapped, unless CartPole is among its examples."""
    ids = []
    for _, env, config in environments(subject):
        if not config and env.spec is not None:
            ids.append(env.spec.id)
    if subject.part.declaration.examples and "CartPole-v1" in ids:
        raise NotApplicable("CartPole is among its examples")
    with closing(gymnasium.make("CartPole-v1")) as cartpole:
        verdict = _verdict_on(subject, cartpole, config={})
    require(verdict.rank is None, "it matches CartPole-v1")
