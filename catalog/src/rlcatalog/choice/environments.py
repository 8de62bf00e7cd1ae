"""Construction of environments, and the wrappers that installed plugins provide for them."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rlcatalog.choice.env_adapters import (
    adapt,
    adapter_of_id,
    is_environment,
    make_by_id,
    vector_source,
)
from rlcatalog.choice.selection import Verdict, match_of
from rlcatalog.errors import (
    CatalogError,
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


class EngineWrapper:
    """Mixin for an engine's environment wrapper that encodes observations, and whose policies are
    built for the spaces inside it.

    It must be the outermost wrapper: the engine would train with what `wrap_env` adds around it,
    but a policy for the spaces inside would act without that. `wrap_env` therefore refuses to add
    anything around it.

    Attributes:
        right_order: How a user applies this wrapper after `wrap_env`, as the end of a message.
    """

    right_order: str


class EnvProperties(NamedTuple):
    """What a lookup needs to know about an environment.

    Attributes:
        observation_space: The observation space, after `wrap_env`.
        action_space: The action space.
        name: The environment's name; empty for two spaces without one.
        verdicts: Each candidate wrapper's answer; a vector environment has no such answers.
        image_layout: Layout of its images, if its wrappers say it; see `env_layout`.
    """

    observation_space: Any
    action_space: Any
    name: str = ""
    verdicts: Sequence[Verdict] = ()
    image_layout: str | None = None

    @property
    def config_defaults(self) -> dict[str, Any]:
        """Defaults for the model config that the environment's wrappers imply."""
        if self.image_layout is None:
            return {}
        return {"image_layout": self.image_layout}


def look_here(module: str) -> None:
    """Make a module in the working folder importable, as `python` does, unless the name is already
    importable.
    """
    root, _, _ = module.partition(".")
    here = Path.cwd()
    is_here = (here / f"{root}.py").is_file() or (here / root / "__init__.py").is_file()
    if root.isidentifier() and is_here and importlib.util.find_spec(root) is None:
        sys.path.append(str(here))


def make_env(env: AnyEnv, config: Mapping[str, Any] | None = None) -> Any:
    """Make an environment, or return the given one, in Gymnasium's form.

    An environment of another kind, such as EnvPool's, is returned in an adapter; see
    `rlcatalog.EnvAdapterSpec`.

    Args:
        env: A Gymnasium id, an id with an adapter's prefix (`envpool:CartPole-v1`), a class or
            function that makes an environment, or an environment, single or vector.
        config: Keyword arguments for a new environment. A class or function that requires an
            argument, or has no parameters with these names, gets the config itself as its only
            argument.

    Raises:
        UnknownNameError: Gymnasium does not know the id, or cannot make the environment.
        ConfigError: `env` is something else.
    """
    import gymnasium

    if config is None:
        config = {}
    if is_environment(env):
        return adapt(env)
    if callable(env):
        return adapt(_call(env, config))
    if not isinstance(env, str):
        expected = (
            "a Gymnasium id, a class or function that makes an environment, or an environment"
        )
        raise ConfigError(f"env: expected {expected}; found {shown(env)}.")
    adapter = adapter_of_id(env)
    if adapter is not None:
        return make_by_id(adapter, env, config)
    module, colon, _ = env.partition(":")
    names_module = bool(colon)
    if names_module:
        look_here(module)  # so that Gymnasium can import it from the working folder
    try:
        return adapt(gymnasium.make(env, **config))
    except CatalogError:
        raise
    except (Exception, SystemExit) as error:  # from Gymnasium, a named module, or the environment
        hint = ""
        if isinstance(error, gymnasium.error.UnregisteredEnv) and not names_module:
            hint = (
                " If a package registers it when imported, name the package: PACKAGE:"
                f"{env}, or on the command line --import PACKAGE."
            )
        raise UnknownNameError(
            f"Environment {shown(env)} cannot be made: {reason(error)}{hint}"
        ) from error


def _call(make: Callable[..., Any], config: Mapping[str, Any]) -> Any:
    """Make an environment with a config as keyword arguments, or as the only argument; see
    `make_env`.
    """
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):  # a function without a signature that can be read
        return make(**config)
    positional = []
    for parameter in parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            positional.append(parameter)
    needs_argument = any(parameter.default is parameter.empty for parameter in positional)
    unknown_keys = config.keys() - parameters
    if needs_argument or (positional and unknown_keys):
        return make(config)
    return make(**config)


def close_env(env: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]) -> None:
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


def read_env(env: Any, wrappers: Sequence[Part], config: Mapping[str, Any]) -> EnvProperties:
    """Return an environment's spaces after `wrap`, and what else a lookup needs to know of it.

    Args:
        env: A single environment, a vector environment, or an object with the spaces of one.
        wrappers: The environment wrappers.
        config: The model config, complete.

    Raises:
        ModelContractError: A wrapper is missing in a vector environment, which cannot be wrapped.
    """
    name = env_name(env)
    source = vector_source(env)
    if source is not None:
        check_wrapped(wrappers, env, config)
        return EnvProperties(
            source.single_observation_space,
            source.single_action_space,
            name,
            verdicts=[],
            image_layout=vector_layout(env),
        )
    wrapped, verdicts = wrap(wrappers, env, config)
    return EnvProperties(
        wrapped.observation_space, wrapped.action_space, name, verdicts, env_layout(wrapped)
    )


def registered_id(env: Any) -> str | None:
    """Return the id under which an environment is registered, or None.

    A spec need not have an id: EnvPool's describes the simulator.
    """
    env_id: str | None = read_attribute(read_attribute(env, "spec"), "id")
    return env_id


