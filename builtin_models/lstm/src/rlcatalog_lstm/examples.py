"""Examples for the conformance kit: the LSTM follows a trunk if `use_lstm` is set, the GRU if
`use_gru` is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog_testing import Example

_VECTOR = spaces.Box(-1, 1, (4,), np.float32)


def lstm_examples() -> list[Example]:
    """Return examples with the LSTM after a default trunk, after an image trunk, and with past
    inputs.
    """
    return _examples({"use_lstm": True, "lstm_cell_size": 8})


def gru_examples() -> list[Example]:
    """Return the same examples with the GRU."""
    return _examples({"use_gru": True, "gru_cell_size": 8})


def _examples(small: Mapping[str, Any]) -> list[Example]:
    nested = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1, 1, (2,), np.float32)})
    past = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True, "lstm_num_layers": 2}
    return [
        Example(_VECTOR, spaces.Discrete(3, start=1), small),
        Example(
            spaces.Box(0, 255, (42, 42, 3), np.uint8), spaces.Box(-1, 1, (2,), np.float32), small
        ),
        Example(_VECTOR, nested, {**small, **past}),
    ]
