"""Random numbers for frozen policies, generated in blocks; the state includes the position within
the block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcatalog.frameworks import Array
from rlcatalog_export.noise import LEAST

#: Numbers in a block, unless a single request needs more.
_BLOCK = 4096
#: Maximum block size when a state is restored, because the state may come from a file.
_MOST = 1 << 26
_LOW = 2**64 - 1


class NoiseBlocks:
    """Uniform numbers from the open interval (0, 1), float32.

    Args:
        seed: Seed; None means different numbers each time.
    """

    def __init__(self, seed: int | None) -> None:
        self._rng = np.random.Generator(np.random.PCG64(seed))
        #: Numbers in the block, and how many of them were taken.
        self._size = 0
        self._at = 0
        #: The generator's state before it drew the block.
        self._before: Any = self._rng.bit_generator.state
        self._block = np.zeros(0, np.float32)

    def take(self, count: int) -> Array:
        """Return the next numbers `[count]`; use them before the next call."""
        start = self._at
        end = start + count
        if end > self._size:
            self._draw(max(count, _BLOCK))
            start = 0
            end = count
        self._at = end
        return self._block[start:end]

    def state(self) -> Array:
        """Return the state, for `set_state`."""
        generator = self._before["state"]
        numbers = [
            # The generator's two numbers have 128 bits.
            generator["state"] >> 64,
            generator["state"] & _LOW,
            generator["inc"] >> 64,
            generator["inc"] & _LOW,
            self._before["has_uint32"],
            self._before["uinteger"],
            self._size,
            self._at,
        ]
        return np.array(numbers, np.uint64)

    def set_state(self, state: Array) -> None:
        """Restore a state that `state` returned.

        Raises:
            ValueError: The state was not returned by `state`.
        """
        numbers = [int(number) for number in state]
        high, low, inc_high, inc_low, has_uint32, uinteger, size, at = numbers
        if not 0 <= at <= size <= _MOST:
            raise ValueError(
                f"the state of a block of {size} numbers with {at} of them used; the limit is"
                f" {_MOST}"
            )
        self._rng.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": high << 64 | low, "inc": inc_high << 64 | inc_low},
            "has_uint32": has_uint32,
            "uinteger": uinteger,
        }
        # The state is the one before the block: draw the block again, and go on where it was.
        self._draw(size)
        self._at = at

    def _draw(self, size: int) -> None:
        self._before = self._rng.bit_generator.state
        self._block = self._rng.random(size, np.float32)
        np.maximum(self._block, np.float32(LEAST), out=self._block)
        self._size = size
