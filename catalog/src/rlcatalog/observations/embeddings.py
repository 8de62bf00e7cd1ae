"""Embeddings: which columns of an encoded observation are ids, and what a net makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rlcatalog.errors import ConfigError, NotServedError, UnsupportedSpaceError
from rlcatalog.frameworks.ops import Array
from rlcatalog.observations.preprocessor import Ids, Preprocessor
from rlcatalog.observations.structure import preprocessor_of
from rlcatalog.spaces.embeddings import Embeddings, embedding_size
from rlcatalog.spaces.info import Space
from rlcatalog.spaces.paths import find_path, is_in_part

#: float32, in which observations are encoded, represents every integer up to this one.
LARGEST_ID = 2**24
#: The kinds of spaces whose values are ids, for messages.
_KINDS_WITH_IDS = ("discrete", "multi_discrete", "text")


class TablePlaces(NamedTuple):
    """Where the ids of a leaf's entries are in its table.

    The row of an id is `id - lowest + first_rows`.

    Attributes:
        lowest: The lowest id of each entry, int64 `[entries]`; `[1]` for a text.
        first_rows: The row of each entry's lowest id.
        last_rows: The row of each entry's highest id.
    """

    lowest: Array
    first_rows: Array
    last_rows: Array


@dataclass(frozen=True, eq=False)
class EmbeddedLeaf:
    """A leaf of an observation whose ids a net looks up in a table.

    The table has a row for each id. The rows of a MultiDiscrete's entries, each of which has its
    own ids, are below one another.

    Attributes:
        path: The leaf's path.
        ids: Its ids.
        size: Number of columns of the table.
        columns: The leaf's columns in the encoded observation; None if it is inside a list, a graph
            or a OneOf.
    """

    path: str
    ids: Ids
    size: int
    columns: slice | None

    @property
    def rows(self) -> int:
        """Number of rows of the table."""
        return int(self.ids.counts.sum())

    @property
    def width(self) -> int:
        """Number of values that a net gets for the leaf.

        They are the rows of a MultiDiscrete's entries side by side, or the mean of the rows of a
        text's characters.
        """
        return self.size * len(self.ids.counts)

    def places(self) -> TablePlaces:
        """Return where the ids are in the table."""
        ends = np.cumsum(self.ids.counts)
        return TablePlaces(self.ids.lowest.astype(np.int64), ends - self.ids.counts, ends - 1)

    @property
    def description(self) -> str:
        """What a net makes of the ids, for `explain`."""
        numbers = f"embedded in {self.size} numbers"
        if self.ids.characters is not None:
            return f"{self.rows:,} characters, {numbers}, averaged"
        if len(self.ids.counts) > 1:
            return f"{self.rows:,} ids of {len(self.ids.counts)} entries, each {numbers}"
        return f"{self.rows:,} ids, {numbers}"


@dataclass(frozen=True, eq=False)
class EmbeddedVector:
    """What a net makes of encoded observations that contain ids: the embeddings of these, side by
    side with the other columns, in the order of the observation.

    Attributes:
        pieces: Columns that stay as they are, and embedded leaves.
        width: Number of values in the result.
    """

    pieces: tuple[slice | EmbeddedLeaf, ...]
    width: int

    @property
    def leaves(self) -> list[EmbeddedLeaf]:
        """The embedded leaves."""
        return [piece for piece in self.pieces if isinstance(piece, EmbeddedLeaf)]

    @property
    def columns(self) -> list[slice]:
        """The columns of each piece in the encoded observation."""
        columns = []
        for piece in self.pieces:
            if isinstance(piece, EmbeddedLeaf):
                assert piece.columns is not None, "`vector_of` refuses leaves without columns"
                columns.append(piece.columns)
            else:
                columns.append(piece)
        return columns

    @property
    def table_indices(self) -> list[int | None]:
        """For each piece, the place of its leaf in `leaves`; None for columns that stay."""
        indices: list[int | None] = []
        num_leaves = 0
        for piece in self.pieces:
            if isinstance(piece, EmbeddedLeaf):
                indices.append(num_leaves)
                num_leaves += 1
            else:
                indices.append(None)
        return indices


def embedded_vector(space: Space, config: Mapping[str, Any]) -> EmbeddedVector | None:
    """Return how a net embeds the ids in encoded observations; None if it embeds none.

    Args:
        space: The space of encoded observations that the net is built with.
        config: The model config; `embeddings` names the leaves.

    Raises:
        ConfigError: The observations have been encoded without this key.
        NotServedError: A leaf is inside a list, a graph or a OneOf.
    """
    if config.get("embeddings") is None:
        return None
    preprocessor = preprocessor_of(space)
    if preprocessor is None:
        raise ConfigError(
            "embeddings: a net needs encoded observations, whose preprocessor knows the ids, not"
            f" observations of {space}. Pass"
            " ModelCatalog.get_preprocessor_for_space(space, config).observation_space."
        )
    return vector_of(preprocessor, config["embeddings"])


def vector_of(preprocessor: Preprocessor, embeddings: Embeddings) -> EmbeddedVector | None:
    """Return how a net embeds the ids in the vectors of a preprocessor; None if it embeds none.

    Args:
        preprocessor: The preprocessor.
        embeddings: The value of the config key `embeddings`.

    Raises:
        ConfigError: The observations have been encoded without this key.
        NotServedError: A leaf is inside a list, a graph or a OneOf.
    """
    leaves = embedded_leaves(preprocessor, embeddings)
    if not leaves:
        return None
    pieces: list[slice | EmbeddedLeaf] = []
    width = 0
    next_column = 0
    for leaf in leaves:
        if leaf.columns is None:
            raise NotServedError(
                f"embeddings: {leaf.path} is inside a list, so it has no columns of its own in the"
                " encoded observation. Use a model that reads the items of lists one by one, which"
                " is the default model of such observations."
            )
        if leaf.columns.start > next_column:
            pieces.append(slice(next_column, leaf.columns.start))
            width += leaf.columns.start - next_column
        pieces.append(leaf)
        width += leaf.width
        next_column = leaf.columns.stop
    if next_column < preprocessor.size:
        pieces.append(slice(next_column, preprocessor.size))
        width += preprocessor.size - next_column
    return EmbeddedVector(tuple(pieces), width)


def embedded_leaves(preprocessor: Preprocessor, embeddings: Embeddings) -> list[EmbeddedLeaf]:
    """Return the leaves of an observation that a config embeds, in the order of their columns.

    Args:
        preprocessor: The preprocessor of the observation, or of a part of it.
        embeddings: The value of the config key `embeddings`. Paths of other parts do not matter.

    Raises:
        ConfigError: A leaf is not encoded as ids.
    """
    if embeddings is None:
        return []
    return list(_embedded_below(preprocessor, embeddings, start=0))


def _embedded_below(
    codec: Preprocessor, embeddings: Embeddings, start: int | None
) -> Iterator[EmbeddedLeaf]:
    """Yield the embedded leaves of a codec.

    Args:
        codec: The codec.
        embeddings: The value of the config key.
        start: The codec's first column, or None inside a list, a graph or a OneOf.
    """
    size = embedding_size(embeddings, codec.info)
    if size is not None:
        ids = codec.ids()
        if ids is None:
            raise _without_ids(codec)
        columns = None
        if start is not None:
            columns = slice(start, start + codec.size)
        yield EmbeddedLeaf(codec.info.path, ids, size, columns)
        return
    is_side_by_side = codec.info.is_composite and codec.structured
    if start is None or not is_side_by_side:
        for child in codec.children:
            yield from _embedded_below(child, embeddings, start=None)
        return
    # The first column of each leaf, relative to this codec.
    starts = {leaf.path: leaf.start for leaf in codec.leaves()}
    for child in codec.children:
        if child.size:
            first_leaf = child.leaves()[0]
            yield from _embedded_below(child, embeddings, start + starts[first_leaf.path])


def _without_ids(codec: Preprocessor) -> ConfigError:
    """Return the error for a leaf that a config embeds, but that is not encoded as ids."""
    info = codec.info
    if info.kind in _KINDS_WITH_IDS:
        return ConfigError(
            f"embeddings: {info.path} is encoded by {codec.who}, which writes no ids. Pass the same"
            " config, with embeddings, to the preprocessor and to the model; if the preprocessor is"
            " your own, let it override ids()."
        )
    return ConfigError(
        f"embeddings: {info.path} is {info.describe()}, which has no ids to look up; expected a"
        " Discrete, a MultiDiscrete or a Text. Remove it from embeddings."
    )


# --- checks of the config key, for a lookup -------------------------------------------------------


def check_embeddings(config: Mapping[str, Any], preprocessor: Preprocessor) -> None:
    """Check that the config key `embeddings` fits an observation.

    Args:
        config: The model config.
        preprocessor: The preprocessor of the whole observation.

    Raises:
        ConfigError: A path is unknown or named twice, a leaf has no ids, or there is a
            `custom_preprocessor`.
        NotServedError: A leaf is inside a graph or a OneOf.
        UnsupportedSpaceError: A leaf has ids that float32 does not represent.
    """
    embeddings: Embeddings = config["embeddings"]
    if embeddings is None:
        return
    if config["custom_preprocessor"] is not None:
        raise ConfigError(
            "embeddings: a custom_preprocessor encodes the whole observation, so rlcatalog does not"
            " know which of its values are ids. Remove embeddings and embed them in your own model,"
            " or remove custom_preprocessor."
        )
    if isinstance(embeddings, int):
        _check_single_leaf(embeddings, preprocessor)
    else:
        _check_paths(embeddings, preprocessor)
    inseparable = _codecs_in_inseparable_parts(preprocessor)
    for leaf in embedded_leaves(preprocessor, embeddings):
        if leaf.path in inseparable:
            around = inseparable[leaf.path]
            raise NotServedError(
                f"embeddings: {leaf.path} is inside {around.info.path}"
                f" ({around.info.describe()}), which a net reads as a whole. Only leaves of Dicts,"
                " Tuples and lists can be embedded. Remove it from embeddings."
            )
        if leaf.ids.largest > LARGEST_ID:
            raise UnsupportedSpaceError(
                f"embeddings: {leaf.path} has ids up to ±{leaf.ids.largest:,}, but observations are"
                f" encoded in float32, which represents integers up to 2**24 ({LARGEST_ID:,})."
                " Map them to fewer ids, counted from 0, in an environment wrapper."
            )


def _check_single_leaf(size: int, preprocessor: Preprocessor) -> None:
    """Raise an error unless an observation has one leaf, for which a number is enough."""
    leaves = [node for node in preprocessor.info.walk() if not node.children]
    if len(leaves) == 1:
        return
    paths = [leaf.path for leaf in leaves if leaf.kind in _KINDS_WITH_IDS]
    example = ""
    if paths:
        example = f", such as embeddings={{{paths[0]!r}: {size}}}"
    raise ConfigError(
        f"embeddings={size}: a number is for an observation that is one Discrete, MultiDiscrete or"
        f" Text; found {preprocessor.info.describe()}. Name the leaves{example}."
    )


def _check_paths(embeddings: Mapping[str, int], preprocessor: Preprocessor) -> None:
    """Raise an error for a path that is unknown or named twice, or that leads to no leaf."""
    codec_by_path = {codec.info.path: codec for codec in preprocessor.codecs()}
    if preprocessor.info.children:
        # "obs" then means an entry of that name, not the whole observation.
        del codec_by_path[preprocessor.info.path]
    written_by_path: dict[str, str] = {}
    for written_path in embeddings:
        path = find_path(written_path, codec_by_path, "embeddings")
        other = written_by_path.setdefault(path, written_path)
        if other != written_path:
            raise ConfigError(
                f"embeddings: {other!r} and {written_path!r} are the same leaf. Remove one of them."
            )
        codec = codec_by_path[path]
        if codec.info.children or codec.ids() is None:
            raise _without_ids(codec)


def _codecs_in_inseparable_parts(preprocessor: Preprocessor) -> dict[str, Preprocessor]:
    """Return the path of each codec inside a graph or a OneOf → the codec of that graph or OneOf,
    whose values a net reads as one vector.
    """
    around: dict[str, Preprocessor] = {}
    for codec in preprocessor.codecs():
        is_separable = codec.info.is_composite or codec.info.kind in ("repeated", "sequence")
        if not is_separable:
            for child in codec.children:
                for inner in child.codecs():
                    around.setdefault(inner.info.path, codec)
    return around


def check_no_filter(
    embeddings: Embeddings, preprocessor: Preprocessor, filtered: list[str]
) -> None:
    """Raise an error if a filter changes ids.

    Args:
        embeddings: The value of the config key `embeddings`.
        preprocessor: The preprocessor of the whole observation.
        filtered: The paths of the leaves that the filter changes.

    Raises:
        ConfigError: One of them has, or contains, an embedded leaf.
    """
    for leaf in embedded_leaves(preprocessor, embeddings):
        for path in filtered:
            if is_in_part(path, leaf.path) or is_in_part(leaf.path, path):
                raise ConfigError(
                    f"embeddings: the observation_filter changes the ids of {leaf.path}, which"
                    " could then not be looked up. Exclude them from it"
                    f" (filter_exclude=[{path!r}])."
                )
