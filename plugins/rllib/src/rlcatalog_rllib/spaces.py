"""Spaces of encoded observations, which Ray passes from environments to modules.

An encoded observation is an array or a dict. In the dict, `"obs"` is the array, `"mask"` contains
the action mask's columns, and `"views"` contains the model's past views. The space's attribute
`original_space` is the environment's space.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
import tree  # type: ignore[import-untyped]
from gymnasium import spaces

from rlcatalog import Policy
from rlcatalog.errors import ConfigError

Array = np.ndarray[Any, Any]

OBS, MASK, VIEWS = "obs", "mask", "views"


def encoded_space(policy: Policy) -> Any:
    """Return the space of observations that `EncodeObservations` returns."""
    array = policy.encoded_space
    whole: Any = copy.copy(array)
    if isinstance(array, spaces.Box):
        whole = spaces.Box(array.low, array.high, array.shape, array.dtype)
    vars(whole).pop("preprocessor", None)
    parts: dict[str, Any] = {OBS: whole}
    if policy.masks.key is not None:
        parts[MASK] = spaces.MultiBinary(policy.masks.size)
    if policy.views.acting or policy.views.training:
        seen = policy.views.see(
            policy.views.start(1), np.zeros((1, *policy.preprocessor.shape), array.dtype)
        )
        parts[VIEWS] = spaces.Dict({name: _space_of(value) for name, value in seen.items()})
    found: Any = whole if len(parts) == 1 else spaces.Dict(parts)
    found.original_space = policy.observation_space
    return found


def original_space(space: Any) -> Any:
    """Return the environment's space, which a space of encoded observations stores.

    Raises:
        ConfigError: The space was not created by `EncodeObservations`.
    """
    if (found := getattr(space, "original_space", None)) is None:
        raise ConfigError(
            "CatalogRLModule takes observations from rlcatalog's connectors; found the space"
            f" {space}. Use rlcatalog_rllib.configure(config, env, model=...), or pass the three"
            " parts yourself: config.rl_module(rl_module_spec=rlcatalog_rllib.spec(obs_space,"
            " action_space, model)) and"
            " config.env_runners(env_to_module_connector=rlcatalog_rllib.env_to_module(model),"
            " module_to_env_connector=rlcatalog_rllib.module_to_env,"
            " add_default_connectors_to_module_to_env_pipeline=False)."
        )
    return found


def _space_of(value: Any) -> Any:
    """Return a space for views `[1, ...]`, or for a structure of views."""
    if isinstance(value, dict):
        return spaces.Dict({name: _space_of(part) for name, part in value.items()})
    if isinstance(value, tuple):
        return spaces.Tuple([_space_of(part) for part in value])
    low, high = (
        (-np.inf, np.inf)
        if value.dtype.kind == "f"
        else (np.iinfo(value.dtype).min, np.iinfo(value.dtype).max)
    )
    return spaces.Box(low, high, value.shape[1:], value.dtype)


def encoded_rows(encoded: Array, **columns: Iterable[Any] | None) -> list[Any]:
    """Split encoded observations into single ones: arrays, or, if there are further columns, dicts
    that contain both.

    Args:
        encoded: Encoded observations `[B, ...]`.
        **columns: Further columns, `mask` and `views`, with one row per observation.
    """
    beside = {name: column for name, column in columns.items() if column is not None}
    if not beside:
        return list(encoded)
    rows = zip(encoded, *beside.values(), strict=True)
    return [{OBS: row, **dict(zip(beside, parts, strict=True))} for row, *parts in rows]


def rows_of(batch: Any, count: int) -> list[Any]:
    """Split a structure of arrays `[count, ...]` into one structure per row."""
    if isinstance(batch, np.ndarray):
        return list(batch)
    flat = tree.flatten(batch)
    return [tree.unflatten_as(batch, [part[i] for part in flat]) for i in range(count)]
