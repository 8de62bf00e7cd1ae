"""Construction of environments, and the wrappers that installed plugins provide for them."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rlcatalog.choice.selection import Verdict, verdict
from rlcatalog.errors import (
    CatalogWarning,
    ConfigError,
    ModelContractError,
    UnknownNameError,
    reason,
    shown,
)
from rlcatalog.plugins import Match, Part, Request
from rlcatalog.plugins.part import blame_part, call_target
from rlcatalog.reporting import warn_caller
from rlcatalog.spaces import SpaceInfo, env_layout, read_attribute

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.vector import VectorEnv

    AnyEnv = str | Callable[..., Any] | gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]

#: Attribute in which an environment stores the part that wrapped it, so that no wrapper is
#: applied twice.
_MARK = "_rlcatalog_wrapper"


class EnvSpaces(NamedTuple):
    """What a lookup needs to know about an environment.

    Attributes:
        observation: The observation space, after `wrap_env`.
        action: The action space.
        name: The environment's name.
        verdicts: Each candidate wrapper's answer; a vector environment has no such answers.
        image_layout: Layout of its images, if its wrappers say it; see `env_layout`.
    """

    observation: Any
    action: Any
    name: str
    verdicts: list[Verdict]
    image_layout: str | None

    @property
    def defaults(self) -> dict[str, Any]:
        """Defaults for the model config that the environment's wrappers imply."""
        return {} if self.image_layout is None else {"image_layout": self.image_layout}


def look_here(module: str) -> None:
    """Make a module in the working folder importable, as `python` does, unless the name is already
    importable.
    """
    root, here = module.partition(".")[0], Path.cwd()
    if not root.isidentifier() or not (
        (here / f"{root}.py").is_file() or (here / root / "__init__.py").is_file()
    ):
        return
    if importlib.util.find_spec(root) is None:
        sys.path.append(str(here))


def make_env(env: AnyEnv, config: Mapping[str, Any] | None = None) -> Any:
    """Make an environment, or return the given one.

    Args:
        env: A Gymnasium id, a class or function that makes an environment, or an environment,
            single or vector.
        config: Keyword arguments for a new environment. A class or function that requires an
            argument, or has no parameters with these names, gets the config itself as its only
            argument.

    Raises:
        UnknownNameError: Gymnasium does not know the id, or cannot make the environment.
        ConfigError: `env` is something else.
    """
    import gymnasium

    config = {} if config is None else config
    if isinstance(env, gymnasium.Env) or (
        not isinstance(env, type) and read_attribute(env, "single_action_space") is not None
    ):
        return env
    if callable(env):
        return _call(env, config)
    if not isinstance(env, str):
        expected = (
            "a Gymnasium id, a class or function that makes an environment, or an environment"
        )
        raise ConfigError(f"env: expected {expected}; found {shown(env)}.")
    module, colon, _ = env.partition(":")
    if colon:
        look_here(module)
    try:
        return gymnasium.make(env, **config)
    except (Exception, SystemExit) as error:  # from Gymnasium, a named module, or the environment
        unknown = isinstance(error, gymnasium.error.UnregisteredEnv) and not colon
        way = f"name the package: PACKAGE:{env}, or on the command line --import PACKAGE"
        hint = f" If a package registers it when imported, {way}." * unknown
        raise UnknownNameError(
            f"Environment {shown(env)} cannot be made: {reason(error)}{hint}"
        ) from error


