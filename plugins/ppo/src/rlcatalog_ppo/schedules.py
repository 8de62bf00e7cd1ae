"""Values that change over a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlcatalog.errors import ConfigError

#: Pairs of an environment step and the value there.
Schedule = Sequence[tuple[int, float]]


def value_at(schedule: Schedule, step: int) -> float:
    """Return a schedule's value at a step: linear between its pairs, constant before the first and after the last."""
    steps, values = zip(*schedule, strict=True)
    return float(np.interp(step, steps, values))


def check_schedule(name: str, schedule: Schedule | None) -> None:
    """Raise unless a schedule's steps rise.

    Raises:
        ConfigError: It has no pair, or its steps do not rise.
    """
    if schedule is None:
        return
    steps = [step for step, _ in schedule]
    if not steps or sorted(set(steps)) != steps:
        raise ConfigError(
            f"{name}: expected [step, value] pairs with rising steps, such as [[0, 0.001], [100000, 0.0]]; found"
            f" {[list(pair) for pair in schedule]}."
        )
