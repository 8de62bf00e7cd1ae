"""A composite action space is built with an effort that grows linearly with its parts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog


def count_calls(run: Callable[[], Any]) -> int:
    """Return how many Python and C functions a function calls; generators count at each item."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def build(action_space: Any) -> Any:
    config = {"fcnet_hiddens": [4]}
    return rlcatalog.build(spaces.Box(-1, 1, (3,), np.float32), action_space, config, "torch")


MANY = {
    "tuple": lambda n: spaces.Tuple([spaces.Discrete(2)] * n),
    "dict": lambda n: spaces.Dict({f"{i}": spaces.Box(-1, 1, (2,)) for i in range(n)}),
    "tuple of tuples": lambda n: spaces.Tuple([spaces.Tuple([spaces.Discrete(2)] * 2)] * n),
    "mixed": lambda n: spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (1,))] * (n // 2)),
}


@pytest.mark.parametrize("kind", MANY)
def test_building_many_actions_takes_linear_effort(kind):
    build(MANY[kind](4))  # imports
    few, many = MANY[kind](100), MANY[kind](400)
    # Four times the actions take at most four times the calls; n² would take sixteen times.
    assert count_calls(lambda: build(many)) < 4.2 * count_calls(lambda: build(few))
