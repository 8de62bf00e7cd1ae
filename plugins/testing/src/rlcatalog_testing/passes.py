"""What the frameworks' runners share: what a backward pass gave, and structures of arrays converted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Gradients:
    """What one backward pass gave.

    Attributes:
        by_name: Name of each trainable weight → its gradient, or None where the loss does not depend on it.
        strangers: Shapes of trainable weights that the pass used and that are none of the model's.
    """

    by_name: dict[str, Array | None]
    strangers: list[tuple[int, ...]]
