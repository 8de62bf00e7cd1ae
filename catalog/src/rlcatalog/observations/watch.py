"""A closer look at what a codec writes: nothing beyond its slice, nothing outside of its bounds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog.errors import ModelContractError
from rlcatalog.observations.batches import stack

if TYPE_CHECKING:
    from rlcatalog.observations.preprocessor import Preprocessor

Array = np.ndarray[Any, Any]

#: The module of the base class, whose writers need not be watched.
_HOME = "rlcatalog.observations.preprocessor"
#: What stands beside a slice while a writer is watched.
_CANARY = np.float32(-77777.25)


class Watch:
    """Watches a codec write, and those of the space's parts; the catalog's own are left alone, see `is_watched`.

    Args:
        codec: The codec.
    """

    def __init__(self, codec: Preprocessor) -> None:
        self._codec = codec
        #: Where its slice begins in a longer array: there is as much room before it and behind it.
        self._start = codec.size + 8

    @cached_property
    def _writers(self) -> list[tuple[str, Callable[[Any], Any], Any, tuple[int, ...]]]:
        codec, cls = self._codec, type(self._codec)
        if not codec.is_watched or all(getattr(cls, name).__module__ == _HOME for name in ("writer", "batch_writer")):
            return []  # `Preprocessor`'s own
        return [
            ("writer", lambda obs: obs, codec.writer(self._start), ()),
            ("batch_writer", lambda obs: stack(codec.info, [obs]), codec.batch_writer(self._start), (1,)),
        ]

    def check_slice(self, obs: Any) -> None:
        """Raise where the codec, or one of its children before, writes beyond its slice.

        Args:
            obs: An observation of the space.

        Raises:
            ModelContractError: It does.
        """
        if not self._is_needed:
            return
        codec, first = self._codec, self._start
        if codec.info.is_composite and len(codec.children) == len(codec.info.children):
            for child, part in zip(codec.children, codec.info.split(obs), strict=True):
                child._watch.check_slice(part)
        for name, given, write, ahead in self._writers:
            out = np.full((*ahead, codec.size + 2 * first), _CANARY, np.float32)
            out[..., first : first + codec.size] = 0.0
            try:
                write(given(obs), out)
            except (Exception, SystemExit):  # encoding it says what is wrong
                return
            out[..., first : first + codec.size] = _CANARY
            if (out != _CANARY).any():
                at = int(np.argwhere(out != _CANARY)[0, -1]) - first
                raise ModelContractError(
                    f"{codec.who}: its {name}(start) writes to place start{at:+d}; its slice is the {codec.size}"
                    " places from start on."
                )

    def check_bounds(self, encoded: Array) -> None:
        """Raise where encoded values lie outside of the bounds that the codec says.

        Args:
            encoded: The values, `[size]` or `[B, size]`.

        Raises:
            ModelContractError: One does.
        """
        if not self._is_needed:
            return
        low, high = self._limits
        wrong = (encoded < low) | (encoded > high)
        if wrong.any():
            at = int(np.argwhere(wrong)[0, -1])
            codec = self._codec
            path = next((leaf.path for leaf in codec.leaves() if leaf.start <= at < leaf.stop), codec.info.path)
            who = next((part.who for part in codec.codecs() if part.info.path == path), codec.who)
            raise ModelContractError(
                f"{who}: {path} is encoded as {encoded[wrong][0]} in place {at}, outside of [{low[at]}, {high[at]}],"
                " which its bounds() says."
            )

    @cached_property
    def _is_needed(self) -> bool:
        return any(codec.is_watched for codec in self._codec.codecs())

    @cached_property
    def _limits(self) -> tuple[Array, Array]:
        return self._codec.bounds()