def _call(make: Callable[..., Any], config: Mapping[str, Any]) -> Any:
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return make(**config)
    positional = [
        p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    required = any(p.default is p.empty for p in positional)
    return (
        make(config) if required or (positional and config.keys() - parameters) else make(**config)
    )


def close_env(env: Any) -> None:
    """Close an environment; an error of its `close` becomes a warning, because the work is done.

    Args:
        env: A single environment, a vector environment, or an object with the spaces of one.

    Warns:
        CatalogWarning: `close` raised an error.
    """
    close = read_attribute(env, "close")
    if close is None:
        return
    try:
        close()
    except Exception as error:  # raised by the environment's code
        name = type(read_attribute(env, "unwrapped", env)).__name__
        warn_caller(
            f"{name}.close() raised {reason(error)}. Its results are kept, but it may not have"
            " released its resources, such as a window or a simulator. Correct close().",
            CatalogWarning,
        )


def read_spaces(env: Any, wrappers: Sequence[Part], config: Mapping[str, Any]) -> EnvSpaces:
    """Return an environment's spaces after `wrap`.

    Args:
        env: A single environment, a vector environment, or an object with the spaces of one.
        wrappers: The environment wrappers.
        config: The model config, complete.

    Raises:
        ModelContractError: A wrapper is missing in a vector environment, which cannot be wrapped.
    """
    spec = read_attribute(env, "spec")
    if spec is not None:
        name = spec.id
    else:
        name = type(read_attribute(env, "unwrapped", env)).__name__
    if read_attribute(env, "single_observation_space") is not None:
        check_wrapped(wrappers, env, config)
        first = next(iter(read_attribute(env, "envs", ())), None)
        return EnvSpaces(
            env.single_observation_space, env.single_action_space, name, [], env_layout(first)
        )
    wrapped, verdicts = wrap(wrappers, env, config)
    return EnvSpaces(
        wrapped.observation_space, wrapped.action_space, name, verdicts, env_layout(wrapped)
    )


def wrap(
    parts: Iterable[Part], env: gymnasium.Env[Any, Any], config: Mapping[str, Any]
) -> tuple[Any, list[Verdict]]:
    """Apply each wrapper that matches, in the order given.

    Args:
        parts: The environment wrappers.
        env: A single environment. Wrappers that are already applied are not applied again.
        config: The model config, complete.

    Returns:
        The environment and each wrapper's answer.

    Raises:
        ModelContractError: `env` is not a single environment, or a wrapper did not return one.
        PluginError: A wrapper raised an error.
    """
    import gymnasium

    if not isinstance(env, gymnasium.Env):
        single = (
            " Wrap the single environments: gymnasium.make_vec(id, wrappers=[rlcatalog.wrap_env])."
            * (read_attribute(env, "single_observation_space") is not None)
        )
        raise ModelContractError(f"wrap_env: expected a gymnasium.Env, found {shown(env)}.{single}")
    verdicts: list[Verdict] = []
    for part in parts:
        answer = ask_wrapper(part, env, config)
        verdicts.append((part, answer))
        if answer.rank is None:
            continue
        wrapped = call_target(part, "numpy", env, config)
        if not isinstance(wrapped, gymnasium.Env):
            raise ModelContractError(
                f"{part.title} must return an environment, found {shown(wrapped)}."
            )
        with blame_part(part, "result"):
            spaces = wrapped.observation_space, wrapped.action_space
            if wrapped is not env:
                setattr(wrapped, _MARK, part.address)
        for space in spaces:
            if not isinstance(space, gymnasium.Space):
                found = f"found {shown(space)} in place of one"
                raise ModelContractError(
                    f"{part.title} must return an environment with spaces, {found}."
                )
        env = wrapped
    return env, verdicts


def ask_wrapper(part: Part, env: gymnasium.Env[Any, Any], config: Mapping[str, Any]) -> Match:
    """Return a wrapper's answer for an environment; a wrapper that is already applied does not
    match.

    Args:
        part: The wrapper.
        env: A single environment.
        config: The model config, complete.
    """
    inner: Any = env
    while hasattr(inner, "__dict__"):
        if vars(inner).get(_MARK) == part.address:
            return Match(None, "is already applied")
        inner = vars(inner).get("env")
    spaces = SpaceInfo.read(env.observation_space), SpaceInfo.read(env.action_space, "action")
    return verdict(part, Request(*spaces, config=config, env=env))


def check_wrapped(
    parts: Iterable[Part], envs: VectorEnv[Any, Any, Any], config: Mapping[str, Any]
) -> None:
    """Check that no wrapper is missing from the members of a vector environment, which can no
    longer be wrapped.

    Raises:
        ModelContractError: A wrapper is missing. The message shows how to add it.
    """
    for env in read_attribute(envs, "envs", ())[:1]:
        for part in parts:
            answer = ask_wrapper(part, env, config)
            if answer.rank is not None:
                raise ModelContractError(
                    f"The environments of {type(envs).__name__} lack the wrapper"
                    f" {part.name!r} ({part.provider}: {answer.why}). Wrap them when"
                    " they are made: gymnasium.make_vec(id, wrappers=[lambda env:"
                    " rlcatalog.wrap_env(env, config)])."
                )
