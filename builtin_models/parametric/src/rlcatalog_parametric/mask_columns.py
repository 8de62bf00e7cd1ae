"""Action mask as models see it, and the mapping from its values to one column for each value that
may be forbidden.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlcatalog.actions import ActionMasks, action_codec
from rlcatalog.config import KernelConfig, read_config
from rlcatalog.errors import ConfigError
from rlcatalog.frameworks import TensorTree
from rlcatalog.spaces import SpaceInfo
from rlcatalog_parametric.config import HeadInputs, layout

if TYPE_CHECKING:
    from gymnasium import Space


class VisibleMask:
    """Action mask that models see: the mapping from its values to columns of
    `rlcatalog.actions.masks`.

    Args:
        action: The action space.
        entry: The mask's entry in the observation space; the kernel has already checked its format.

    Attributes:
        places: For each column, the position of its value among all concatenated values of the
            mask; None if columns and values have the same order and 0 means forbidden.
        forbidding: For each column, the value that means forbidden.

    Raises:
        ConfigError: Models see the mask only as one-hot vectors (it is a MultiDiscrete).
    """

    def __init__(self, action: SpaceInfo, entry: SpaceInfo) -> None:
        self._entry = entry
        size = 0
        for node in entry.walk():
            if not node.is_composite:
                _check_kind(node)
                size += math.prod(node.shape or ())
        # For each column, the position of its value, and the value that means forbidden.
        pairs = np.array(action_codec(action).mask_places_in(entry), np.int64)
        places = pairs[:, 0].copy()
        forbidding = pairs[:, 1].copy()
        have_same_order = np.array_equal(places, np.arange(size))
        zero_means_forbidden = not forbidding.any()
        self.places: np.ndarray[Any, Any] | None = places
        if have_same_order and zero_means_forbidden:
            self.places = None
        self.forbidding = forbidding

    def leaves(self, values: TensorTree) -> list[Any]:
        """Return a mask's tensors `[B, ...]` in order."""
        return list(_leaves(self._entry, values))


def _check_kind(leaf: SpaceInfo) -> None:
    """Raise an error if models see a leaf of a mask as one-hot vectors."""
    if leaf.kind not in ("box", "multi_binary"):
        raise ConfigError(
            f"{leaf.path}: models see {leaf.describe()} as one-hot vectors, not as a mask."
            " Declare it as MultiBinary or Box, or set use_parametric to False and mask"
            " the model's outputs yourself."
        )


class HeadReader(NamedTuple):
    """What a head needs to read its inputs.

    Attributes:
        layout: The entries of the observation that it reads.
        mask: The mask, or None if models see none.
        row_check: Check that each row allows an action; None if not needed.
    """

    layout: HeadInputs
    mask: VisibleMask | None
    row_check: ActionMasks | None


def read(
    obs_space: Space[Any], action_space: Space[Any] | None, config: Mapping[str, Any]
) -> HeadReader:
    """Return what a head needs to read its inputs from a space's observations.

    Args:
        obs_space: The space of encoded observations.
        action_space: The environment's action space.
        config: The flat model config.
    """
    # A preprocessor's space knows the environment's space; a plain Box has no such attribute.
    original_space = getattr(obs_space, "original_space", obs_space)
    obs = SpaceInfo.read(original_space)
    assert action_space is not None, "a head is built for actions"
    action = SpaceInfo.read(action_space, "action")
    entries = layout(obs, action, config)
    mask = None
    if entries.mask_key is not None:
        mask = VisibleMask(action, obs.children[obs.keys.index(entries.mask_key)])
    forbids_actions = mask is not None or entries.is_list
    row_check = None
    if forbids_actions and read_config(config, KernelConfig).check_observations != "never":
        row_check = ActionMasks(action)  # its `matrix` refuses a row that allows no action
    return HeadReader(entries, mask, row_check)


def _leaves(info: SpaceInfo, values: Any) -> Iterator[Any]:
    """Yield the tensors in a structure of values, in the space's order; omit empty tensors."""
    if not info.is_composite:
        has_values = 0 not in (info.shape or ())
        if has_values:
            yield values
        return
    keys = info.keys or range(len(info.children))
    for key, child in zip(keys, info.children, strict=True):
        yield from _leaves(child, values[key])
