"""What a policy carries from one step to the next: a model's memory and the last steps of each episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlcatalog.errors import ModelContractError
from rlcatalog.trajectory import History

if TYPE_CHECKING:
    from rlcatalog.model import ModelV2

Array = np.ndarray[Any, Any]


class State(NamedTuple):
    """The state of B episodes between two steps.

    Attributes:
        memory: What the model carries, arrays `[B, ...]`; empty for a model without memory.
        history: The last steps, for models that ask to see them.
        seen: The views `[B, ...]` the model was shown at the last step; `Policy.evaluate` takes them back.
    """

    memory: tuple[Array, ...]
    history: History
    seen: Mapping[str, Any]

    def rows(self, rows: Any) -> State:
        """Return the state of some episodes, by indices or booleans; fresh arrays."""
        windows = {column: window[rows] for column, window in self.history.windows.items()}
        memory = tuple(part[rows] for part in self.memory)
        return State(memory, History(windows, self.history.t[rows]), _rows(self.seen, rows))


class Memory:
    """How a model's memory begins and goes on.

    A part is what `forward` returned for it or, where the model has a view `state_in_i` that ranges over several
    steps of `state_out_i` (RLlib's way to write attention), a window over what `forward` returned.

    Args:
        model: The model.

    Attributes:
        initial: The parts at the start of an episode, without a batch axis.
    """

    def __init__(self, model: ModelV2) -> None:
        parts = [_array(part) for part in model.get_initial_state()]
        windows: dict[int, int] = {}
        while (row := model.view_requirements.get(f"state_in_{len(windows)}")) is not None:
            windows[len(windows)] = len(row.shift_arr) if isinstance(row.shift, str) else 0
            if len(parts) < len(windows):
                parts.append(np.zeros(row.space.shape or (), np.float32))
        self._windows = [windows.get(i, 0) for i in range(len(parts))]
        self._plain = not any(self._windows)
        self.initial: list[Array] = [
            np.repeat(part[None], depth, axis=0) if depth else part
            for part, depth in zip(parts, self._windows, strict=True)
        ]
        self._who = type(model).__name__

    def __bool__(self) -> bool:
        return bool(self.initial)

    def start(self, batch_size: int) -> tuple[Array, ...]:
        """Return the memory of episodes that begin."""
        return tuple(np.repeat(part[None], batch_size, axis=0) for part in self.initial)

    def restart(self, memory: Sequence[Array], rows: Any) -> tuple[Array, ...]:
        """Return the memory with new episodes in some rows."""
        found = []
        for part, first in zip(memory, self.initial, strict=True):
            part = part.copy()
            part[rows] = first
            found.append(part)
        return tuple(found)

    def after(self, memory: Sequence[Array], returned: Sequence[Array]) -> tuple[Array, ...]:
        """Return the memory one step later.

        Args:
            memory: The memory the model was given.
            returned: What it returned.

        Raises:
            ModelContractError: It returned another number of parts.
        """
        if len(returned) != len(memory):
            raise ModelContractError(
                f"{self._who}.forward() returned {len(returned)} states; get_initial_state() has {len(memory)}."
            )
        if self._plain:
            return tuple(returned)
        return tuple(
            np.concatenate([old[:, 1:], new[:, None]], axis=1) if depth else new
            for old, new, depth in zip(memory, returned, self._windows, strict=True)
        )


def _rows(value: Any, rows: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _rows(part, rows) for name, part in value.items()}
    return tuple(_rows(part, rows) for part in value) if isinstance(value, tuple) else value[rows]


def _array(part: Any) -> Array:
    return np.asarray(part.detach().cpu() if hasattr(part, "detach") else part)
