"""State that a policy carries from step to step: a model's memory and each episode's last steps.

This module starts and advances a memory; `stepper.py` decides when it restarts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlcatalog.errors import ModelContractError, NotServedError, shown
from rlcatalog.frameworks import Array, TensorOps
from rlcatalog.internals import NUMPY_OPS, ViewRequirement, name_method
from rlcatalog.models import ModelV2
from rlcatalog.spaces import map_tensors
from rlcatalog_policy.history import History, Views, with_rows


class State(NamedTuple):
    """The state of B episodes between two steps.

    Attributes:
        memory: The memory for the next step, arrays `[B, ...]`; empty for a model without memory.
        history: Each episode's last steps, for models that request them.
        seen: The views `[B, ...]` that the model saw at the last step; pass them to
            `Policy.evaluate`.
        past: Recent states `[B, n, ...]` that `forward` returned, for arrays of the memory that
            skip some of them.
    """

    memory: tuple[Array, ...]
    history: History
    seen: Mapping[str, Any]
    past: tuple[Array, ...] = ()

    def rows(self, rows: Any) -> State:
        """Return the state of some episodes, given by indices or booleans, as new arrays."""
        windows = {column: window[rows] for column, window in self.history.windows.items()}
        memory, past = (tuple(part[rows] for part in parts) for parts in (self.memory, self.past))
        seen = map_tensors(self.seen, lambda view: view[rows])
        return State(memory, History(windows, self.history.t[rows]), seen, past)


class EpisodeStates:
    """Manager for the episodes' states, at the start and from step to step.

    Args:
        memory: The model's memory.
        views: The views of past steps that the model requests.

    Attributes:
        looks_back: Whether the model requests views.
        carries: Whether there is a state to carry.
    """

    def __init__(self, memory: Memory, views: Views) -> None:
        self.memory, self.views = memory, views
        self.looks_back = bool(views)
        self.carries = self.looks_back or bool(memory)

    def start(self, rows: int) -> State:
        """Return the state at the start of episodes."""
        return State(self.memory.start(rows), self.views.start(rows), {}, self.memory.begin(rows))

    def resume(self, encoded: Array, state: State | None, prev_reward: Any) -> State:
        """Return the state before a step, including the last rewards and the views of past steps.

        Args:
            encoded: The step's observations `[B, ...]`.
            state: The state after the last step; None if all episodes are starting.
            prev_reward: The last step's rewards `[B]`, for models that request them.

        Raises:
            ModelContractError: The state has a different number of rows, or rewards are missing.
        """
        rows = len(encoded)
        if state is None:
            state = self.start(rows)
        if not isinstance(state, State) or len(state.history.t) != rows:
            found = (
                f"{len(state.history.t)} rows" if isinstance(state, State) else type(state).__name__
            )
            raise ModelContractError(
                f"state: expected the state of {rows} rows, as act() returned it, found {found}."
            )
        if not self.looks_back:
            return state
        history = self.views.rewarded(state.history, prev_reward)
        return state._replace(history=history, seen=self.views.see(history, encoded))

    def shown(self, before: State) -> dict[str, Any]:
        """Return the views that the model sees while acting, from the state that
        `resume` returned.
        """
        return {name: before.seen[name] for name in self.views.acting}

    def after(
        self, before: State, encoded: Array, raw: Array, new_memory: tuple[Array, ...]
    ) -> State:
        """Return the state after a step."""
        memory, past = self.memory.after(before.memory, new_memory, before.past)
        history = (
            self.views.after(before.history, encoded, raw) if self.looks_back else before.history
        )
        return State(memory, history, before.seen, past)

    def restart(self, state: State, rows: Any) -> State:
        """Return a state with new episodes started in some rows, given by indices or booleans."""
        memory = _restarted(state.memory, self.memory.initial, rows)
        past = _restarted(state.past, self.memory.before, rows)
        return State(memory, self.views.restart(state.history, rows), state.seen, past)


class Window(NamedTuple):
    """Window of a state's earlier values that a model sees.

    Attributes:
        depth: Number of values kept, the newest last.
        places: Which of them the model sees, counted from the end: one number, or several, which
            add an axis.
    """

    depth: int
    places: int | list[int]

    @property
    def skips(self) -> bool:
        """Whether the model does not see some of the kept values."""
        return self.places != list(range(-self.depth, 0))

    def taken(self, whole: Any, ops: TensorOps) -> Any:
        """Return the model's view of the stored values `[B, depth, ...]`."""
        if isinstance(self.places, int):
            return whole[:, self.places]
        return ops.columns_at(whole, [self.depth + place for place in self.places])


