"""Action masks: finding them in an observation, and converting Gymnasium's format into one boolean
matrix.

The matrix has one column per value that can be forbidden, as defined by the space's codec. A
Discrete has n columns, a MultiDiscrete one per value of each entry in C order, and a MultiBinary
two per bit: may be 0, may be 1. A Tuple or Dict concatenates the columns of its children. A OneOf
has one column per part, which says whether the part may be chosen, and then the columns of its
parts. Gymnasium's other spaces have no columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog.actions.codec import ActionCodec, Mask, action_codec
from rlcatalog.errors import ActionMaskError, ConfigError, NotServedError, ObservationError
from rlcatalog.frameworks.ops import Array, Tensor, TensorOps, ops_of
from rlcatalog.spaces import SpaceInfo, find_path, matching_paths, write_path

if TYPE_CHECKING:
    import gymnasium


class NotGiven(Enum):
    """Type of `NOT_GIVEN`, the default of `mask` arguments.

    It differs from None, which allows every action on purpose.
    """

    NOT_GIVEN = "no mask was given"

    def __repr__(self) -> str:
        return self.name


#: The model config's key for masks, as error messages name it.
_KEY = "action_mask_key"
#: Default of the `mask` arguments of `act` and `act_encoded`.
NOT_GIVEN = NotGiven.NOT_GIVEN


class ActionMasks:
    """Reader for the masks of one action space.

    Args:
        action: The action space.
        key: Key of the mask in Dict observations, or None if observations have no mask.
        key_path: The keys that lead to the mask if `key` is a path; see `mask_key_path`.
        codec: The codec of the action space, if it already exists.
        info_key: See the attribute.

    Attributes:
        info_key: Key of masks in an environment's info, the model config's `action_mask_key`; None
            if masks outside the observation are not read.
        size: Number of columns.
        choices: Path and number of columns of every choice.
        has_single_choice: Whether there is only one choice.
    """

    def __init__(
        self,
        action: SpaceInfo,
        key: str | None = None,
        key_path: Sequence[str] = (),
        codec: ActionCodec | None = None,
        info_key: str | None = None,
    ) -> None:
        self.action = action
        self.key = key
        self.info_key = info_key
        #: The keys that lead to the mask in an observation.
        self.key_path = tuple(key_path)
        if key is not None and not key_path:
            self.key_path = (key,)
        self._codec = codec or action_codec(action)
        self.choices = tuple(self._codec.choices)
        counts = np.array([count for _, count in self.choices], np.int64)
        self.size = int(counts.sum())
        self.has_single_choice = len(counts) == 1
        #: The first column of each choice.
        self._starts = np.cumsum(counts) - counts

    def by_choice(self, columns: Tensor) -> Iterator[tuple[str, Any]]:
        """Yield the path of every choice with its columns `[B, n]` from a matrix `[B, size]` (array
        or tensor).
        """
        for (path, count), start in zip(self.choices, self._starts.tolist(), strict=True):
            yield path, columns[:, start : start + count]

    def allowing(self, columns: Tensor) -> Iterator[tuple[str, Any]]:
        """Yield the path of each choice that every action makes, with the rows of a matrix
        `[B, size]` (array or tensor) that allow a value of it: booleans `[B]`.
        """
        yield from self._codec.allowing(columns, ops_of(columns))

    def of(self, obs: Any, idle: Array | None = None) -> Array | None:
        """Return the masks `[B, size]` in a batch of observations, or None if they have none.

        Args:
            obs: The batch.
            idle: Rows in which no action will be taken; they allow everything.

        Raises:
            ObservationError: The key is missing.
            ActionMaskError: See `matrix`.
        """
        if self.key is None:
            return None
        mask: Any
        try:
            # reduce(getitem, ["a", "b"], obs) is obs["a"]["b"].
            if isinstance(obs, list):
                mask = [reduce(getitem, self.key_path, one) for one in obs]
            else:
                mask = reduce(getitem, self.key_path, obs)
        except (KeyError, TypeError, IndexError) as error:
            raise ObservationError(
                f"obs: expected a dict with the action mask under {self.key!r}."
            ) from error
        return self.matrix(mask, idle=idle)

    def without(self, obs: Any) -> Any:
        """Return a batch of observations without their masks, in the space that `SpaceInfo.without`
        returns.
        """
        if self.key is None:
            return obs
        if isinstance(obs, list):
            return [_without(one, self.key_path) for one in obs]
        return _without(obs, self.key_path)

    def matrix(self, mask: Mask, batch_size: int | None = None, idle: Array | None = None) -> Array:
        """Return batched masks in Gymnasium's format as one boolean matrix `[B, size]`.

        Args:
            mask: For Discrete `[B, n]`; for MultiDiscrete a tuple of such arrays, nested like
                `nvec`; for MultiBinary `[B, *shape]` with values 0, 1 or 2, where 2 means either.
                For Tuple and Dict, a tuple or dict of the children's masks; a child without a mask
                is None or omitted. For OneOf, a tuple of the parts' masks as in Gymnasium, with or
                without a mask `[B, parts]` for the choice before them; a part whose mask allows
                nothing cannot be chosen, and the mask of a part that cannot be chosen does not
                matter. Columns `[B, m]` can be passed in place of a mask or a part of
                it. A list with one mask per row is also accepted.
            batch_size: Number of rows, if known.
            idle: Rows in which no action will be taken, booleans `[B]`. These rows allow
                everything.

        Raises:
            NotServedError: Nothing in the action space can be masked.
            ActionMaskError: The mask has the wrong format, or allows nothing in some row.
        """
        if not self.size:
            what = self.action.describe()
            raise NotServedError(
                f"{self.action.path}: {what} has no values that a mask could forbid."
            )
        matrix = self._codec.mask_columns(mask, batch_size)
        if matrix is None:
            raise ActionMaskError(f"mask: {self.action.path}: expected a mask, found {mask!r}.")
        if idle is not None:
            matrix = matrix | idle[:, None]
        # For each row and choice: whether any of the choice's columns is allowed.
        has_allowed_value = np.logical_or.reduceat(matrix, self._starts, axis=1)
        if not has_allowed_value.all():
            # Not every action makes every choice: in a OneOf, only those of its chosen part.
            self._check_rows(matrix)
        return matrix

    def _check_rows(self, matrix: Array) -> None:
        """Raise an error for the first row that allows no action.

        Raises:
            ActionMaskError: There is one.
        """
        paths = []
        allowing = []
        for path, allows_value in self.allowing(matrix):
            paths.append(path)
            allowing.append(allows_value)
        has_allowed_value = np.stack(allowing, axis=1)
        if has_allowed_value.all():
            return
        row, choice = np.argwhere(~has_allowed_value)[0].tolist()
        what = "no action" if len(paths) == 1 else f"nothing for {paths[choice]}"
        raise ActionMaskError(f"mask: row {row} allows {what}; each row must allow at least one.")

    def joint(self, masks: Sequence[Mask], batch_size: int) -> Array:
        """Return the columns `[B, size]` that each of several batches of masks allows.

        Args:
            masks: One batch of masks or several; see `matrix`.
            batch_size: B.

        Raises:
            ActionMaskError: A mask has the wrong format, or together they allow nothing in some
                row.
        """
        matrices = [self.matrix(mask, batch_size) for mask in masks]
        if len(matrices) == 1:
            return matrices[0]
        return self.matrix(np.logical_and.reduce(matrices), batch_size)


def open_parts(parts: Sequence[ActionCodec], columns: Tensor, ops: TensorOps) -> list[Any]:
    """Return which rows of a OneOf's mask allow each of its parts: booleans `[B]` for each part.

    A part is open if the choice may be this part, and if the part's own columns allow an action.

    Args:
        parts: The codecs of the parts, without that of the choice.
        columns: The mask, boolean `[B, m]`: a column for each part, and then the parts' columns. An
            array or a tensor.
        ops: The operations for it.
    """
    open_rows = []
    start = len(parts)
    for place, part in enumerate(parts):
        is_open = columns[:, place]
        stop = start + part.mask_width
        for _, allows_value in part.allowing(columns[:, start:stop], ops):
            is_open = is_open & allows_value
        open_rows.append(is_open)
        start = stop
    return open_rows


def info_mask(info: Mapping[Any, Any], key: str | None) -> Mask:
    """Return the action mask in the info of one environment, or None if there is none.

    Args:
        info: The info that `reset` or `step` returned.
        key: The model config's `action_mask_key`; None if no masks are read. Unlike in
            observations, it is never a path.
    """
    return None if key is None else info.get(key)


def mask_method(env: gymnasium.Env[Any, Any]) -> Callable[[], Any] | None:
    """Return the method `action_masks` of a single environment or of a wrapper around it, or None.

    Args:
        env: The environment. One whose attributes raise errors has no such method.
    """
    try:
        method = env.get_wrapper_attr("action_masks")
    except Exception:  # missing, or raised by the environment's code
        return None
    return method if callable(method) else None


def mask_key_path(obs: SpaceInfo, key: str) -> tuple[str, ...]:
    """Return the keys that lead to an action mask, such as `("part", "mask")`; no keys if the space
    has no such entry.

    Args:
        obs: The observation space. If the path in the config has several meanings, the one with
            the fewest keys counts; `check_mask_path` refuses this.
        key: The model config's `action_mask_key`: a key, or a path to an entry.
    """
    keys_by_path = dict(_entries_of_dicts(obs, ()))
    matches = matching_paths(key, keys_by_path)
    return keys_by_path[matches[0]] if matches else ()


def check_mask_path(obs: SpaceInfo, key: str | None) -> None:
    """Raise an error if a path to an action mask has several meanings in an observation space.

    Args:
        obs: The observation space.
        key: The model config's `action_mask_key`.

    Raises:
        ConfigError: Several entries have the key as their short path.
    """
    if key is not None and mask_key_path(obs, key):
        find_path(key, dict(_entries_of_dicts(obs, ())), _KEY)


def _entries_of_dicts(
    info: SpaceInfo, keys: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the path of each entry of a Dict, and of each entry of the Dicts inside it, with the
    keys that lead to it.

    Args:
        info: The space; any other than a Dict has no entries.
        keys: The keys that lead to the space.
    """
    for key, child in zip(info.keys, info.children, strict=False):  # a Tuple has no keys
        keys_of_child = (*keys, key)
        yield child.path, keys_of_child
        yield from _entries_of_dicts(child, keys_of_child)


