"""How many examples a property is tried with: a sixth in `make test`, all in `make attack`."""

from __future__ import annotations

import os


def share(count: int) -> int:
    """Return how many of a property's examples this run tries; all where HYPOTHESIS_PROFILE names a
    profile of its own.

    Args:
        count: How many `make attack` tries.
    """
    return count if os.environ.get("HYPOTHESIS_PROFILE", "same") != "same" else -(-count // 6)
