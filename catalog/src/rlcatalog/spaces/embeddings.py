"""The config key `embeddings`: in how many numbers each leaf of an observation is embedded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from rlcatalog.spaces.info import SpaceInfo
from rlcatalog.spaces.paths import matching_paths

#: The value of `embeddings`: a number for an observation that is one leaf, or path → number.
Embeddings: TypeAlias = Mapping[str, int] | int | None


def embedding_size(embeddings: Embeddings, info: SpaceInfo) -> int | None:
    """Return in how many numbers a net embeds each id of a leaf; None if the config does not name
    it.

    Args:
        embeddings: The value of the config key `embeddings`.
        info: The leaf. It has ids if its space is a Discrete, a MultiDiscrete or a Text.
    """
    if embeddings is None or info.children:
        return None
    if isinstance(embeddings, int):
        return embeddings  # the observation is one leaf, so this is it
    for written_path, size in embeddings.items():
        if matching_paths(written_path, [info.path]):
            return size
    return None
