"""The entries of a Dict observation that the trunk of a head sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from rlcatalog.errors import ConfigError, NotServedError, UnsupportedSpaceError
from rlcatalog.frameworks import TensorOps
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
        if missing := [key for key in claimed if key not in whole.keys]:
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
        kept = [
            child
            for key, child in zip(whole.keys, preprocessor.children, strict=True)
            if key in self._keys
        ]
        if not sum(child.size for child in kept):
            raise UnsupportedSpaceError(
                f"{whole.path}: {who} takes {', '.join(map(repr, claimed))} and leaves no entry of"
                f" {whole.describe()} for the trunk to see. Add an entry with the environment's"
                " state."
            )
        if len(kept) == 1:
            self.preprocessor = kept[0]
        else:
            self.preprocessor = preprocessor.child(reduce(SpaceInfo.without, claimed, whole))
        starts = {leaf.path: leaf.start for leaf in preprocessor.leaves()}
        #: Slices of its columns in the whole observation, with adjacent ones joined.
        self._columns: list[tuple[int, int]] = []
        for child in kept:
            if child.size:
                first = starts[child.leaves()[0].path]
                start = (
                    self._columns.pop()[0]
                    if self._columns and self._columns[-1][1] == first
                    else first
                )
                self._columns.append((start, first + child.size))

    @property
    def paths(self) -> list[str]:
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
        sides = (np.ravel(box.low), np.ravel(box.high))
        low, high = (
            np.concatenate([side[start:stop] for start, stop in self._columns]) for side in sides
        )
        unfiltered = self.preprocessor.bounds()
        if np.array_equal(low, unfiltered[0]) and np.array_equal(high, unfiltered[1]):
            # In its own dtype, so that byte images are recognised.
            return self.preprocessor.observation_space
        return self.preprocessor.processed_space(low, high)

    def of(self, inputs: Mapping[str, Any], ops: TensorOps) -> dict[str, Any]:
        """Return the trunk's input for a model input whose `"obs"` contains the whole structure."""
        result = dict(inputs)
        whole, flat = result["obs"], result.pop("obs_flat", None)
        result["obs"] = (
            whole[self._keys[0]]
            if len(self._keys) == 1
            else {key: whole[key] for key in self._keys}
        )
        if self.preprocessor.structured and flat is not None and not is_structure(flat):
            pieces = [flat[:, start:stop] for start, stop in self._columns]
            result["obs_flat"] = pieces[0] if len(pieces) == 1 else ops.side_by_side(pieces)
        return result
