"""Codec for texts: the Text space, and any other space of strings."""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Text

from rlcatalog import SpaceInfo
from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog.frameworks import TensorOps
from rlcatalog.observations import Array, Leaf, Preprocessor, Writer
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

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        if (longest := getattr(obs_space, "max_length", None)) is None:
            longest = needed_limit(options, "text_max_length", self.info, "characters")
        self.max_length = min(
            int(longest), limit(options, "text_max_length", self.info) or int(longest)
        )
        # Sorted: the order of a set of characters differs between processes.
        known = (
            getattr(obs_space, "character_set", None) or options.get("text_charset") or _PRINTABLE
        )
        self.characters = "".join(sorted(set(known)))
        encoding = options.get("text_encoding", "onehot")
        self._onehot = encoding == "onehot" and not options.get("_disable_preprocessor_api")
        if self.max_length < 1 or not self.characters:
            raise UnsupportedSpaceError(
                f"{self.info.path}: {self.info.describe()} contains no text to encode."
            )
        self._width = len(self.characters) if self._onehot else 1
        return (self.max_length * (self._width + 1),)

    def writer(self, start: int) -> Writer:
        width, most, onehot = self._width, self.max_length, self._onehot
        # Column of the 1 of the character at place 0; for integers its number, where 0 is the
        # padding.
        index = {character: i if onehot else i + 1 for i, character in enumerate(self.characters)}
        places, mask = start + np.arange(most) * width, start + most * width

        def write(obs: Any, out: Array) -> None:
            length = len(obs)
            if length > most or not isinstance(obs, str):
                raise ValueError(f"{length} characters, which exceeds the limit {most}")
            numbers = np.fromiter(map(index.__getitem__, obs), np.int64, length)
            if onehot:
                out[places[:length] + numbers] = 1.0
            else:
                out[start : start + length] = numbers
            out[mask : mask + length] = 1.0

        return write

    def restore(self, flat: Any, ops: TensorOps) -> TextValues:
        """Return the characters and the mask."""
        split = self.max_length * self._width
        characters = flat[..., :split]
        if self._onehot:
            return TextValues(
                ops.reshape(characters, (self.max_length, self._width)), flat[..., split:]
            )
        return TextValues(ops.integers(characters), flat[..., split:])

    def leaves(self, start: int = 0) -> list[Leaf]:
        path, split = self.info.path, start + self.max_length * self._width
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

    def standard_space(self) -> SpaceInfo:
        if self.info.kind == "text":
            return self.info
        space = Text(self.max_length, min_length=0, charset=self.characters)
        return SpaceInfo.read(space, self.info.path)

    def check(self, obs: Any) -> None:
        if not isinstance(obs, str):
            self.refuse("a text", obs)
        if len(obs) > self.max_length:
            self.refuse(
                f"a text of at most {self.max_length} characters (see 'text_max_length')", obs
            )
        if unknown := sorted(set(obs) - set(self.characters)):
            self.refuse(
                f"a text of the characters {self.characters!r}",
                f"{obs!r} with {''.join(unknown)!r}",
            )
        if not self._obs_space.contains(obs):
            self.refuse(f"a text of {self.info.describe()}", obs)
