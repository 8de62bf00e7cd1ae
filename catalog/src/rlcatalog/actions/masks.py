"""Action masks: where they stand in an observation, and Gymnasium's format of them as one matrix.

The matrix has a column for each value that may be forbidden, as the space's codec says: n for a Discrete; for a
MultiDiscrete the values of each entry, in C order; for a MultiBinary two per bit (it may be 0, it may be 1); for Tuple
and Dict those of the children side by side; none for anything else that the kernel knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any

import numpy as np

from rlcatalog.actions.codec import ActionCodec, Array, Mask, action_codec
from rlcatalog.errors import ActionMaskError, ConfigError, NotServedError, ObservationError
from rlcatalog.frameworks.ops import Tensor
from rlcatalog.spaces import SpaceInfo


class ActionMasks:
    """Reads masks of one action space.

    Args:
        action: The action space.
        key: Key of Dict observations under which the mask stands, or None where observations hold none.
        steps: The keys that lead to it, where `key` is a path; see `mask_steps`.
        codec: The codec of the action space, where there is one already.

    Attributes:
        size: Number of columns.
        choices: Path and number of columns of every choice.
        single: Whether there is one choice alone.
    """

    def __init__(
        self, action: SpaceInfo, key: str | None = None, steps: Sequence[str] = (), codec: ActionCodec | None = None
    ) -> None:
        self.action, self.key = action, key
        self.steps = tuple(steps) if steps or key is None else (key,)
        self._codec = codec or action_codec(action)
        self.choices = tuple(self._codec.choices)
        counts = np.array([count for _, count in self.choices], np.int64)
        self.size, self.single = int(counts.sum()), len(counts) == 1
        self._starts = np.cumsum(counts) - counts

    def by_choice(self, columns: Tensor) -> Iterator[tuple[str, Any]]:
        """Yield the path of every choice with its columns `[B, n]` of a matrix, an array or a tensor `[B, size]`."""
        for (path, count), start in zip(self.choices, self._starts.tolist(), strict=True):
            yield path, columns[:, start : start + count]

    def of(self, obs: Any, idle: Array | None = None) -> Array | None:
        """Return the masks `[B, size]` in a batch of observations, or None where they hold none.

        Args:
            obs: The batch.
            idle: See `matrix`.

        Raises:
            ObservationError: The key is missing.
            ActionMaskError: See `matrix`.
        """
        if self.key is None:
            return None
        try:
            several, path = isinstance(obs, list), self.steps
            mask: Any = [reduce(getitem, path, one) for one in obs] if several else reduce(getitem, path, obs)
        except (KeyError, TypeError, IndexError) as error:
            raise ObservationError(f"obs: expected a dict with the action mask under {self.key!r}.") from error
        return self.matrix(mask, idle=idle)

    def without(self, obs: Any) -> Any:
        """Return a batch of observations without their masks, as `SpaceInfo.without` leaves their space."""
        if self.key is None:
            return obs
        if isinstance(obs, list):
            return [_without(one, self.steps) for one in obs]
        return _without(obs, self.steps)

    def matrix(self, mask: Mask, batch_size: int | None = None, idle: Array | None = None) -> Array:
        """Return masks in Gymnasium's format, batched, as one boolean matrix `[B, size]`.

        Args:
            mask: For Discrete `[B, n]`; for MultiDiscrete a tuple of such, nested as `nvec` is; for MultiBinary
                `[B, *shape]` of 0, 1 and 2 (either); for Tuple and Dict a tuple or dict of the children's, None (or
                nothing) for a child without a mask; in place of any of these, or of a part, the columns `[B, m]`
                themselves. A list with one mask per row will do as well.
            batch_size: Number of rows, where it is known.
            idle: Rows in which no action will be taken, booleans `[B]`: there, everything is allowed.

        Raises:
            NotServedError: The action space has nothing that could be masked.
            ActionMaskError: The mask has the wrong form, or allows nothing in some row.
        """
        if not self.size:
            what = self.action.describe()
            raise NotServedError(f"{self.action.path}: {what} has no values that a mask could forbid.")
        matrix = self._codec.mask_columns(mask, batch_size)
        if matrix is None:
            raise ActionMaskError(f"mask: {self.action.path}: expected a mask, found {mask!r}.")
        if idle is not None:
            matrix = matrix | idle[:, None]
        allowed = np.logical_or.reduceat(matrix, self._starts, axis=1)
        if not allowed.all():
            row, group = (int(i) for i in np.argwhere(~allowed)[0])
            path = self.choices[group][0]
            what = "no action" if self.single else f"nothing for {path}"
            raise ActionMaskError(f"mask: row {row} allows {what}; each row must allow at least one.")
        return matrix


def mask_steps(obs: SpaceInfo, key: str) -> tuple[str, ...]:
    """Return the keys that lead to an action mask: `("part", "mask")` for the path `"part.mask"`.

    Args:
        obs: The observation space; a key of its own with a dot in it is no path.
        key: The model config's `action_mask_key`.
    """
    return (key,) if key in obs.keys else tuple(key.split("."))


def mask_entry(obs: SpaceInfo, key: str) -> SpaceInfo | None:
    """Return what stands in an observation space under a key, or a path of keys; None where nothing does."""
    entry = obs
    for step in mask_steps(obs, key):
        if entry.kind != "dict" or step not in entry.keys:
            return None
        entry = entry.children[entry.keys.index(step)]
    return entry


def mask_key(obs: SpaceInfo, action: SpaceInfo, key: str) -> str | None:
    """Return the key of an observation space under which the action mask stands, or None where there is none.

    Args:
        obs: The observation space.
        action: The action space.
        key: The key, or a path of keys, `"part.mask"`.

    Raises:
        ConfigError: There is such a key, and what stands there is no mask of the action space.
    """
    masks, leaf = ActionMasks(action), mask_entry(obs, key)  # a codec that cannot be imported is named in any case
    if leaf is None or not masks.size:
        return None
    # Ones in the form a vector environment would return them: they must be accepted as a mask that allows everything.
    try:
        masks.matrix(_ones(leaf), 1)
    except ActionMaskError as error:
        raise ConfigError(
            f"{leaf.path}: {leaf.describe()} is no action mask for {action.describe()}: {error} If it is meant to be"
            " something else, set the model config key 'action_mask_key' to another key."
        ) from error
    return key


def unused_masks(obs: SpaceInfo, action: SpaceInfo, key: str) -> tuple[str, ...]:
    """Return the paths of entries named as an action mask is, in an observation space where none is used.

    Raises:
        ConfigError: The key is a path that leads nowhere.
    """
    if "." in key and ActionMasks(action).size and mask_entry(obs, key) is None:
        raise ConfigError(
            f"model config key 'action_mask_key': {key!r} leads to no entry of {obs.path}, {obs.describe()}. Write the"
            " keys of nested Dicts with dots between them."
        )
    name = f"[{key.rpartition('.')[2]!r}]"
    return tuple(node.path for node in obs.walk() if node.path.endswith(name))


def _without(obs: Mapping[str, Any], steps: Sequence[str]) -> dict[str, Any]:
    key, *inner = steps
    rest = _without(obs[key], inner) if inner and obs.get(key) else {}
    return {**obs, key: rest} if rest else {name: value for name, value in obs.items() if name != key}


def _ones(info: SpaceInfo) -> Any:
    if info.is_composite:
        return info.join([_ones(child) for child in info.children])
    return np.ones((1, *(info.shape or ())), np.int8)
