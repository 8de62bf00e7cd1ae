"""Short texts of spaces, for tables and messages."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import MultiDiscrete

from rlcatalog import SpaceInfo


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (MultiDiscrete([3, 4]), "MultiDiscrete([3, 4])"),
        (MultiDiscrete(np.full((10, 10), 7)), "MultiDiscrete(10, 10) of 7"),
        (MultiDiscrete(np.arange(2, 22)), "MultiDiscrete(20,) of 2 to 21"),
    ],
)
def test_text_of_a_large_multidiscrete_is_short(space, text):
    assert SpaceInfo.read(space).describe() == text


def test_text_shows_no_address_in_memory():
    class Mission(gymnasium.Space):
        """A space without a text of its own; Python's ends with an address."""

    assert SpaceInfo.read(Mission()).describe().endswith("Mission object>")
