"""Environment wrappers: what the installed plugins put around an environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rlcatalog.choice.selection import Verdict, verdict
from rlcatalog.errors import ModelContractError, shown
from rlcatalog.plugins import Component, Match, Request
from rlcatalog.plugins.component import blame_part, call_target
from rlcatalog.spaces import SpaceInfo

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.vector import VectorEnv

#: Where an environment notes which component made it, so that wrapping twice is wrapping once.
_MARK = "_rlcatalog_wrapper"


def wrap(
    components: Iterable[Component], env: gymnasium.Env[Any, Any], config: Mapping[str, Any]
) -> tuple[Any, list[Verdict]]:
    """Apply each wrapper that matches, in the order given.

    Args:
        components: The environment wrappers.
        env: A single environment; one that is wrapped already is left as it is.
        config: The model config, complete.

    Returns:
        The environment and each wrapper's answer.

    Raises:
        ModelContractError: `env` is no single environment, or a wrapper returned none.
        PluginError: A wrapper raised.
    """
    import gymnasium

    if not isinstance(env, gymnasium.Env):
        single = " Wrap the single environments: gymnasium.make_vec(id, wrappers=[rlcatalog.wrap_env])." * hasattr(
            env, "single_observation_space"
        )
        raise ModelContractError(f"wrap_env: expected a gymnasium.Env, found {shown(env)}.{single}")
    verdicts: list[Verdict] = []
    for component in components:
        answer = ask_wrapper(component, env, config)
        verdicts.append((component, answer))
        if answer.rank is None:
            continue
        wrapped = call_target(component, "numpy", env, config)
        if not isinstance(wrapped, gymnasium.Env):
            raise ModelContractError(f"{component.title} must return an environment, found {shown(wrapped)}.")
        with blame_part(component, "result"):
            spaces = wrapped.observation_space, wrapped.action_space
            if wrapped is not env:
                setattr(wrapped, _MARK, component.address)
        for space in spaces:
            if not isinstance(space, gymnasium.Space):
                found = f"found {shown(space)} in place of one"
                raise ModelContractError(f"{component.title} must return an environment with spaces, {found}.")
        env = wrapped
    return env, verdicts


def ask_wrapper(component: Component, env: gymnasium.Env[Any, Any], config: Mapping[str, Any]) -> Match:
    """Ask a wrapper about an environment; one that is around it already does not match.

    Args:
        component: The wrapper.
        env: A single environment.
        config: The model config, complete.
    """
    inner: Any = env
    while inner is not None:
        if vars(inner).get(_MARK) == component.address:
            return Match(None, "is applied already")
        inner = vars(inner).get("env")
    spaces = SpaceInfo.read(env.observation_space), SpaceInfo.read(env.action_space, "action")
    return verdict(component, Request(*spaces, config=config, env=env))


def check_wrapped(components: Iterable[Component], envs: VectorEnv[Any, Any, Any], config: Mapping[str, Any]) -> None:
    """Raise if a wrapper would still apply to the members of a vector environment, which cannot be wrapped any more.

    Raises:
        ModelContractError: One would; the message says how to wrap them.
    """
    for env in getattr(envs, "envs", ())[:1]:
        for component in components:
            answer = ask_wrapper(component, env, config)
            if answer.rank is not None:
                raise ModelContractError(
                    f"The environments of {type(envs).__name__} lack the wrapper {component.name!r}"
                    f" ({component.provider}: {answer.why}). Wrap them when they are made:"
                    " gymnasium.make_vec(id, wrappers=[lambda env: rlcatalog.wrap_env(env, config)])."
                )
