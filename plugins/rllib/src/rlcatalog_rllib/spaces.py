"""Spaces of encoded observations, which Ray passes from environments to modules.

An encoded observation is an array or a dict. In the dict, `"obs"` is the array, `"mask"` contains
the action mask's columns, and `"views"` contains the model's past views. The space's attribute
`original_space` is the environment's space.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import tree  # type: ignore[import-untyped]
from gymnasium import spaces

from rlcatalog import Policy
from rlcatalog.errors import ConfigError
from rlcatalog.frameworks import Array, TensorTree

Space: TypeAlias = spaces.Space[Any]

#: Keys of an encoded observation that is a dict.
OBS = "obs"
MASK = "mask"
VIEWS = "views"


def encoded_space(policy: Policy) -> Any:
    """Return the space of observations that `EncodeObservations` returns."""
    array_space = policy.encoded_space
    # A copy, because the attribute `original_space` is set on it.
    own_space: Any
    if isinstance(array_space, spaces.Box):
        own_space = spaces.Box(
            array_space.low, array_space.high, array_space.shape, array_space.dtype
        )
    else:
        own_space = copy.copy(array_space)
    # A preprocessor sets itself as an attribute of its space. Ray would pickle it with the space.
    vars(own_space).pop("preprocessor", None)
    entries: dict[str, Any] = {OBS: own_space}
    if policy.masks.key is not None:
        entries[MASK] = spaces.MultiBinary(policy.masks.size)
    has_views = bool(policy.views.acting_names or policy.views.training_repeats)
    if has_views:
        # The views at the start of an episode have the shapes and dtypes of all later ones.
        no_obs = np.zeros((1, *policy.preprocessor.shape), array_space.dtype)
        no_history = policy.views.start(1)
        views = policy.views.see(no_history, no_obs)
        entries[VIEWS] = spaces.Dict({name: _space_of(view) for name, view in views.items()})
    space: Any = own_space if len(entries) == 1 else spaces.Dict(entries)
    space.original_space = policy.observation_space
    return space


def raw_action_space(policy: Policy) -> spaces.Box:
    """Return the space of raw actions in the form in which Ray stores them.

    The connectors write it into the episodes that they encode, which tells these from episodes with
    the environment's actions.
    """
    codec = policy.action_codec
    shape = () if codec.scalar else (codec.width,)
    return spaces.Box(-np.inf, np.inf, shape, np.float64)


def original_space(space: Space) -> Space:
    """Return the environment's space, which a space of encoded observations stores.

    Raises:
        ConfigError: The space was not created by `EncodeObservations`.
    """
    # An attribute that `encoded_space` sets; other spaces lack it.
    original: Space | None = getattr(space, "original_space", None)
    if original is None:
        raise ConfigError(
            "CatalogRLModule takes observations from rlcatalog's connectors; found the space"
            f" {space}. Use rlcatalog_rllib.configure(config, env, model=...), or pass the three"
            " parts yourself: config.rl_module(rl_module_spec=rlcatalog_rllib.spec(obs_space,"
            " action_space, model)) and"
            " config.env_runners(env_to_module_connector=rlcatalog_rllib.env_to_module(model),"
            " module_to_env_connector=rlcatalog_rllib.module_to_env,"
            " add_default_connectors_to_module_to_env_pipeline=False)."
        )
    return original


class FlatActions(spaces.Box):
    """Raw actions for a Tuple or Dict of bounded Boxes, side by side, in place of their space.

    The learners of some algorithms, such as SAC, only train modules whose actions are a Box.

    Args:
        policy: The policy that draws the raw actions.

    Attributes:
        original_space: The environment's action space.
    """

    def __init__(self, policy: Policy) -> None:
        low, high = policy.action_codec.limits
        super().__init__(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
        self.original_space: Space = policy.action_space


def original_action_space(space: Space) -> Space:
    """Return the environment's action space, which `FlatActions` stores."""
    return space.original_space if isinstance(space, FlatActions) else space


def has_views(space: Space) -> bool:
    """Return whether encoded observations of a space contain views of the past."""
    return isinstance(space, spaces.Dict) and VIEWS in space.spaces


def _space_of(views: TensorTree) -> Space:
    """Return a space for views `[1, ...]`, or for a structure of views."""
    if isinstance(views, Mapping):
        return spaces.Dict({name: _space_of(view) for name, view in views.items()})
    if isinstance(views, tuple):
        return spaces.Tuple([_space_of(view) for view in views])
    array = np.asarray(views)
    if array.dtype.kind == "f":
        return spaces.Box(-np.inf, np.inf, array.shape[1:], array.dtype.type)
    limits = np.iinfo(array.dtype)
    return spaces.Box(limits.min, limits.max, array.shape[1:], array.dtype.type)


def encoded_rows(
    encoded: Array, *, mask: Iterable[Any] | None, views: Iterable[Any] | None
) -> list[Any]:
    """Split encoded observations into single ones: arrays, or, if there are masks or views, dicts
    that contain both.

    Args:
        encoded: Encoded observations `[B, ...]`.
        mask: Columns of the action mask for each observation, or None.
        views: Views of the past for each observation, or None.
    """
    columns: dict[str, Iterable[Any]] = {OBS: encoded}
    if mask is not None:
        columns[MASK] = mask
    if views is not None:
        columns[VIEWS] = views
    if len(columns) == 1:
        return list(encoded)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def rows_of(batch: TensorTree, count: int) -> list[Any]:
    """Split a structure of arrays `[count, ...]` into one structure per row."""
    if isinstance(batch, np.ndarray):
        return list(batch)
    arrays = tree.flatten(batch)
    return [tree.unflatten_as(batch, [array[row] for array in arrays]) for row in range(count)]