def mask_entry(obs: SpaceInfo, key: str | None) -> SpaceInfo | None:
    """Return the entry at a key or path in an observation space; None if there is none, or no
    key.
    """
    if key is None:
        return None
    keys = mask_key_path(obs, key)
    return entry_at(obs, keys) if keys else None


def entry_at(obs: SpaceInfo, keys: Sequence[str]) -> SpaceInfo | None:
    """Return the entry to which keys lead in an observation space, or None if there is none."""
    entry = obs
    for key in keys:
        if key not in entry.keys:
            return None
        entry = entry.children[entry.keys.index(key)]
    return entry


def mask_key(obs: SpaceInfo, action: SpaceInfo, key: str | None) -> str | None:
    """Return the key of the action mask in an observation space, or None if there is none.

    For a mask inside other Dicts, this is the path as it was given.

    Args:
        obs: The observation space.
        action: The action space.
        key: The key, or a path such as `"part.mask"`; None if no masks are used.

    Raises:
        ConfigError: The key exists, but its entry does not have the format of a mask for the action
            space.
    """
    # Before the look for an entry, so that a codec that cannot be imported is always reported.
    masks = ActionMasks(action)
    entry = mask_entry(obs, key)
    if key is None or entry is None or not masks.size:
        return None
    # Ones, as a vector environment would return them, must be accepted as a mask that allows
    # everything.
    try:
        masks.matrix(_ones(entry), batch_size=1)
    except ActionMaskError as error:
        raise ConfigError(
            f"{entry.path}: {entry.describe()} is not an action mask for {action.describe()}:"
            f" {error} If it is not meant as a mask, set the model config key 'action_mask_key' to"
            " another key."
        ) from error
    keys = mask_key_path(obs, key)
    # A key at the top can be given as a path, too.
    return keys[0] if len(keys) == 1 else key


