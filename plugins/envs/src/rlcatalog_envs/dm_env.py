"""Adapter for environments with the interface dm_env: dm_control, bsuite and others.

Shimmy, of the Farama Foundation, converts them. This adapter chooses its class for an environment,
and gives its ids a prefix, because Shimmy registers them only when it is imported.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import gymnasium

from rlcatalog.errors import MissingExtraError, NotServedError

Env = gymnasium.Env[Any, Any]


def make(name: str, **arguments: Any) -> Env:
    """Make an environment that Shimmy registers.

    Args:
        name: The id, such as `"dm_control/cartpole-swingup-v0"` or `"bsuite/memory_len-v0"`.
        **arguments: Arguments of `gymnasium.make`.

    Raises:
        MissingExtraError: Shimmy is not installed.
    """
    gymnasium.register_envs(_import_shimmy(f"environment 'shimmy:{name}'"))
    return gymnasium.make(name, **arguments)


def adapt(env: Any) -> Env:
    """Return an environment of dm_control or bsuite in Gymnasium's form.

    Args:
        env: A `dm_env.Environment`.

    Raises:
        MissingExtraError: Shimmy is not installed.
        NotServedError: Shimmy has no class for the environment.
    """
    name = type(env).__name__
    shimmy = _import_shimmy(name)
    packages = {cls.__module__.partition(".")[0] for cls in type(env).__mro__}
    if "dm_control" in packages:
        adapted: Env = shimmy.DmControlCompatibilityV0(env)
    elif "bsuite" in packages:
        adapted = shimmy.BSuiteCompatibilityV0(env)
    else:
        raise NotServedError(
            f"{name} has the interface dm_env, but is neither of dm_control nor of bsuite, which"
            " are the ones that Shimmy converts. Write a gymnasium.Env around it."
        )
    return adapted


def _import_shimmy(user: str) -> ModuleType:
    """Return Shimmy.

    Args:
        user: What needs it, for the message.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import shimmy
    except ImportError as error:
        raise MissingExtraError(
            f"{user}: Shimmy, which converts environments with the interface dm_env, cannot be"
            f" imported: {error}. Run: pip install 'shimmy[dm-control,bsuite]'"
        ) from error
    module: ModuleType = shimmy
    return module
