"""Examples for the conformance kit: the LSTM follows a trunk if `use_lstm` is set."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from rlcatalog_testing import Example

_VECTOR = spaces.Box(-1, 1, (4,), np.float32)


def examples() -> list[Example]:
    """Return examples with the LSTM after a default trunk, after an image trunk, and with past
    inputs.
    """
    small = {"use_lstm": True, "lstm_cell_size": 8}
    nested = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1, 1, (2,), np.float32)})
    past = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    return [
        Example(_VECTOR, spaces.Discrete(3, start=1), small),
        Example(
            spaces.Box(0, 255, (42, 42, 3), np.uint8), spaces.Box(-1, 1, (2,), np.float32), small
        ),
        Example(_VECTOR, nested, {**small, **past}),
    ]
