"""State that a policy carries from step to step: a model's memory and each episode's last steps.

This module starts and advances a memory; `stepper.py` decides when it restarts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from rlcatalog.actions import LoweredActions
from rlcatalog.errors import ModelContractError, NotServedError, shown
from rlcatalog.frameworks import Array, Tensor, TensorOps
from rlcatalog.internals import (
    NUMBER_KINDS,
    NUMPY_OPS,
    ViewRequirement,
    exported_dtype,
    name_method,
)
from rlcatalog.models import ModelV2
from rlcatalog.spaces import map_tensors
from rlcatalog_policy.encoder import to_array
from rlcatalog_policy.history import History, Rewards, Rows, Views, is_one_step, with_rows


class State(NamedTuple):
    """The state of B episodes between two steps.

    Attributes:
        memory: The memory for the next step, arrays `[B, ...]`; empty for a model without memory.
        history: Each episode's last steps, for models that request them.
        views: The views `[B, ...]` that the model saw at the last step; pass them to
            `Policy.evaluate`.
        past: Recent states `[B, n, ...]` that `forward` returned, for arrays of the memory that
            skip some of them.
    """

    memory: tuple[Array, ...]
    history: History
    views: Mapping[str, Any]
    past: tuple[Array, ...] = ()

    def rows(self, rows: Rows) -> State:
        """Return the state of some episodes, given by indices or booleans, as new arrays."""
        windows = {column: window[rows] for column, window in self.history.windows.items()}
        return State(
            memory=tuple(array[rows] for array in self.memory),
            history=History(windows, self.history.t[rows]),
            views=map_tensors(self.views, lambda view: view[rows]),
            past=tuple(array[rows] for array in self.past),
        )


class StateBeforeStep(NamedTuple):
    """What a policy knows of B episodes when it takes a step, beside the observations.

    Attributes:
        views: The views that the model sees while acting.
        memory: The memory that the model gets, as in `State`.
        steps: Number of steps taken in each episode `[B]`; None if it is not counted.
        history: Each episode's last steps, with the rewards of the last one.
        all_views: All views of past steps, including those for training alone.
        past: See `State`.
    """

    views: Mapping[str, Any]
    memory: tuple[Array, ...]
    steps: Array | None
    history: History
    all_views: Mapping[str, Any]
    past: tuple[Array, ...]


class NoStates:
    """Manager for a model that keeps nothing from step to step: it has neither memory nor views.

    It has the methods of `EpisodeStates`.
    """

    def __init__(self) -> None:
        no_history = History(windows={}, t=np.zeros(0, np.int64))
        self._inputs = StateBeforeStep(
            views={}, memory=(), steps=None, history=no_history, all_views={}, past=()
        )

    def start(self, rows: int) -> None:
        """Return None, because there is no state."""

    def view_input(self, encoded: Tensor) -> Tensor:
        """Return the observations unchanged, because there are no views to read them."""
        return encoded

    def resume(
        self, encoded: Tensor, state: State | None, prev_reward: Rewards | None
    ) -> StateBeforeStep:
        """Return the inputs of every step, which are empty; the arguments are ignored."""
        return self._inputs

    def after(
        self, before: StateBeforeStep, encoded: Tensor, raw: Array, new_memory: tuple[Array, ...]
    ) -> None:
        """Return None, because there is no state."""

    def restart(self, state: State, rows: Rows) -> State:
        """Return the state as it is."""
        return state


class EpisodeStates:
    """Manager for the episodes' states, at the start and from step to step.

    Args:
        memory: The model's memory.
        views: The views of past steps that the model requests.
        ops: The operations for states and observations.
        actions: Reader for raw actions that are tensors; None for arrays.
    """

    def __init__(
        self,
        memory: Memory,
        views: Views,
        ops: TensorOps = NUMPY_OPS,
        actions: LoweredActions | None = None,
    ) -> None:
        self.memory = memory
        self.views = views
        self._has_views = bool(views)
        self._ops = ops
        self._actions = actions

    def start(self, rows: int) -> State:
        """Return the state at the start of episodes."""
        return State(
            memory=self.memory.start(rows),
            history=self.views.start(rows),
            views={},
            past=self.memory.start_past(rows),
        )

    def view_input(self, encoded: Tensor) -> Any:
        """Return what views read of encoded observations: an array, if the model has views.

        For other models they stay where they are, because copying them from a GPU takes time.
        """
        if self._has_views:
            return to_array(encoded)
        return encoded

    def resume(
        self, encoded: Tensor, state: State | None, prev_reward: Rewards | None
    ) -> StateBeforeStep:
        """Return the inputs of a step, including the last rewards and the views of past steps.

        Args:
            encoded: The step's observations `[B, ...]`, as `view_input` returned them.
            state: The state after the last step; None if all episodes are starting.
            prev_reward: The last step's rewards `[B]`, for models that request them.

        Raises:
            ModelContractError: The state has a different number of rows, or rewards are missing.
        """
        rows = encoded.shape[0]
        if state is None:
            state = self.start(rows)
        check_state(state, rows)
        self._check_form(state)
        if not self._has_views:
            return StateBeforeStep(
                views={},
                memory=state.memory,
                steps=None,
                history=state.history,
                all_views=state.views,
                past=state.past,
            )
        history = self._with_rewards(state.history, prev_reward)
        all_views = self.views.see(history, encoded, self._ops, self._actions)
        return StateBeforeStep(
            views={name: all_views[name] for name in self.views.acting_names},
            memory=state.memory,
            steps=history.t,
            history=history,
            all_views=all_views,
            past=state.past,
        )

    def _check_form(self, state: State) -> None:
        """Raise an error unless a state consists of arrays."""
        if not isinstance(state.history.t, np.ndarray):
            raise ModelContractError(
                "state: expected the state of a step on arrays, like the observations; found one of"
                " tensors. Pass the observations as tensors too, and to act_encoded on_device=True."
            )

    def _with_rewards(self, history: History, prev_reward: Rewards | None) -> History:
        """Return the history with the rewards `[B]` of the last step, if the model reads them."""
        return self.views.rewarded(history, prev_reward)

    def after(
        self, before: StateBeforeStep, encoded: Tensor, raw: Array, new_memory: tuple[Array, ...]
    ) -> State:
        """Return the state after a step.

        Args:
            before: The step's inputs.
            encoded: The step's observations, as for `resume`.
            raw: The raw actions `[B, width]` that were chosen.
            new_memory: The memory that the model returned.
        """
        memory, past = self.memory.after(before.memory, new_memory, before.past, self._ops)
        history = before.history
        if self._has_views:
            history = self.views.after(history, encoded, raw, self._ops, self._actions)
        return State(memory, history, before.all_views, past)

    def restart(self, state: State, rows: Rows) -> State:
        """Return a state with new episodes started in some rows, given by indices or booleans."""
        return State(
            memory=_with_restarted_rows(state.memory, self.memory.initial, rows),
            history=self.views.restart(state.history, rows),
            views=state.views,
            past=_with_restarted_rows(state.past, self.memory.initial_past, rows),
        )


class TensorEpisodeStates(EpisodeStates):
    """Manager for states that are tensors; see `EpisodeStates`.

    Args:
        memory: The model's memory.
        views: The views of past steps that the model requests.
        ops: The operations for tensors.
        actions: Reader for raw actions; needed if the model sees past actions.
        like: A tensor on the device of the states, or another object that names the device.
    """

    def __init__(
        self,
        memory: Memory,
        views: Views,
        ops: TensorOps,
        actions: LoweredActions | None,
        like: Any,
    ) -> None:
        super().__init__(memory, views, ops, actions)
        self._like = like

    def start(self, rows: int) -> State:
        windows = {}
        for column, window in self.views.windows.items():
            dtype = exported_dtype(np.dtype(window.dtype).name)
            windows[column] = self._rows_of(np.zeros((window.depth, *window.shape), dtype), rows)
        return State(
            memory=tuple(self._rows_of(part, rows) for part in self.memory.initial),
            history=History(windows, self._rows_of(np.zeros((), np.int64), rows)),
            views={},
            past=tuple(self._rows_of(part, rows) for part in self.memory.initial_past),
        )

    def _rows_of(self, first_value: Array, rows: int) -> Any:
        return self._ops.expand(self._ops.constant(first_value, self._like), rows)

    def upload(self, state: State) -> State:
        """Return a state of arrays, such as `Policy.initial_state` returns it, as tensors."""

        def to_tensor(array: Array) -> Any:
            return self._ops.tensor(np.array(array), self._like)

        return State(
            memory=tuple(map(to_tensor, state.memory)),
            history=History(
                map_tensors(state.history.windows, to_tensor), to_tensor(state.history.t)
            ),
            views=map_tensors(state.views, to_tensor),
            past=tuple(map(to_tensor, state.past)),
        )

    def view_input(self, encoded: Tensor) -> Tensor:
        """Return the observations unchanged."""
        return encoded

    def _check_form(self, state: State) -> None:
        """Do nothing: `upload` has made tensors of arrays."""

    def _with_rewards(self, history: History, prev_reward: Rewards | None) -> History:
        """Return the history with the rewards `[B]` of the last step, 0 at the start of an episode.

        Args:
            history: The history.
            prev_reward: The rewards, a tensor; None stands for 0.
        """
        if not self.views.reads_rewards:
            return history
        ops = self._ops
        zero = ops.constant(np.zeros((), np.float32), self._like)
        rewards: Any = ops.expand(zero, history.t.shape[0])
        if prev_reward is not None:
            tensor: Any = prev_reward
            rewards = ops.where(history.t > 0, ops.as_type(tensor, "float32"), zero)
        return self.views.with_last_rewards(history, rewards, ops)

    def restart(self, state: State, rows: Any) -> State:
        """Return a state with new episodes started in some rows, given by booleans `[B]`."""
        windows = {}
        for column, values in state.history.windows.items():
            windows[column] = self._restarted(
                values, np.zeros((), self._ops.dtype_name(values)), rows
            )
        steps = self._restarted(state.history.t, np.zeros((), np.int64), rows)
        memory = zip(state.memory, self.memory.initial, strict=True)
        past = zip(state.past, self.memory.initial_past, strict=True)
        return State(
            memory=tuple(self._restarted(part, first, rows) for part, first in memory),
            history=History(windows, steps),
            views=state.views,
            past=tuple(self._restarted(part, first, rows) for part, first in past),
        )

    def _restarted(self, values: Any, first_value: Array, rows: Any) -> Any:
        """Return tensors `[B, ...]` in which some rows have the value of a new episode."""
        other_axes = (None,) * (len(values.shape) - 1)
        is_new = rows[(slice(None), *other_axes)]
        return self._ops.where(is_new, self._ops.constant(first_value, values), values)


def check_state(state: State, rows: int) -> None:
    """Raise an error unless a state belongs to a batch with this number of rows.

    Raises:
        ModelContractError: It is not a state, or has a different number of rows.
    """
    if isinstance(state, State) and len(state.history.t) == rows:
        return
    what_was_passed = type(state).__name__
    if isinstance(state, State):
        what_was_passed = f"{len(state.history.t)} rows"
    raise ModelContractError(
        f"state: expected the state of {rows} rows, as act() returned it, found {what_was_passed}."
    )


def _with_restarted_rows(
    arrays: Sequence[Array], first_values: Sequence[Array], rows: Rows
) -> tuple[Array, ...]:
    """Return copies of arrays `[B, ...]` in which some rows have the values of a new episode."""
    pairs = zip(arrays, first_values, strict=True)
    return tuple(with_rows(array, rows, first_value) for array, first_value in pairs)


# --- memory ---------------------------------------------------------------------------------------


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

    def select(self, kept_values: Tensor, ops: TensorOps) -> Tensor:
        """Return the model's view of the stored values `[B, depth, ...]`."""
        if isinstance(self.places, int):
            return kept_values[:, self.places]  # type: ignore[no-any-return]
        return ops.columns_at(  # type: ignore[no-any-return]
            kept_values, [self.depth + place for place in self.places]
        )


