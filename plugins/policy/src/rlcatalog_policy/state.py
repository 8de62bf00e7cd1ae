"""State that a policy carries from one step to the next: a model's memory and the last steps of each episode.

How a memory begins and goes on stands here; when it begins anew, in `stepper.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlcatalog.errors import ModelContractError, NotServedError, shown
from rlcatalog.frameworks import Array, TensorOps
from rlcatalog.internals import NUMPY_OPS, ViewRequirement, name_method
from rlcatalog.spaces import map_tensors
from rlcatalog_policy.history import History, Views, with_rows

if TYPE_CHECKING:
    from rlcatalog.models import ModelV2


class State(NamedTuple):
    """The state of B episodes between two steps.

    Attributes:
        memory: What the model is given at the next step, arrays `[B, ...]`; empty for a model without memory.
        history: The last steps, for models that ask to see them.
        seen: The views `[B, ...]` the model was shown at the last step; `Policy.evaluate` takes them back.
        past: What `forward` returned of late `[B, n, ...]`, for parts of the memory that skip some of it.
    """

    memory: tuple[Array, ...]
    history: History
    seen: Mapping[str, Any]
    past: tuple[Array, ...] = ()

    def rows(self, rows: Any) -> State:
        """Return the state of some episodes, by indices or booleans; fresh arrays."""
        windows = {column: window[rows] for column, window in self.history.windows.items()}
        memory, past = (tuple(part[rows] for part in parts) for parts in (self.memory, self.past))
        seen = map_tensors(self.seen, lambda view: view[rows])
        return State(memory, History(windows, self.history.t[rows]), seen, past)


class EpisodeStates:
    """Begins the states of episodes and carries them from step to step.

    Args:
        memory: How the model's memory begins and goes on.
        views: The views of past steps that the model asks for.

    Attributes:
        looks_back: Whether the model asks for any.
        carries: Whether there is anything to carry.
    """

    def __init__(self, memory: Memory, views: Views) -> None:
        self.memory, self.views = memory, views
        self.looks_back = bool(views)
        self.carries = self.looks_back or bool(memory)

    def start(self, rows: int) -> State:
        """Return the state at the start of episodes."""
        return State(self.memory.start(rows), self.views.start(rows), {}, self.memory.begin(rows))

    def resume(self, encoded: Array, state: State | None, prev_reward: Any) -> State:
        """Return the state before a step, with the last rewards, and what the model sees of the past.

        Args:
            encoded: The observations of the step `[B, ...]`.
            state: The state that the last step left; None at the start of all episodes.
            prev_reward: The rewards of the last step `[B]`, for models that ask for them.

        Raises:
            ModelContractError: The state is none of so many rows, or rewards are missing.
        """
        rows = len(encoded)
        if state is None:
            state = self.start(rows)
        if not isinstance(state, State) or len(state.history.t) != rows:
            found = f"{len(state.history.t)} rows" if isinstance(state, State) else type(state).__name__
            raise ModelContractError(f"state: expected the state of {rows} rows, as act() returned it, found {found}.")
        if not self.looks_back:
            return state
        history = self.views.rewarded(state.history, prev_reward)
        return state._replace(history=history, seen=self.views.see(history, encoded))

    def shown(self, before: State) -> dict[str, Any]:
        """Return the views that the model sees while acting, of what `resume` returned."""
        return {name: before.seen[name] for name in self.views.acting}

    def after(self, before: State, encoded: Array, raw: Array, new_memory: tuple[Array, ...]) -> State:
        """Return the state after a step."""
        memory, past = self.memory.after(before.memory, new_memory, before.past)
        history = self.views.after(before.history, encoded, raw) if self.looks_back else before.history
        return State(memory, history, before.seen, past)

    def restart(self, state: State, rows: Any) -> State:
        """Return a state with new episodes in some rows, by indices or booleans."""
        memory = _restarted(state.memory, self.memory.initial, rows)
        past = _restarted(state.past, self.memory.before, rows)
        return State(memory, self.views.restart(state.history, rows), state.seen, past)


class Window(NamedTuple):
    """Which earlier values of a state a model is given.

    Attributes:
        depth: Number of values that are kept, the newest last.
        places: Which of them it is given, counted from the end: a number, or several on an axis of their own.
    """

    depth: int
    places: int | list[int]

    @property
    def skips(self) -> bool:
        """Whether some of what is kept is not given."""
        return self.places != list(range(-self.depth, 0))

    def taken(self, whole: Any, ops: TensorOps) -> Any:
        """Return what is given of what is kept, `[B, depth, ...]`."""
        if isinstance(self.places, int):
            return whole[:, self.places]
        return ops.columns_at(whole, [self.depth + place for place in self.places])


class Memory:
    """How a model's memory begins and goes on.

    A part is what `forward` returned for it one step ago or, where the model has a view `state_in_i` of `state_out_i`
    (RLlib's way to write attention), what it returned at the steps that the view's shift names; before the episode
    began, that was the initial state.

    Args:
        model: The model.

    Attributes:
        initial: The parts at the start of an episode, without a batch axis.
        skips: Whether some part is given other steps than the last ones in a row, so that `past` must be kept.

    Raises:
        NotServedError: A view of a state looks into another column, or not back.
        ModelContractError: A model has a view of a state, and neither a view nor an initial state before it.
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
                    f"{self._who} asks for the views {', '.join(sorted(names))}, and has neither a view"
                    f" '{_STATE_IN}{i}' nor an initial state for it; get_initial_state() must return one."
                )
            parts.append(np.zeros(row.space.shape or (), np.float32))
        pairs = list(zip(parts, self._windows, strict=True))
        self.initial: list[Array] = [
            part if window is None or isinstance(window.places, int) else np.repeat(part[None], len(window.places), 0)
            for part, window in pairs
        ]
        #: What is kept beside the memory at the start of an episode, without a batch axis.
        self.before: list[Array] = [
            np.repeat(part[None], window.depth, 0) for part, window in pairs if window and window.skips
        ]
        self.skips = bool(self.before)

    def __bool__(self) -> bool:
        return bool(self.initial)

    def start(self, batch_size: int) -> tuple[Array, ...]:
        """Return the memory of episodes that begin."""
        return tuple(np.repeat(part[None], batch_size, axis=0) for part in self.initial)

    def begin(self, batch_size: int) -> tuple[Array, ...]:
        """Return what `State.past` is for episodes that begin."""
        return tuple(np.repeat(part[None], batch_size, axis=0) for part in self.before)

    def after(
        self, memory: Sequence[Any], returned: Sequence[Any], past: Sequence[Any] = (), ops: TensorOps = NUMPY_OPS
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return memory and past one step later.

        Args:
            memory: The memory the model was given.
            returned: What it returned.
            past: What was kept beside the memory.
            ops: The operations of what these are: arrays, or tensors.

        Raises:
            ModelContractError: It returned another number of parts.
        """
        if len(returned) != len(memory):
            raise ModelContractError(
                f"{self._returns} returned {len(returned)} states; get_initial_state() has {len(memory)}."
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
            f"{self._returns} must return states of the shapes it is given, {[part.shape for part in memory]}, a row"
            f" for each episode; found {[part.shape for part in returned]}. get_initial_state() says what one row is."
        )


def _initial(model: ModelV2) -> list[Array]:
    """Return the model's initial state as arrays.

    Raises:
        ModelContractError: It is no list of arrays of numbers.
    """
    state = model.get_initial_state()
    parts = [_array(part) for part in state] if isinstance(state, list | tuple) else None
    if parts is None or any(part.dtype.kind not in "biuf" for part in parts):
        raise ModelContractError(
            f"{name_method(model, 'get_initial_state')} must return a list of arrays or tensors of numbers, each"
            f" without a batch axis; found {shown(state)}."
        )
    return parts


_STATE_IN = "state_in_"


def _window(row: ViewRequirement, i: int, who: str) -> Window | None:
    """Return what a view gives of a state, or None where that is the last value alone, as without a view."""
    name, column, shifts = f"{_STATE_IN}{i}", f"state_out_{i}", row.shift_arr.tolist()
    if row.data_col not in (None, column):
        raise NotServedError(f"{who} asks for the view {name!r} of {row.data_col!r}; it can look into {column!r} only.")
    if max(shifts) > -1:
        raise NotServedError(
            f"{who} asks for the view {name!r}: {column} at {shifts}; a state is known once the model has run, so every"
            " shift must be -1 or less."
        )
    single = np.ndim(row.shift) == 0 and not isinstance(row.shift, str)
    return None if single and shifts == [-1] else Window(-min(shifts), shifts[0] if single else shifts)


def _restarted(parts: Sequence[Array], firsts: Sequence[Array], rows: Any) -> tuple[Array, ...]:
    return tuple(with_rows(part, rows, first) for part, first in zip(parts, firsts, strict=True))


def _array(part: Any) -> Array:
    half = "float16" in str(getattr(part, "dtype", ""))  # bfloat16, too, which NumPy has not
    if hasattr(part, "detach"):
        part = part.detach().cpu()
        part = part.float() if half else part
    return np.asarray(part, np.float32 if half else None)
