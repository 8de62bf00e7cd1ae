"""What the frameworks' runners share: what a backward pass gave, and structures of arrays converted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlcatalog.spaces import map_tensors

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


def tree(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert the arrays of a view, whatever its structure."""
    if isinstance(value, Mapping):
        return {key: tree(part, convert) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(tree(part, convert) for part in value)
    return convert(value) if isinstance(value, np.ndarray) else map_tensors(value, convert)