class Memory:
    """A model's memory: its initial value, and its value after each step.

    Each part of it is a state that `forward` returned one step ago. With a view `state_in_i` of
    `state_out_i`, which is how RLlib implements attention, the part contains the states of the
    steps that the view's shift names. Steps before the episode have the initial state.

    Args:
        model: The model.

    Attributes:
        initial: The parts' values at the start of an episode, without a batch axis.
        looks_back: Whether a part contains the states of several steps, or of an earlier one.
        skips: Whether a part contains steps other than the last consecutive ones, so that `past`
            must be kept.

    Raises:
        NotServedError: A view of a state reads a different column, or does not read the past.
        ModelContractError: A model has a view of a state, but an earlier state has neither a view
            nor an initial state.
    """

    def __init__(self, model: ModelV2) -> None:
        self._who, self._returns = type(model).__name__, name_method(model, "forward")
        parts = _initial(model)
        names = [name for name in model.view_requirements if name.startswith(_STATE_IN)]
        count = max([len(parts), *(int(name.removeprefix(_STATE_IN)) + 1 for name in names)])
        self._windows: list[Window | None] = []
        for i in range(count):
            row = model.view_requirements.get(f"{_STATE_IN}{i}")
            self._windows.append(None if row is None else _window(row, i, self._who))
            if i < len(parts):
                continue
            if row is None:
                raise ModelContractError(
                    f"{self._who} requests the views {', '.join(sorted(names))}, but has neither a"
                    f" view '{_STATE_IN}{i}' nor an initial state for it; get_initial_state() must"
                    " return one."
                )
            parts.append(np.zeros(row.space.shape or (), np.float32))
        pairs = list(zip(parts, self._windows, strict=True))
        self.initial: list[Array] = [
            part
            if window is None or isinstance(window.places, int)
            else np.repeat(part[None], len(window.places), 0)
            for part, window in pairs
        ]
        #: `State.past` at the start of an episode, without a batch axis.
        self.before: list[Array] = [
            np.repeat(part[None], window.depth, 0)
            for part, window in pairs
            if window and window.skips
        ]
        self.looks_back = any(window is not None for window in self._windows)
        self.skips = bool(self.before)

    def __bool__(self) -> bool:
        return bool(self.initial)

    def start(self, batch_size: int) -> tuple[Array, ...]:
        """Return the memory at the start of episodes."""
        return tuple(np.repeat(part[None], batch_size, axis=0) for part in self.initial)

    def begin(self, batch_size: int) -> tuple[Array, ...]:
        """Return `State.past` at the start of episodes."""
        return tuple(np.repeat(part[None], batch_size, axis=0) for part in self.before)

    def after(
        self,
        memory: Sequence[Any],
        returned: Sequence[Any],
        past: Sequence[Any] = (),
        ops: TensorOps = NUMPY_OPS,
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the memory and the past one step later.

        Args:
            memory: The memory that was passed to the model.
            returned: The states that the model returned.
            past: `State.past`.
            ops: Operations on the arrays or tensors.

        Raises:
            ModelContractError: The model returned a different number of parts, or parts of a
                different shape.
        """
        if len(returned) != len(memory):
            raise ModelContractError(
                f"{self._returns} returned {len(returned)} states; get_initial_state() has"
                f" {len(memory)}."
            )
        given, kept, wholes = [], [], iter(past)
        for window, old, new in zip(self._windows, memory, returned, strict=True):
            if window is None:
                if new.shape != old.shape:
                    raise self._reshaped(returned, memory)
                given.append(new)
                continue
            whole = next(wholes) if window.skips else old
            if new.shape != whole[:, 0].shape:
                raise self._reshaped([new], [whole[:, 0]])
            whole = ops.concat([whole[:, 1:], new[:, None]], 1)
            given.append(window.taken(whole, ops) if window.skips else whole)
            kept += [whole] if window.skips else []
        return tuple(given), tuple(kept)

    def _reshaped(self, returned: Sequence[Array], memory: Sequence[Array]) -> ModelContractError:
        return ModelContractError(
            f"{self._returns} must return states of the same shapes,"
            f" {[part.shape for part in memory]}, a row for each episode; found"
            f" {[part.shape for part in returned]}. get_initial_state() defines one row."
        )


def _initial(model: ModelV2) -> list[Array]:
    """Return the model's initial state as arrays.

    Raises:
        ModelContractError: The initial state is not a list of numeric arrays.
    """
    state = model.get_initial_state()
    parts = [_array(part) for part in state] if isinstance(state, list | tuple) else None
    if parts is None or any(part.dtype.kind not in "biuf" for part in parts):
        raise ModelContractError(
            f"{name_method(model, 'get_initial_state')} must return a list of arrays or tensors of"
            f" numbers, each without a batch axis; found {shown(state)}."
        )
    return parts


_STATE_IN = "state_in_"


def _window(row: ViewRequirement, i: int, who: str) -> Window | None:
    """Return the window for a view of a state, or None if it is only the last value, as it is
    without a view.
    """
    name, column, shifts = f"{_STATE_IN}{i}", f"state_out_{i}", row.shift_arr.tolist()
    if row.data_col not in (None, column):
        raise NotServedError(
            f"{who} requests the view {name!r} of {row.data_col!r}; it can only read {column!r}."
        )
    if max(shifts) > -1:
        raise NotServedError(
            f"{who} requests the view {name!r}: {column} at {shifts}; a state is known only after"
            " the model has run, so every shift must be -1 or less."
        )
    single = np.ndim(row.shift) == 0 and not isinstance(row.shift, str)
    return (
        None if single and shifts == [-1] else Window(-min(shifts), shifts[0] if single else shifts)
    )


def _restarted(parts: Sequence[Array], firsts: Sequence[Array], rows: Any) -> tuple[Array, ...]:
    return tuple(with_rows(part, rows, first) for part, first in zip(parts, firsts, strict=True))


def _array(part: Any) -> Array:
    half = "float16" in str(getattr(part, "dtype", ""))  # bfloat16, too, which NumPy lacks
    if hasattr(part, "detach"):
        part = part.detach().cpu()
        part = part.float() if half else part
    return np.asarray(part, np.float32 if half else None)
