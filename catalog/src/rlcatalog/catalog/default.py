"""The default catalog's lookups, as functions at the top of the package."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from rlcatalog.catalog.catalog import default_catalog
from rlcatalog.choice import Explanation

if TYPE_CHECKING:
    import gymnasium

    from rlcatalog.plugins import PluginRecord
    from rlcatalog_policy import Policy

C = TypeVar("C", bound=type)


def build(
    obs_space: gymnasium.Space[Any] | None = None,
    action_space: gymnasium.Space[Any] | None = None,
    config: Mapping[str, Any] | None = None,
    framework: str | None = None,
    *,
    env: Any = None,
) -> Policy:
    """Look parts up and build them into one policy; see `Catalog.build`.

    Example:
        >>> policy = rlcatalog.build(env=gymnasium.make("CartPole-v1"), config={"fcnet_hiddens": [64, 64]})
        >>> step = policy.act(observations)
    """
    return default_catalog().build(obs_space, action_space, config, framework, env=env)


def explain(
    obs_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    config: Mapping[str, Any] | None = None,
    framework: str | None = None,
) -> Explanation:
    """Say what a lookup chooses and why; see `Catalog.explain`."""
    return default_catalog().explain(obs_space, action_space, config, framework)


def wrap_env(env: gymnasium.Env[Any, Any], config: Mapping[str, Any] | None = None) -> gymnasium.Env[Any, Any]:
    """Apply the environment wrappers of the installed plugins that match; see `Catalog.wrap_env`."""
    return default_catalog().wrap_env(env, config)


def refresh() -> list[PluginRecord]:
    """Find plugins that were installed since the program began; see `Catalog.refresh`."""
    return default_catalog().refresh()


def register_model(name: str, **options: Any) -> Callable[[C], C]:
    """Return a decorator that registers a model class for `custom_model`; see `Catalog.register_model` for the options.

    Example:
        >>> @rlcatalog.register_model("mine")
        ... class Mine(TorchModelV2, nn.Module): ...
    """
    return default_catalog().register_model(name, **options)  # type: ignore[no-any-return]


def register_action_dist(name: str, **options: Any) -> Callable[[C], C]:
    """Return a decorator that registers a distribution for `custom_action_dist`; see `Catalog.register_action_dist`."""
    return default_catalog().register_action_dist(name, **options)  # type: ignore[no-any-return]


def register_preprocessor(name: str, **options: Any) -> Callable[[C], C]:
    """Return a decorator that registers a preprocessor; see `Catalog.register_preprocessor`."""
    return default_catalog().register_preprocessor(name, **options)  # type: ignore[no-any-return]


def register_filter(name: str, **options: Any) -> Callable[[C], C]:
    """Return a decorator that registers a filter for `observation_filter`; see `Catalog.register_filter`."""
    return default_catalog().register_filter(name, **options)  # type: ignore[no-any-return]


def load(
    directory: str | os.PathLike[str],
    *,
    observation_space: gymnasium.Space[Any] | None = None,
    action_space: gymnasium.Space[Any] | None = None,
) -> Policy:
    """Restore a policy that `Policy.save` wrote.

    Args:
        directory: Where it was saved.
        observation_space: Needed where the space has a kind of a plugin's own, which cannot be written down, or more
            entries than are made from a file (`rlcatalog.spaces.MOST_ENTRIES`); must be the saved one otherwise.
        action_space: The same for actions.

    Raises:
        SavedPolicyError: The files are truncated, changed or foreign, or ask for more than they hold.
        MissingPluginError: A part's plugin is missing; the message names it.
    """
    from rlcatalog_policy import load as load_from

    return load_from(default_catalog(), directory, observation_space, action_space)
