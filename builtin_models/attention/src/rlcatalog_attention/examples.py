"""Examples for the conformance kit: the transformer after a trunk (with `use_attention`) and on its
own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog_testing import Example

_VECTOR = spaces.Box(-1, 1, (4,), np.float32)
_BOX = spaces.Box(-1, 1, (2,), np.float32)
_SIZES = {
    "dim": 8,
    "num_heads": 2,
    "head_dim": 4,
    "memory_inference": 6,
    "memory_training": 6,
    "position_wise_mlp_dim": 8,
}


def examples() -> list[Example]:
    """Return examples with the transformer after a vector trunk, after an image trunk, and with
    past inputs.
    """
    small: dict[str, Any] = {
        "use_attention": True,
        **{f"attention_{name}": size for name, size in _SIZES.items()},  # the config's keys
    }
    past = {
        "attention_use_n_prev_actions": 2,
        "attention_use_n_prev_rewards": 1,
        "attention_num_transformer_units": 2,
    }
    return [
        Example(_VECTOR, spaces.Discrete(3, start=1), small),
        Example(spaces.Box(0, 255, (42, 42, 3), np.uint8), _BOX, small),
        Example(_VECTOR, spaces.Tuple([spaces.Discrete(2), _BOX]), {**small, **past}),
    ]


def net_examples() -> list[Example]:
    """Return examples with the standalone transformer, whose sizes are keyword arguments."""
    sizes = {"attention_dim" if name == "dim" else name: size for name, size in _SIZES.items()}
    own = {"custom_model_config": sizes}
    return [
        Example(_VECTOR, spaces.Discrete(3, start=1), own),
        Example(spaces.Discrete(5), _BOX, own),
    ]