def env_name(env: Any) -> str:
    """Return an environment's id or, if it is not registered, its `class_name`."""
    return registered_id(env) or class_name(env)


def class_name(env: Any) -> str:
    """Return the name of an environment's innermost class.

    An adapter of a vector environment has the name of what is inside in its metadata, because its
    own class says nothing about that.
    """
    if vector_source(env) is not None:
        metadata = read_attribute(env, "metadata") or {}
        if isinstance(metadata.get("name"), str):
            return str(metadata["name"])
    return type(read_attribute(env, "unwrapped", env)).__name__


def vector_layout(envs: Any) -> str | None:
    """Return the layout of a vector environment's images, if known; see `env_layout`.

    Its adapter may say it in `metadata["image_layout"]`. Otherwise, the wrappers of its first
    environment may.
    """
    metadata = read_attribute(envs, "metadata") or {}
    layout: str | None = metadata.get("image_layout")
    if layout is not None:
        return layout
    members = read_attribute(envs, "envs", ())  # processes and simulators have none
    return env_layout(next(iter(members), None))


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
        ModelContractError: `env` is not a single environment, a wrapper did not return one, or a
            wrapper would be applied around an engine's.
        PluginError: A wrapper raised an error.
    """
    import gymnasium

    if not isinstance(env, gymnasium.Env):
        hint = ""
        if vector_source(env) is not None:
            hint = (
                " Wrap the single environments: gymnasium.make_vec(id,"
                " wrappers=[rlcatalog.wrap_env])."
            )
        raise ModelContractError(f"wrap_env: expected a gymnasium.Env, found {shown(env)}.{hint}")
    verdicts: list[Verdict] = []
    for part in parts:
        match = ask_wrapper(part, env, config)
        verdicts.append(Verdict(part, match))
        if match.rank is not None:
            wrapped = _apply(part, env, config)
            if wrapped is not env:
                refuse_engine_wrapper(env, addition=f"the wrapper {part.name!r} ({part.provider})")
            env = wrapped
    return env, verdicts


def refuse_engine_wrapper(env: gymnasium.Env[Any, Any], addition: str) -> None:
    """Raise an error if an environment is in an engine's wrapper, which must be the outermost.

    Args:
        env: The environment.
        addition: What would be added around it, for the message.

    Raises:
        ModelContractError: It is in such a wrapper. The message shows the right order.
    """
    for layer in _layers(env):
        if isinstance(layer, EngineWrapper):
            raise ModelContractError(
                f"wrap_env: {addition} cannot be added around {type(layer).__name__}, because"
                " policies are built for the environment inside it, and would not know the"
                f" addition. Call wrap_env first: {layer.right_order}."
            )


def _layers(env: Any) -> Iterator[Any]:
    """Yield an environment, and then what is inside it, wrapper by wrapper."""
    layer = env
    # A user's environment, whose class may have slots instead of a __dict__. getattr() would not
    # do, because Gymnasium's wrappers pass it on to the environment inside.
    while hasattr(layer, "__dict__"):
        yield layer
        layer = vars(layer).get("env")


def _apply(
    part: Part, env: gymnasium.Env[Any, Any], config: Mapping[str, Any]
) -> gymnasium.Env[Any, Any]:
    """Return the environment that a wrapper makes of an environment."""
    import gymnasium

    wrapped = call_target(part, "numpy", env, config)
    if not isinstance(wrapped, gymnasium.Env):
        raise ModelContractError(
            f"{part.title} must return an environment, found {shown(wrapped)}."
        )
    with blame_part(part, "result"):
        observation_space: object = wrapped.observation_space
        action_space: object = wrapped.action_space
        if wrapped is not env:
            setattr(wrapped, _MARK, part.address)  # so that it is not wrapped by the part again
    for space in (observation_space, action_space):
        if not isinstance(space, gymnasium.Space):
            raise ModelContractError(
                f"{part.title} must return an environment with spaces, found {shown(space)} in"
                " place of one."
            )
    return wrapped


def ask_wrapper(part: Part, env: gymnasium.Env[Any, Any], config: Mapping[str, Any]) -> Match:
    """Return a wrapper's answer for an environment; a wrapper that is already applied does not
    match.

    Args:
        part: The wrapper.
        env: A single environment.
        config: The model config, complete.
    """
    for layer in _layers(env):
        if vars(layer).get(_MARK) == part.address:
            return Match(rank=None, why="is already applied")
    request = Request(
        SpaceInfo.read(env.observation_space),
        SpaceInfo.read(env.action_space, "action"),
        config=config,
        env=env,
    )
    return match_of(part, request)


def check_wrapped(
    parts: Iterable[Part], envs: VectorEnv[Any, Any, Any], config: Mapping[str, Any]
) -> None:
    """Check that no wrapper is missing from the members of a vector environment, which can no
    longer be wrapped.

    Raises:
        ModelContractError: A wrapper is missing. The message shows how to add it.
    """
    first_members = read_attribute(envs, "envs", ())[:1]  # the others are like the first
    for env in first_members:
        for part in parts:
            match = ask_wrapper(part, env, config)
            if match.rank is not None:
                raise ModelContractError(
                    f"The environments of {type(envs).__name__} lack the wrapper"
                    f" {part.name!r} ({part.provider}: {match.why}). Wrap them when"
                    " they are made: gymnasium.make_vec(id, wrappers=[lambda env:"
                    " rlcatalog.wrap_env(env, config)])."
                )
