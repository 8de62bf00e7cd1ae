"""The part of a Dict observation that one model sees."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from rlcatalog.errors import ConfigError, NotServedError, UnsupportedSpaceError
from rlcatalog.frameworks.ops import Array, Tensor, TensorOps
from rlcatalog.observations.preprocessor import Preprocessor
from rlcatalog.observations.structure import is_structure
from rlcatalog.plugins import Request
from rlcatalog.spaces.info import Space, SpaceInfo
from rlcatalog.spaces.paths import write_path

#: The keys that lead to an entry of a Dict: `("robot", "joints")` for `obs["robot"]["joints"]`.
KeyPath: TypeAlias = tuple[str, ...]
#: Key → None for a whole entry, or the keys inside it.
Tree: TypeAlias = "dict[str, Tree | None]"


class VisibleObservation:
    """The part of a Dict observation that a model sees; its other entries are hidden from it.

    A head hides the entries that it reads itself from its trunk, and `obs_groups` hides entries
    from the policy or from its critic. If a Dict has one entry left, that entry is passed without
    the Dict.

    Args:
        preprocessor: The preprocessor of the whole observation.
        hidden: The keys that lead to each hidden entry.
        who: Who hides them, for error messages.

    Attributes:
        hidden: The keys that lead to each hidden entry.
        key_path: The keys that lead to the visible part if it is passed without its Dict.
        columns: Slices of its columns in the whole observation, with adjacent ones joined.
        preprocessor: The preprocessor of the visible part.

    Raises:
        NotServedError: A custom preprocessor does not encode the observation entry by entry.
        UnsupportedSpaceError: No entry with values is visible.
        ConfigError: A hidden entry does not exist.
    """

    def __init__(self, preprocessor: Preprocessor, hidden: Sequence[KeyPath], who: str) -> None:
        self.hidden = tuple(hidden)
        whole = preprocessor.info
        for key_path in self.hidden:
            _check_entry(preprocessor, key_path, who)
        rest = without_entries(whole, self.hidden)
        self.key_path: KeyPath = ()
        #: The space of the visible part.
        self._info = rest
        if not self.hidden:
            _check_encodes_entries(preprocessor, who)
        while len(self._info.keys) == 1 and self._is_cut(self.key_path):
            self.key_path = (*self.key_path, self._info.keys[0])
            self._info = self._info.children[0]
        #: Visible key → None, or the visible keys of a Dict with hidden entries; None if nothing of
        #: the visible part is hidden.
        self._tree = self._tree_of(self._info, self.key_path)
        pieces = list(self._pieces(preprocessor, rest, key_path=()))
        if not sum(piece.size for piece in pieces):
            hidden_entries = ", ".join(self.hidden_paths)
            raise UnsupportedSpaceError(
                f"{whole.path}: {who} keeps {hidden_entries} from the trunk, and leaves no entry of"
                f" {whole.describe()} for it to see. Add an entry with the environment's"
                " state."
            )
        if self._is_cut(self.key_path):
            self.preprocessor = preprocessor.child(self._info)
        else:
            (self.preprocessor,) = pieces  # a single entry, of which nothing is hidden
        if self.preprocessor.size != sum(piece.size for piece in pieces):
            raise _not_by_entry(preprocessor, who)
        start_by_path = {leaf.path: leaf.start for leaf in preprocessor.leaves()}
        self.columns: list[tuple[int, int]] = []
        for piece in pieces:
            if piece.size:
                start = start_by_path[piece.leaves()[0].path]
                self._add_columns(start, start + piece.size)

    def _is_cut(self, key_path: KeyPath) -> bool:
        """Return whether the Dict to which these keys lead is the outermost one, or has a hidden
        entry.
        """
        if not key_path:
            return True
        return any(hidden[: len(key_path)] == key_path for hidden in self.hidden)

    def _tree_of(self, info: SpaceInfo, key_path: KeyPath) -> Tree | None:
        """Return the visible keys of an entry, or None if nothing of it is hidden."""
        if not self._is_cut(key_path):
            return None
        tree: Tree = {}
        for key, child in zip(info.keys, info.children, strict=True):
            tree[key] = self._tree_of(child, (*key_path, key))
        return tree

    def _pieces(
        self, codec: Preprocessor, info: SpaceInfo, key_path: KeyPath
    ) -> Iterator[Preprocessor]:
        """Yield the codecs of the visible entries, in the order of their columns.

        Args:
            codec: The codec of an entry of the whole observation.
            info: What is visible of that entry.
            key_path: The keys that lead to it.
        """
        if not self._is_cut(key_path):
            yield codec
            return
        codec_by_key = dict(zip(codec.info.keys, codec.children, strict=True))
        for key, child in zip(info.keys, info.children, strict=True):
            yield from self._pieces(codec_by_key[key], child, (*key_path, key))

    def _add_columns(self, start: int, stop: int) -> None:
        if self.columns and self.columns[-1][1] == start:
            start, _ = self.columns.pop()
        self.columns.append((start, stop))

    @property
    def hidden_keys(self) -> tuple[str, ...]:
        """The outermost key of each hidden entry."""
        return tuple(key_path[0] for key_path in self.hidden)

    @property
    def hidden_paths(self) -> list[str]:
        """The paths of the hidden entries."""
        return [write_path(key_path) for key_path in self.hidden]

    def without_hidden(self) -> VisibleObservation:
        """Return the same part of observations that lack the hidden entries."""
        alone = copy.copy(self)
        alone.hidden = ()
        alone.columns = [(0, self.preprocessor.size)]
        return alone

    def request(self, request: Request) -> Request:
        """Return the request for the models that see this part."""
        codec = self.preprocessor
        return request.replace(obs=codec.info, encoded_shape=codec.shape, preprocessor=codec)

    def space(self, encoded_space: Space) -> Any:
        """Return the space of the encoded visible part.

        Args:
            encoded_space: The space of whole encoded observations, after the filter, if any.
        """
        box: Any = encoded_space
        low = self._take_columns(np.ravel(box.low))
        high = self._take_columns(np.ravel(box.high))
        encoded_low, encoded_high = self.preprocessor.bounds()
        is_unfiltered = np.array_equal(low, encoded_low) and np.array_equal(high, encoded_high)
        if is_unfiltered:
            # This space has the dtype by which a net recognises byte images; `processed_space`
            # returns float32.
            return self.preprocessor.observation_space
        return self.preprocessor.processed_space(low, high)

    def _take_columns(self, values: Array) -> Array:
        return np.concatenate([values[start:stop] for start, stop in self.columns])

    # --- cutting observations ---------------------------------------------------------------------

    def of(self, inputs: Mapping[str, Any], ops: TensorOps) -> dict[str, Any]:
        """Return a model's input with the visible part of its observations.

        Args:
            inputs: A model input. Its `"obs"` holds whole observations: a structure, or encoded
                ones `[B, size]`.
            ops: The framework's operations.
        """
        result = dict(inputs)
        whole = result["obs"]
        flat = result.pop("obs_flat", None)
        if not is_structure(whole):
            result["obs"] = self.cut_encoded(whole, ops)
            return result
        result["obs"] = self.select(whole)
        # A structure stands in place of the vector if it could not be flattened.
        is_vector = flat is not None and not is_structure(flat)
        if is_vector and self.preprocessor.structured:
            result["obs_flat"] = self._cut(flat, ops)
        return result

    def cut_encoded(self, encoded: Tensor, ops: TensorOps) -> Any:
        """Return the visible part of whole encoded observations `[B, size]`: encoded observations
        of `preprocessor`.
        """
        visible = self._cut(encoded, ops)
        if self.preprocessor.structured:
            return visible  # a vector, whose structure the model restores
        return self.preprocessor.restore(visible, ops)

    def _cut(self, encoded: Tensor, ops: TensorOps) -> Any:
        pieces = [encoded[:, start:stop] for start, stop in self.columns]
        if len(pieces) == 1:
            return pieces[0]
        return ops.side_by_side(pieces)

    def select(self, obs: Any) -> Any:
        """Return the visible part of an observation, or of a batch of them, as the environment
        returns them or as a structure of tensors.
        """
        for key in self.key_path:
            obs = obs[key]
        if self._tree is None:
            return obs
        return _select(obs, self._tree)

    def spread(self, encoded: Array, whole: Preprocessor) -> Array:
        """Return encoded observations of `preprocessor` as whole ones `[B, size]`, with zeros in
        the columns of the hidden entries.

        Args:
            encoded: Observations `[B, ...]`.
            whole: The preprocessor of the whole observation.
        """
        rows = encoded.reshape(len(encoded), -1)
        result = np.zeros((len(encoded), whole.size), whole.observation_space.dtype)
        first = 0
        for start, stop in self.columns:
            last = first + stop - start
            result[:, start:stop] = rows[:, first:last]
            first = last
        return result

    def spread_tensor(self, encoded: Tensor, whole: Preprocessor, ops: TensorOps) -> Any:
        """Return the same as `spread`, for a tensor."""
        rows = ops.flat(encoded)
        pieces = []
        last_column = 0
        first = 0
        for start, stop in [*self.columns, (whole.size, whole.size)]:
            if start > last_column:
                zeros = ops.constant(np.zeros(start - last_column, np.float32), rows)
                pieces.append(ops.expand(zeros, rows.shape[0]))
            last = first + stop - start
            pieces.append(rows[:, first:last])
            first = last
            last_column = stop
        return ops.concat(pieces, axis=1)


def _select(obs: Any, tree: Tree) -> Any:
    """Return the entries of a Dict observation that a tree of keys names."""
    visible = {}
    for key, inner_keys in tree.items():
        entry = obs[key]
        if inner_keys is not None:
            entry = _select(entry, inner_keys)
        visible[key] = entry
    return visible


def without_entries(info: SpaceInfo, hidden: Sequence[KeyPath]) -> SpaceInfo:
    """Return a Dict without the entries to which these keys lead, and without the Dicts that this
    leaves empty.
    """
    for key_path in hidden:
        info = info.without(*key_path)
    return info


def _check_entry(preprocessor: Preprocessor, key_path: KeyPath, who: str) -> None:
    """Raise an error unless an entry exists, and is encoded apart from the others.

    Args:
        preprocessor: The preprocessor of the whole observation.
        key_path: The keys that lead to the entry.
        who: Who hides it.
    """
    codec = preprocessor
    for key in key_path:
        info = codec.info
        if key not in info.keys:
            raise ConfigError(f"{who}: the observation has no {key!r}; found {info.describe()}.")
        _check_encodes_entries(codec, who)
        codec = codec.children[info.keys.index(key)]


def _check_encodes_entries(preprocessor: Preprocessor, who: str) -> None:
    """Raise an error unless the preprocessor of a Dict encodes its entries side by side."""
    info = preprocessor.info
    if not preprocessor.structured or len(preprocessor.children) != len(info.keys):
        raise _not_by_entry(preprocessor, who)


def _not_by_entry(preprocessor: Preprocessor, who: str) -> NotServedError:
    return NotServedError(
        f"{who} needs single entries of {preprocessor.info.path}, which"
        f" {type(preprocessor).__name__} does not encode entry by entry. Remove"
        " custom_preprocessor."
    )
