"""Examples for the conformance kit: actions with several parts and `use_autoregressive=True`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog.frameworks import tensor_ops
from rlcatalog_testing import Example

_VECTOR = spaces.Box(-1, 1, (4,), np.float32)


def examples() -> list[Example]:
    """Return examples: discrete choices, a nested action with floats, an image observation, and
    masks.
    """
    small = {"use_autoregressive": True, "autoregressive_hiddens": [6, 5]}
    masked = {**small, "autoregressive_mask": _mask}
    # With no combinations to sum over, entropies are estimated.
    estimated = {**small, "autoregressive_exact": 0}
    image = spaces.Box(0, 255, (42, 42, 3), np.uint8)
    choices = spaces.MultiDiscrete([2, 3])
    two_bits = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)])
    nested = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1, 1, (2,), np.float32)})
    return [
        Example(_VECTOR, choices, small),
        Example(_VECTOR, nested, small),
        Example(image, two_bits, small),
        Example(_VECTOR, choices, masked),
        Example(_VECTOR, choices, estimated),
    ]


def _mask(_path: str, earlier: Mapping[str, Any]) -> Any:
    """Forbid the last of the second part's three values, in any framework."""
    for first in earlier.values():
        # PyTorch's tensors have this method, TensorFlow's do not.
        ops = tensor_ops("torch" if hasattr(first, "detach") else "tf")
        return ops.all_rows(ops.booleans([[True, True, False]], first), first)
    return None
