"""Action masks: where they stand in an observation, and Gymnasium's format of them as one matrix.

The matrix has a column for each value that may be forbidden: n for a Discrete; for a MultiDiscrete the values of each
entry, in C order; for a MultiBinary two per bit (it may be 0, it may be 1); for Tuple and Dict those of the children
side by side; none for anything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from rlcatalog.errors import ActionMaskError, ConfigError, NotServedError, ObservationError
from rlcatalog.spaces import SpaceInfo

Array = np.ndarray[Any, Any]


def groups(action: SpaceInfo) -> list[tuple[str, int]]:
    """Return path and number of values of every choice among several, in the order of the mask's columns."""
    if action.kind == "discrete":
        return [(action.path, int(action.n or 0))]
    if action.kind == "multi_discrete":
        assert action.nvec is not None
        places = np.ndindex(action.nvec.shape)
        return [(f"{action.path}[{', '.join(map(str, place))}]", int(action.nvec[place])) for place in places]
    if action.kind == "multi_binary":
        places = np.ndindex(action.shape or ())
        return [(f"{action.path}[{', '.join(map(str, place))}]", 2) for place in places]
    if action.kind in ("tuple", "dict"):
        return [group for child in action.children for group in groups(child)]
    return []


class ActionMasks:
    """Reads masks of one action space.

    Args:
        action: The action space.
        key: Key of Dict observations under which the mask stands, or None where observations hold none.

    Attributes:
        size: Number of columns.
    """

    def __init__(self, action: SpaceInfo, key: str | None = None) -> None:
        self.action, self.key = action, key
        self._groups = groups(action)
        counts = np.array([count for _, count in self._groups], np.int64)
        self.size = int(counts.sum())
        self._starts = np.cumsum(counts) - counts

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
            found = [one[self.key] for one in obs] if isinstance(obs, list) else obs[self.key]
        except (KeyError, TypeError, IndexError) as error:
            raise ObservationError(f"obs: expected a dict with the action mask under {self.key!r}.") from error
        return self.matrix(found, idle=idle)

    def without(self, obs: Any) -> Any:
        """Return a batch of observations without their masks."""
        if self.key is None:
            return obs
        if isinstance(obs, list):
            return [{key: value for key, value in one.items() if key != self.key} for one in obs]
        return {key: value for key, value in obs.items() if key != self.key}

    def matrix(self, mask: Any, batch_size: int | None = None, idle: Array | None = None) -> Array:
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
        matrix = self._columns(self.action, _by_column(mask), batch_size)
        if matrix is None:
            raise ActionMaskError(f"mask: {self.action.path}: expected a mask, found {mask!r}.")
        if idle is not None:
            matrix = matrix | idle[:, None]
        allowed = np.logical_or.reduceat(matrix, self._starts, axis=1)
        if not allowed.all():
            row, group = (int(i) for i in np.argwhere(~allowed)[0])
            path = self._groups[group][0]
            what = "no action" if len(self._groups) == 1 else f"nothing for {path}"
            raise ActionMaskError(f"mask: row {row} allows {what}; each row must allow at least one.")
        return matrix

    def _columns(self, info: SpaceInfo, mask: Any, size: int | None) -> Array | None:
        width = sum(count for _, count in groups(info))
        if mask is None or not width:
            return None if size is None else np.ones((size, width), np.bool_)
        if not isinstance(mask, Mapping | tuple):
            return self._from_array(info, mask, width, size)
        if info.kind == "multi_discrete":
            assert info.nvec is not None
            parts = list(_leaves(mask))
            counts = [count for _, count in groups(info)]
            arrays = [np.asarray(part) for part in parts]
            if [a.shape[-1] if a.ndim == 2 else -1 for a in arrays] != counts:
                self._refuse(info, f"arrays of shape [B, n] with n = {counts}", [a.shape for a in arrays])
            return np.concatenate(arrays, axis=1).astype(bool)
        if info.kind not in ("tuple", "dict"):
            return self._from_array(info, mask, width, size)
        if info.kind == "dict":
            if not isinstance(mask, Mapping) or set(mask) - set(info.keys):
                self._refuse(info, f"a dict with keys of {list(info.keys)}", mask)
            given = [mask.get(key) for key in info.keys]
        else:
            if isinstance(mask, Mapping) or len(mask) != len(info.children):
                self._refuse(info, f"a tuple of {len(info.children)} masks", mask)
            given = list(mask)
        size = size if size is not None else next((len(array) for array in _arrays(given)), None)
        found = [self._columns(child, _by_column(part), size) for child, part in zip(info.children, given, strict=True)]
        return np.concatenate([array for array in found if array is not None], axis=1)

    def _from_array(self, info: SpaceInfo, mask: Any, width: int, size: int | None) -> Array:
        expected = f"shape ({size if size is not None else 'B'}, {width})"
        try:
            array = np.asarray(mask)
        except ValueError:  # lists of different lengths
            self._refuse(info, expected, mask)
        if array.shape == (0,):  # of no rows
            array = array.reshape(0, width)
        if info.kind == "multi_binary" and array.ndim and array.shape[1:] == info.shape:
            bits = array.reshape(len(array), -1)
            array = np.stack([bits != 1, bits != 0], axis=2)
        if array.ndim > 2 and info.kind != "discrete":
            array = array.reshape(len(array), -1)
        if array.ndim != 2 or array.shape[1] != width or (size is not None and len(array) != size):
            self._refuse(info, expected, f"shape {np.shape(mask)}")
        return array.astype(np.bool_)

    def _refuse(self, info: SpaceInfo, expected: str, found: Any) -> NoReturn:
        raise ActionMaskError(f"mask: {info.path}: expected {expected}; found {found}.")


def mask_key(obs: SpaceInfo, action: SpaceInfo, key: str) -> str | None:
    """Return the key of an observation space under which the action mask stands, or None where there is none.

    Raises:
        ConfigError: There is such a key, and what stands there is no mask of the action space.
    """
    masks = ActionMasks(action)
    if obs.kind != "dict" or key not in obs.keys or not masks.size:
        return None
    leaf = obs.children[obs.keys.index(key)]
    # Ones in the form a vector environment would return them: they must be accepted as a mask that allows everything.
    try:
        masks.matrix(_ones(leaf), 1)
    except ActionMaskError as error:
        raise ConfigError(
            f"{leaf.path}: {leaf.describe()} is no action mask for {action.describe()}: {error} If it is meant to be"
            " something else, set the model config key 'action_mask_key' to another key."
        ) from error
    return key


def _ones(info: SpaceInfo) -> Any:
    if info.kind == "dict":
        return {key: _ones(child) for key, child in zip(info.keys, info.children, strict=True)}
    if info.kind == "tuple":
        return tuple(_ones(child) for child in info.children)
    return np.ones((1, *(info.shape or ())), np.int8)


def _by_column(mask: Any) -> Any:
    """Turn a list with one structured mask per row into a structure of columns."""
    if not isinstance(mask, list) or not mask or not isinstance(mask[0], Mapping | tuple):
        return mask
    if isinstance(mask[0], Mapping):
        return {key: _by_column([row.get(key) for row in mask]) for key in mask[0]}
    return tuple(_by_column(list(column)) for column in zip(*mask, strict=True))


def _leaves(mask: Any) -> Iterator[Any]:
    for part in mask:
        yield from _leaves(part) if isinstance(part, tuple) else [part]


def _arrays(parts: Any) -> Iterator[Any]:
    for part in parts.values() if isinstance(parts, Mapping) else parts:
        if isinstance(part, Mapping | tuple):
            yield from _arrays(part)
        elif part is not None:
            yield part
