"""Codec for texts: the Text space, and any other space of strings."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Text

from rlcatalog import SpaceInfo
from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog.frameworks import Tensor, TensorOps
from rlcatalog.observations import Array, Ids, Leaf, Preprocessor, Writer
from rlcatalog.spaces import embedding_size
from rlcatalog_preprocessors.config import limit, needed_limit

_PRINTABLE = string.digits + string.ascii_letters + string.punctuation + " "


@dataclass(frozen=True, eq=False)
class TextValues:
    """Batch of texts, padded to the same length.

    Attributes:
        values: The characters as one-hot vectors `[B, max_length, characters]`; with
            `text_encoding="index"`, as int64 `[B, max_length]`, with 1 for the charset's first
            character and 0 after the text.
        mask: Mask with a 1 for each character and 0 after the text, `[B, max_length]`.
    """

    values: Any
    mask: Any


class TextPreprocessor(Preprocessor):
    """Text: the padded characters as one-hot vectors or integers, followed by a mask that is 1 for
    each character.
    """

    structured = True

    def _init_shape(self, obs_space: Space[Any], options: dict[str, Any]) -> tuple[int, ...]:
        """Read the length, the characters and the encoding; return the shape of the vector."""
        self.max_length = self._read_max_length(obs_space, options)
        # Sorted: the order of a set of characters differs between processes.
        self.characters = "".join(sorted(set(_charset(obs_space, options))))
        encoding = options.get("text_encoding", "onehot")
        # With RLlib's `_disable_preprocessor_api`, models get integers instead of one-hot vectors.
        self._onehot = encoding == "onehot" and not options.get("_disable_preprocessor_api")
        if embedding_size(options.get("embeddings"), self.info) is not None:
            self._onehot = False
        if self.max_length < 1 or not self.characters:
            raise UnsupportedSpaceError(
                f"{self.info.path}: {self.info.describe()} contains no text to encode."
            )
        #: Number of values for each character.
        self._width = len(self.characters) if self._onehot else 1
        # Each place has its character's values, and 1 for the mask.
        return (self.max_length * (self._width + 1),)

    def _read_max_length(self, obs_space: Space[Any], options: Mapping[str, Any]) -> int:
        """Return the smaller one of the space's and the config's length.

        Raises:
            UnsupportedSpaceError: Neither gives a length.
        """
        # Gymnasium's Text has a maximum length, another space of strings may have none.
        space_length = getattr(obs_space, "max_length", None)
        if space_length is None:
            return needed_limit(options, "text_max_length", self.info, "characters")
        config_length = limit(options, "text_max_length", self.info)
        if config_length is None:
            return int(space_length)
        return min(int(space_length), config_length)

    def writer(self, start: int) -> Writer:
        if self._onehot:
            return self._onehot_writer(start)
        return self._index_writer(start)

    # A writer runs for each observation, so it reads local variables, which are faster than
    # attributes.

    def _onehot_writer(self, start: int) -> Writer:
        """Return the function that writes a text as one-hot vectors and a mask."""
        max_length = self.max_length
        mask = start + max_length * self._width
        # Where the one-hot vector of each place begins.
        places = start + np.arange(max_length) * self._width
        column_of = {character: column for column, character in enumerate(self.characters)}

        def write(obs: str, out: Array) -> None:
            length = len(obs)
            if length > max_length or not isinstance(obs, str):
                raise ValueError(f"{length} characters, which exceeds the limit {max_length}")
            columns = np.fromiter(map(column_of.__getitem__, obs), np.int64, length)
            out[places[:length] + columns] = 1.0
            out[mask : mask + length] = 1.0

        return write

    def _index_writer(self, start: int) -> Writer:
        """Return the function that writes a text as numbers of characters and a mask."""
        max_length = self.max_length
        mask = start + max_length
        # From 1, because 0 is the padding.
        number_of = {character: n for n, character in enumerate(self.characters, start=1)}

        def write(obs: str, out: Array) -> None:
            length = len(obs)
            if length > max_length or not isinstance(obs, str):
                raise ValueError(f"{length} characters, which exceeds the limit {max_length}")
            numbers = np.fromiter(map(number_of.__getitem__, obs), np.int64, length)
            out[start : start + length] = numbers
            out[mask : mask + length] = 1.0

        return write

    def restore(self, flat: Tensor, ops: TensorOps) -> TextValues:
        """Return the characters and the mask."""
        split = self.max_length * self._width
        characters = flat[..., :split]
        if self._onehot:
            values = ops.reshape(characters, (self.max_length, self._width))
        else:
            values = ops.integers(characters)
        return TextValues(values, flat[..., split:])

    def leaves(self, start: int = 0) -> list[Leaf]:
        path = self.info.path
        split = start + self.max_length * self._width
        shape = (self.max_length, self._width) if self._onehot else (self.max_length,)
        return [
            Leaf(f"{path}.values", "text", start, split, shape),
            Leaf(f"{path}.mask", "mask", split, start + self.size, (self.max_length,)),
        ]

    def bounds(self) -> tuple[Array, Array]:
        high = np.ones(self.size, np.float32)
        if not self._onehot:
            high[: self.max_length] = len(self.characters)
        return np.zeros(self.size, np.float32), high

    def ids(self) -> Ids | None:
        if self._onehot:
            return None
        # From 1, because 0 is the padding.
        first = np.ones(1, np.int64)
        count = np.full(1, len(self.characters), np.int64)
        return Ids(first, count, characters=self.max_length)

    def standard_space(self) -> SpaceInfo:
        if self.info.kind == "text":
            return self.info
        space = Text(self.max_length, min_length=0, charset=self.characters)
        return SpaceInfo.read(space, self.info.path)

    def check(self, obs: str) -> None:
        """Raise an error that says what is wrong, if an observation is not in the space."""
        if not isinstance(obs, str):
            self.refuse("a text", obs)
        if len(obs) > self.max_length:
            self.refuse(
                f"a text of at most {self.max_length} characters (see 'text_max_length')", obs
            )
        unknown = "".join(sorted(set(obs) - set(self.characters)))
        if unknown:
            self.refuse(
                f"a text of the characters {self.characters!r}", f"{obs!r} with {unknown!r}"
            )
        if not self._obs_space.contains(obs):
            self.refuse(f"a text of {self.info.describe()}", obs)


def _charset(obs_space: Space[Any], options: Mapping[str, Any]) -> Iterable[str]:
    """Return the characters of the space's texts: the space's own, the config's, or printable
    ASCII.
    """
    # Gymnasium's Text has a set of characters, another space of strings may have none.
    own_characters: Iterable[str] | None = getattr(obs_space, "character_set", None)
    return own_characters or options.get("text_charset") or _PRINTABLE
