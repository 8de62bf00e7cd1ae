"""The entries of a Dict observation that the trunk of a head sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from rlcatalog.errors import ConfigError, NotServedError, UnsupportedSpaceError
from rlcatalog.frameworks.ops import Array, TensorOps
from rlcatalog.observations.preprocessor import Preprocessor
from rlcatalog.observations.structure import is_structure
from rlcatalog.plugins import Request
from rlcatalog.spaces.info import Space, SpaceInfo


class TrunkObservation:
    """The entries of a Dict observation that a head has not claimed.

    A single entry is passed without the Dict.

    Args:
        preprocessor: The preprocessor of the whole observation.
        claimed: The keys that the head reads itself.
        who: The head's name, for error messages.

    Attributes:
        claimed: The keys that the head reads itself.
        preprocessor: The preprocessor of the remaining entries.

    Raises:
        NotServedError: A custom preprocessor does not encode the observation entry by entry.
        UnsupportedSpaceError: No entry is left for the trunk.
        ConfigError: A claimed key does not exist.
    """

    def __init__(self, preprocessor: Preprocessor, claimed: Sequence[str], who: str) -> None:
        whole = preprocessor.info
        self.claimed = tuple(claimed)
        missing = [key for key in claimed if key not in whole.keys]
        if missing:
            raise ConfigError(
                f"{who}: the observation has no {missing[0]!r}; found {whole.describe()}."
            )
        if not preprocessor.structured or len(preprocessor.children) != len(whole.keys):
            raise NotServedError(
                f"{who} reads {', '.join(map(repr, claimed))} from the observation, which"
                f" {type(preprocessor).__name__} does not encode entry by entry. Remove"
                " custom_preprocessor."
            )
        self._keys = [key for key in whole.keys if key not in claimed]
        child_by_key = dict(zip(whole.keys, preprocessor.children, strict=True))
        children = [child_by_key[key] for key in self._keys]
        if not sum(child.size for child in children):
            raise UnsupportedSpaceError(
                f"{whole.path}: {who} takes {', '.join(map(repr, claimed))} and leaves no entry of"
                f" {whole.describe()} for the trunk to see. Add an entry with the environment's"
                " state."
            )
        if len(children) == 1:
            self.preprocessor = children[0]  # a single entry is passed without the Dict
        else:
            remaining_space = reduce(SpaceInfo.without, claimed, whole)
            self.preprocessor = preprocessor.child(remaining_space)
        start_by_path = {leaf.path: leaf.start for leaf in preprocessor.leaves()}
        #: Slices of its columns in the whole observation, with adjacent ones joined.
        self._columns: list[tuple[int, int]] = []
        for child in children:
            if child.size:
                start = start_by_path[child.leaves()[0].path]
                self._add_columns(start, start + child.size)

    def _add_columns(self, start: int, stop: int) -> None:
        if self._columns and self._columns[-1][1] == start:
            start, _ = self._columns.pop()
        self._columns.append((start, stop))

    @property
    def claimed_paths(self) -> list[str]:
        """Paths of the claimed entries."""
        return [f"obs[{key!r}]" for key in self.claimed]

    def request(self, request: Request) -> Request:
        """Return the request for the trunk and the memory."""
        codec = self.preprocessor
        return request.replace(obs=codec.info, encoded_shape=codec.shape, preprocessor=codec)

    def space(self, encoded_space: Space) -> Any:
        """Return the observation space of the trunk.

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
        return np.concatenate([values[start:stop] for start, stop in self._columns])

    def of(self, inputs: Mapping[str, Any], ops: TensorOps) -> dict[str, Any]:
        """Return the trunk's input for a model input whose `"obs"` contains the whole structure."""
        result = dict(inputs)
        whole = result["obs"]
        flat = result.pop("obs_flat", None)
        if len(self._keys) == 1:
            result["obs"] = whole[self._keys[0]]
        else:
            result["obs"] = {key: whole[key] for key in self._keys}
        # A structure stands in place of the vector if it could not be flattened.
        is_vector = flat is not None and not is_structure(flat)
        if is_vector and self.preprocessor.structured:
            pieces = [flat[:, start:stop] for start, stop in self._columns]
            result["obs_flat"] = pieces[0] if len(pieces) == 1 else ops.side_by_side(pieces)
        return result