class Memory:
    """A model's memory: its initial value, and its value after each step.

    Each part of it is a state that `forward` returned one step ago. With a view `state_in_i` of
    `state_out_i`, which is how RLlib implements attention, the part contains the states of the
    steps that the view's shift names. Steps before the episode have the initial state.

    Args:
        model: The model.

    Attributes:
        initial: The parts' values at the start of an episode, without a batch axis.
        initial_past: `State.past` at the start of an episode, without a batch axis.
        looks_back: Whether a part contains the states of several steps, or of an earlier one.
        skips: Whether a part contains steps other than the last consecutive ones, so that `past`
            must be kept.

    Raises:
        NotServedError: A view of a state reads a different column, or does not read the past.
        ModelContractError: A model has a view of a state, but an earlier state has neither a view
            nor an initial state.
    """

    def __init__(self, model: ModelV2) -> None:
        self._model_class = type(model).__name__
        self._forward_name = name_method(model, "forward")
        self._windows: list[Window | None] = []
        self.initial: list[Array] = []
        self.initial_past: list[Array] = []

        initial_states = _initial_states(model)
        for index in range(_count_states(model, initial_states)):
            requirement = model.view_requirements.get(f"{_STATE_IN}{index}")
            if index < len(initial_states):
                initial_state = initial_states[index]
            elif requirement is None:
                self._refuse_missing_state(model, index)
            else:
                # A view whose state has no initial value starts with zeros.
                initial_state = np.zeros(requirement.space.shape or (), np.float32)
            window = None
            if requirement is not None:
                window = _window_of(requirement, index, self._model_class)
            self._add_part(initial_state, window)

        self.looks_back = any(window is not None for window in self._windows)
        self.skips = bool(self.initial_past)

    def _refuse_missing_state(self, model: ModelV2, index: int) -> NoReturn:
        views = [name for name in model.view_requirements if name.startswith(_STATE_IN)]
        raise ModelContractError(
            f"{self._model_class} requests the views {', '.join(sorted(views))}, but has neither a"
            f" view '{_STATE_IN}{index}' nor an initial state for it; get_initial_state() must"
            " return one."
        )

    def _add_part(self, initial_state: Array, window: Window | None) -> None:
        """Add a part of the memory; before an episode, each step has the initial state."""
        self._windows.append(window)
        if window is None or isinstance(window.places, int):
            self.initial.append(initial_state)
        else:
            self.initial.append(np.repeat(initial_state[None], len(window.places), axis=0))
        if window is not None and window.skips:
            self.initial_past.append(np.repeat(initial_state[None], window.depth, axis=0))

    def __bool__(self) -> bool:
        return bool(self.initial)

    def start(self, batch_size: int) -> tuple[Array, ...]:
        """Return the memory at the start of episodes."""
        return tuple(np.repeat(part[None], batch_size, axis=0) for part in self.initial)

    def start_past(self, batch_size: int) -> tuple[Array, ...]:
        """Return `State.past` at the start of episodes."""
        return tuple(np.repeat(part[None], batch_size, axis=0) for part in self.initial_past)

    def after(
        self,
        memory: Sequence[Tensor],
        returned: Sequence[Tensor],
        past: Sequence[Tensor] = (),
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
                f"{self._forward_name} returned {len(returned)} states; get_initial_state() has"
                f" {len(memory)}."
            )
        new_memory = []
        new_past = []
        past_values = iter(past)
        for window, old, new in zip(self._windows, memory, returned, strict=True):
            if window is None:
                if new.shape != old.shape:
                    self._refuse_shapes(returned, memory)
                new_memory.append(new)
                continue
            # `past` has one entry for each window that skips values; others are kept whole.
            kept_values = next(past_values) if window.skips else old
            if new.shape != kept_values[:, 0].shape:
                self._refuse_shapes([new], [kept_values[:, 0]])
            kept_values = ops.concat([kept_values[:, 1:], new[:, None]], axis=1)
            if window.skips:
                new_memory.append(window.select(kept_values, ops))
                new_past.append(kept_values)
            else:
                new_memory.append(kept_values)
        return tuple(new_memory), tuple(new_past)

    def _refuse_shapes(self, returned: Sequence[Tensor], memory: Sequence[Tensor]) -> NoReturn:
        raise ModelContractError(
            f"{self._forward_name} must return states of the same shapes,"
            f" {[part.shape for part in memory]}, a row for each episode; found"
            f" {[part.shape for part in returned]}. get_initial_state() defines one row."
        )