def unused_masks(obs: SpaceInfo, action: SpaceInfo, key: str | None) -> tuple[str, ...]:
    """Return the paths of entries that are named like an action mask, if none is used as one; no
    entries if the key is None, because masks are then left unused on purpose.

    Raises:
        ConfigError: The key is a path without an entry.
    """
    if key is None:
        return ()
    is_path = "." in key or key.startswith(f"{obs.path}[")
    if is_path and ActionMasks(action).size:
        find_path(key, dict(_entries_of_dicts(obs, ())), _KEY)  # raises the error
    last_key = key.rpartition(".")[2]
    end_of_path = write_path([last_key], root="")
    return tuple(node.path for node in obs.walk() if node.path.endswith(end_of_path))


def _without(obs: Any, key_path: Sequence[str]) -> Any:
    """Return an observation without the entry to which a path of keys leads, and without a dict
    that becomes empty.
    """
    # A user's observation that is no dict is left to the preprocessor, which reports it.
    if not hasattr(obs, "items"):
        return obs
    key, *inner_path = key_path
    rest = None
    if inner_path and obs.get(key):
        rest = _without(obs[key], inner_path)
    if rest:
        return {**obs, key: rest}
    return {name: value for name, value in obs.items() if name != key}


def _ones(info: SpaceInfo) -> Any:
    """Return a batch of one value of a space that consists of ones."""
    if info.is_composite:
        return info.join([_ones(child) for child in info.children])
    return np.ones((1, *(info.shape or ())), np.int8)
