"""Encoding of observations that lack the entries which only a critic sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlcatalog.errors import ObservationError

if TYPE_CHECKING:
    from rlcatalog.catalog import Catalog
    from rlcatalog.choice import Resolution
    from rlcatalog.internals import VisibleObservation
    from rlcatalog.observations import Array, Preprocessor
    from rlcatalog_policy.encoder import Batch


class PolicyEncoder:
    """Encoder for the part of an observation that the policy sees, which is enough for acting.

    Args:
        catalog: The catalog in which to look up preprocessors.
        resolution: The lookup's choice.
        visible: The part of the observation that the policy sees.
        whole: The preprocessor of the whole observation.

    Attributes:
        visible: See above.
        preprocessor: Encodes what the policy sees.
    """

    def __init__(
        self,
        catalog: Catalog,
        resolution: Resolution,
        visible: VisibleObservation,
        whole: Preprocessor,
    ) -> None:
        self.visible = visible
        self._whole = whole
        self.preprocessor = catalog.preprocessor_for(
            visible.preprocessor.info,
            resolution.config,
            pins=resolution.pins,
            chosen=dict(resolution.preprocessor.parts()),  # path → part
        )

    def lacks_entries(self, obs: Batch) -> bool:
        """Return whether a batch lacks an entry that the policy does not see."""
        first: Any = obs
        if isinstance(obs, list) and obs:
            first = obs[0]
        if not isinstance(first, Mapping):
            return False  # the preprocessor of the whole observation refuses it
        return any(_lacks(first, key_path) for key_path in self.visible.hidden)

    def encode_batch(self, obs: Batch) -> Array:
        """Encode what the policy sees, with zeros in place of all other entries: `[B, size]`.

        Raises:
            ObservationError: An observation lacks an entry that the policy sees, or such an entry
                is not in its space.
        """
        try:
            if isinstance(obs, list):
                seen: Any = [self.visible.select(one) for one in obs]
            else:
                seen = self.visible.select(obs)
        except (KeyError, TypeError) as error:
            raise ObservationError(
                "obs: expected a dict with the entries that the policy sees,"
                f" {self.visible.preprocessor.info.describe()}; found one without {error}."
            ) from error
        encoded = self.preprocessor.encode_batch(seen)
        return self.visible.spread(encoded, self._whole)


def _lacks(obs: Mapping[str, Any], key_path: tuple[str, ...]) -> bool:
    """Return whether a Dict observation lacks the entry to which these keys lead."""
    entry: Any = obs
    for key in key_path:
        if not isinstance(entry, Mapping) or key not in entry:
            return True
        entry = entry[key]
    return False