#: RLlib's names for the views of a model's states: `state_in_0`, `state_in_1`, …
_STATE_IN = "state_in_"


def _count_states(model: ModelV2, initial_states: Sequence[Array]) -> int:
    """Return how many states a model has, by its initial states and by its views of states."""
    count = len(initial_states)
    for name in model.view_requirements:
        if name.startswith(_STATE_IN):
            index = int(name.removeprefix(_STATE_IN))
            count = max(count, index + 1)
    return count


def _initial_states(model: ModelV2) -> list[Array]:
    """Return the model's initial state as arrays.

    Raises:
        ModelContractError: The initial state is not a list of numeric arrays.
    """
    states = model.get_initial_state()
    if isinstance(states, list | tuple):
        arrays = [_array_of_state(state) for state in states]
        if all(array.dtype.kind in NUMBER_KINDS for array in arrays):
            return arrays
    raise ModelContractError(
        f"{name_method(model, 'get_initial_state')} must return a list of arrays or tensors of"
        f" numbers, each without a batch axis; found {shown(states)}."
    )


def _array_of_state(state: Any) -> Array:
    """Return a model's initial state, of any framework, as an array."""
    # The user's object: an array, a tensor or a nested list. NumPy has no bfloat16, so that both
    # half precisions become float32.
    is_half = "float16" in str(getattr(state, "dtype", ""))
    if hasattr(state, "detach"):  # a tensor of PyTorch
        state = state.detach().cpu()
        if is_half:
            state = state.float()
    if is_half:
        return np.asarray(state, np.float32)
    return np.asarray(state)


def _window_of(requirement: ViewRequirement, index: int, model_class: str) -> Window | None:
    """Return the window for a view of a state, or None if it is only the last value, as it is
    without a view.
    """
    name = f"{_STATE_IN}{index}"
    column = f"state_out_{index}"
    shifts = requirement.shift_arr.tolist()
    if requirement.data_col not in (None, column):
        raise NotServedError(
            f"{model_class} requests the view {name!r} of {requirement.data_col!r}; it can only"
            f" read {column!r}."
        )
    if max(shifts) > -1:
        raise NotServedError(
            f"{model_class} requests the view {name!r}: {column} at {shifts}; a state is known"
            " only after the model has run, so every shift must be -1 or less."
        )
    if not is_one_step(requirement):
        return Window(depth=-min(shifts), places=shifts)
    if shifts == [-1]:
        return None
    return Window(depth=-min(shifts), places=shifts[0])
