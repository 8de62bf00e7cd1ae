"""How many examples a property is tried with: a sixth in `make test`, all in `make attack`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings


def share(count: int) -> int:
    """Return how many of a property's examples this run tries; all where HYPOTHESIS_PROFILE names a
    profile of its own.

    Args:
        count: How many `make attack` tries.
    """
    return count if os.environ.get("HYPOTHESIS_PROFILE", "same") != "same" else -(-count // 6)


def max_examples(count: int) -> settings:
    """Return the settings of a property with so many examples, which are the same in each run."""
    return settings(
        max_examples=share(count),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
