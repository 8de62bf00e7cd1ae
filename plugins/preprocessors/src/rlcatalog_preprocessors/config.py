"""Config keys for the codecs for observations that vary in size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rlcatalog import SpaceInfo
from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog.spaces import matching_paths

#: Numbers of items are encoded as float32, which represents integers up to 2**24.
_Count = Annotated[int, Meta(ge=1, le=2**24)]
#: One number for all leaves, or path → number.
_Limit = _Count | dict[str, _Count] | None


class TextConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys for the text codec."""

    text_encoding: Annotated[
        Literal["onehot", "index"],
        Meta(description="characters as one-hot vectors, or as integers with 0 for padding"),
    ] = "onehot"
    text_max_length: Annotated[
        _Limit,
        Meta(
            description="maximum length of a text, a number or {path: n}; by default, the space's"
            " length"
        ),
    ] = None
    text_charset: Annotated[
        str | None,
        Meta(
            description="characters of a string space that defines none; by default, printable"
            " ASCII"
        ),
    ] = None


class SequenceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys for the sequence codec."""

    sequence_max_len: Annotated[
        _Limit,
        Meta(
            description="maximum number of items of a Sequence observation, a number or {path: n};"
            " required"
        ),
    ] = None


class GraphConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys for the graph codec."""

    graph_max_nodes: Annotated[
        _Limit,
        Meta(
            description="maximum number of nodes of a Graph observation, a number or {path: n};"
            " required"
        ),
    ] = None
    graph_max_edges: Annotated[
        _Limit,
        Meta(
            description="maximum number of edges of a Graph observation, a number or {path: n};"
            " required"
        ),
    ] = None


def limit(options: Mapping[str, Any], key: str, info: SpaceInfo) -> int | None:
    """Return a leaf's size from a config key, or None.

    Args:
        options: The model config.
        key: Name of the key, whose value is a number for all leaves or a dict from paths to
            numbers.
        info: The leaf.
    """
    sizes: Mapping[str, int] | int | None = options.get(key)
    if not isinstance(sizes, Mapping):
        return sizes
    for written_path, size in sizes.items():
        if matching_paths(written_path, [info.path]):
            return size
    return None


def needed_limit(options: Mapping[str, Any], key: str, info: SpaceInfo, items: str) -> int:
    """Return the limit (see `limit`) for a size that the space does not define.

    Args:
        options: The model config.
        key: Name of the key.
        info: The leaf.
        items: What is counted, such as "nodes", for the message.

    Raises:
        UnsupportedSpaceError: The key gives no size for the leaf; the message names both.
    """
    size = limit(options, key, info)
    if size is None:
        raise UnsupportedSpaceError(
            f"{info.path}: {info.describe()} sets no limit on the number of {items} in an"
            " observation. Set the model config"
            f' key {key!r}: a number, or {{"{info.path}": number}} for this leaf alone.'
        )
    return int(size)
