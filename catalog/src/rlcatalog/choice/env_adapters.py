"""Adapters: environments with another interface than that of Gymnasium, such as EnvPool.

A plugin declares an adapter with the hook `rlcatalog_env_adapters`. The kernel recognises an
environment by names alone: those of the modules that define its class and that class's bases, or
those of its attributes. So nothing is imported before an environment needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pkgutil import resolve_name
from typing import Any

from rlcatalog import public_index
from rlcatalog.errors import (
    CatalogError,
    MissingPluginError,
    PluginError,
    UnknownNameError,
    raised_as,
    reason,
    shown,
)
from rlcatalog.plugins import install_hints
from rlcatalog.plugins.declarations import EnvAdapterSpec
from rlcatalog.plugins.loader import condition_of
from rlcatalog.spaces import read_attribute


def vector_source(env: Any) -> Any:
    """Return the object that has a vector environment's `num_envs` and its spaces for one
    environment: the vector environment or, inside wrappers of `gymnasium.Wrapper`, the innermost
    one. None for a single environment, or for what makes one.

    A vector environment is recognised by its attributes, not by its class: older versions of
    EnvPool, and Isaac Lab, have a `gymnasium.Env` with `num_envs` and `single_observation_space`.
    """
    if isinstance(env, type):
        return None  # a class, whose attribute would be a default or a property
    for candidate in (env, read_attribute(env, "unwrapped")):
        if read_attribute(candidate, "single_action_space") is not None:
            return candidate
    return None


def count_envs(env: Any) -> int | None:
    """Return the number of environments that a vector environment steps together; None for a single
    environment, or for what makes one.
    """
    source = vector_source(env)
    return None if source is None else int(source.num_envs)


def is_environment(env: Any) -> bool:
    """Return whether an object is an environment, of Gymnasium's kind or of one that an adapter
    serves, rather than an id, a class or a function that makes one.
    """
    import gymnasium

    if isinstance(env, type):
        return False
    if isinstance(env, gymnasium.Env) or vector_source(env) is not None:
        return True
    return adapter_of(env) is not None


def adapter_of(env: Any) -> EnvAdapterSpec | None:
    """Return the adapter for an environment; None if it needs none.

    The nearest class decides, as in Python's search for a method. Attributes count only if no
    module is declared.
    """
    specs = EnvAdapterSpec.table.specs
    for cls in type(env).__mro__:
        for module in _modules_around(cls.__module__):
            if module in specs:
                return specs[module]
    innermost_env = read_attribute(env, "unwrapped")
    for spec in specs.values():
        for candidate in (env, innermost_env):
            has_attributes = [
                read_attribute(candidate, name) is not None for name in spec.attributes
            ]
            if has_attributes and all(has_attributes):
                return spec
    return None


def _modules_around(module: str) -> list[str]:
    """Return a module's name and those of the packages around it, the innermost first."""
    names = []
    while module:
        names.append(module)
        module, _, _ = module.rpartition(".")
    return names


def adapter_of_id(env_id: str) -> EnvAdapterSpec | None:
    """Return the adapter that owns an id's prefix, such as `envpool:`; None if no adapter does.

    Raises:
        MissingPluginError: The prefix belongs to a package that is not installed or not loaded.
            Gymnasium would import the module of that name, and might make an environment of its own
            that has the rest of the id.
    """
    prefix, colon, _ = env_id.partition(":")
    if not colon:
        return None
    entry = f"{prefix}:"
    spec = EnvAdapterSpec.table.specs.get(entry)
    owner = public_index.provider_of(EnvAdapterSpec.kind, entry)
    if spec is None and owner is not None:
        how_to_get = install_hints.how_to_get(owner, condition_of(owner))
        raise MissingPluginError(f"Environment {shown(env_id)} {how_to_get}")
    return spec


def is_adapter_id(env_id: str) -> bool:
    """Return whether an installed adapter owns an id's prefix.

    Nothing is imported because of such a prefix. In other ids, it names a module, which Gymnasium
    imports.
    """
    prefix, _, name = env_id.partition(":")
    return f"{prefix}:" in EnvAdapterSpec.table.specs and ":" not in name


def makes_vector(env: Any) -> bool:
    """Return whether an id makes all environments of a run at once, as one vector environment."""
    if not isinstance(env, str):
        return False
    spec = adapter_of_id(env)
    return spec is not None and spec.makes_vector


def adapt(env: Any) -> Any:
    """Return an environment in Gymnasium's form; one that has it already is returned unchanged.

    Raises:
        NotServedError: The environment has something that Gymnasium's form cannot express.
        PluginError: The adapter cannot be imported, raised an error, or returned something else.
    """
    spec = adapter_of(env)
    if spec is None:
        return env
    function = _load(spec.targets["numpy"])
    with _blame(spec):
        adapted = function(env)
    return _checked(spec, adapted)


def make_by_id(spec: EnvAdapterSpec, env_id: str, config: Mapping[str, Any]) -> Any:
    """Make an environment whose id has an adapter's prefix.

    Args:
        spec: The adapter.
        env_id: The id, with the prefix.
        config: Keyword arguments. For ids that make a vector environment, `num_envs` is the number
            of environments; without it, there is one.

    Raises:
        UnknownNameError: The environment cannot be made.
    """
    _, _, name = env_id.partition(":")
    if ":" in name:
        # Gymnasium, which an adapter may ask, would import the module of that name.
        raise UnknownNameError(
            f"Environment {shown(env_id)} cannot be made: expected no other colon after the prefix"
            f" {spec.prefix!r}."
        )
    arguments = dict(config)
    try:
        if spec.makes_vector:
            num_envs = arguments.pop("num_envs", 1)
            env = _load(spec.targets["make_vec"])(name, num_envs, **arguments)
        else:
            env = _load(spec.targets["make"])(name, **arguments)
    except CatalogError:
        raise
    except (Exception, SystemExit) as error:  # from the other package, or from the environment
        raise UnknownNameError(
            f"Environment {shown(env_id)} cannot be made: {reason(error)}"
        ) from error
    return _checked(spec, env)


def _checked(spec: EnvAdapterSpec, env: Any) -> Any:
    """Return what an adapter made, if it is an environment of Gymnasium.

    Raises:
        PluginError: It is not.
    """
    import gymnasium
    from gymnasium.vector import VectorEnv

    if not isinstance(env, gymnasium.Env | VectorEnv):
        raise PluginError(
            f"env_adapter {spec.name!r} must return a gymnasium.Env or a"
            f" gymnasium.vector.VectorEnv, found {shown(env)}."
        )
    return env


def _blame(spec: EnvAdapterSpec) -> Any:
    """Run an adapter's code, and report its errors under its name; rlcatalog's own errors pass."""
    return raised_as(
        lambda why: PluginError(f"env_adapter {spec.name!r} raised {why}"), CatalogError
    )


@cache
def _load(target: str) -> Any:
    with raised_as(lambda why: PluginError(f"env adapter {target!r} cannot be imported: {why}")):
        return resolve_name(target)
