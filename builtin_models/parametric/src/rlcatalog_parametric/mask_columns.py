"""Action mask as models see it, and the mapping from its values to one column for each value that
may be forbidden.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlcatalog.actions import ActionMasks, action_codec
from rlcatalog.config import KernelConfig, read_config
from rlcatalog.errors import ConfigError
from rlcatalog.spaces import SpaceInfo
from rlcatalog_parametric.config import HeadInputs, layout


class ShownMask:
    """Mapping from the values of an encoded mask to columns of `rlcatalog.actions.masks`.

    Args:
        action: The action space.
        shown: The mask's entry in the observation space; the kernel has already checked its format.

    Attributes:
        places: For each column, the position of its value among all concatenated values of the
            mask; None if columns and values have the same order and 0 means forbidden.
        forbidding: For each column, the value that means forbidden.

    Raises:
        ConfigError: Models see the mask only as one-hot vectors (it is a MultiDiscrete).
    """

    def __init__(self, action: SpaceInfo, shown: SpaceInfo) -> None:
        self._shown = shown
        size = 0
        for leaf in (node for node in shown.walk() if not node.is_composite):
            if leaf.kind not in ("box", "multi_binary"):
                raise ConfigError(
                    f"{leaf.path}: models see {leaf.describe()} as one-hot vectors, not as a mask."
                    " Declare it as MultiBinary or Box, or set use_parametric to False and mask"
                    " the model's outputs yourself."
                )
            size += math.prod(leaf.shape or ())
        columns = action_codec(action).mask_places_in(shown)
        places, forbidding = (np.array(column, np.int64) for column in zip(*columns, strict=True))
        plain = np.array_equal(places, np.arange(size)) and not forbidding.any()
        self.places: np.ndarray[Any, Any] | None = None if plain else places
        self.forbidding = forbidding

    def leaves(self, values: Any) -> list[Any]:
        """Return a mask's tensors `[B, ...]` in order."""
        return list(_leaves(self._shown, values))


def read(
    obs_space: Any, action_space: Any, config: Mapping[str, Any]
) -> tuple[HeadInputs, ShownMask | None, ActionMasks | None]:
    """Return the entries that a head reads from a space's observations.

    Args:
        obs_space: The space of encoded observations.
        action_space: The environment's action space.
        config: The flat model config.

    Returns:
        The layout, the mask as models see it (None without a mask), and a check that each row
        allows an action (None if not needed).
    """
    obs = SpaceInfo.read(getattr(obs_space, "original_space", obs_space))
    action = SpaceInfo.read(action_space, "action")
    found = layout(obs, action, config)
    shown = (
        None if found.mask is None else ShownMask(action, obs.children[obs.keys.index(found.mask)])
    )
    checked = read_config(config, KernelConfig).check_observations != "never" and (
        shown is not None or found.listed
    )
    return found, shown, ActionMasks(action) if checked else None


def _leaves(info: SpaceInfo, values: Any) -> Iterator[Any]:
    if not info.is_composite:
        if 0 not in (info.shape or ()):
            yield values
        return
    for name, child in zip(info.keys or range(len(info.children)), info.children, strict=True):
        yield from _leaves(child, values[name])
