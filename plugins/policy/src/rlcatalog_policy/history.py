"""Each episode's history while acting, for the views of past steps that a model requests.

Training needs no history, because it uses the stored views that acting returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rlcatalog.actions import ActionCodec, LoweredActions
from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.frameworks import Array, Tensor, TensorOps
from rlcatalog.internals import NUMBER_KINDS, NUMPY_OPS, ViewRequirement
from rlcatalog_policy.non_finite import check_rows

#: Rows of a batch, as indices `[k]` or booleans `[B]`.
Rows: TypeAlias = Array | Sequence[int] | Sequence[bool]

#: Rewards of the last step, a number for each row.
Rewards: TypeAlias = Array | Sequence[float]

#: Reader for raw actions, as arrays or as tensors.
_ActionReader: TypeAlias = ActionCodec | LoweredActions

#: RLlib's names for a column one step back.
_COLUMNS_ONE_STEP_BACK = {
    "prev_actions": "actions",
    "prev_action": "actions",
    "prev_rewards": "rewards",
    "prev_reward": "rewards",
}
#: RLlib's other names for columns.
_COLUMN_SYNONYMS = {"dones": "terminateds", "action": "actions", "reward": "rewards"}
#: Columns of past steps that are known when acting; for the current step, `obs` and `t` are known.
_PAST_COLUMNS = ("obs", "actions", "action_inputs", "rewards")
#: Columns that only a finished rollout has, in addition to the columns known when acting.
_ROLLOUT_COLUMNS = (
    "new_obs",
    "terminateds",
    "truncateds",
    "action_logp",
    "action_dist_inputs",
    "vf_preds",
)


class History(NamedTuple):
    """The last steps of B episodes.

    Attributes:
        windows: Column → its last values `[B, depth, ...]`, the newest last; zeros before the start
            of the episode.
        t: Number of steps taken in each episode, `[B]`; counted for models that request views.
    """

    windows: Mapping[str, Array]
    t: Array


@dataclass(frozen=True)
class View:
    """One parsed entry of a model's `view_requirements`.

    Attributes:
        name: The view's name, which is the key in the model's input.
        column: The column that the view reads.
        shifts: The steps that the view reads, relative to the current one.
        is_single_step: Whether the view is a single step, without an axis for steps.
        is_for_acting: Whether the model sees the view while acting.
        is_for_training: Whether the model sees the view in training.
        batch_repeat: Number of sequence rows per value.
    """

    name: str
    column: str
    shifts: tuple[int, ...]
    is_single_step: bool
    is_for_acting: bool
    is_for_training: bool
    batch_repeat: int

    @property
    def looks_ahead(self) -> bool:
        """Whether the view needs values that are not yet known when acting."""
        if self.column not in (*_PAST_COLUMNS, "t"):
            return True  # only a finished rollout has the column
        is_known_at_once = self.column in ("obs", "t")
        last_known_step = 0 if is_known_at_once else -1
        return max(self.shifts) > last_known_step


class ColumnWindow(NamedTuple):
    """The last values of a column that a history keeps.

    Attributes:
        depth: Number of values.
        shape: Shape of one value.
        dtype: Dtype of the values.
    """

    depth: int
    shape: tuple[int, ...]
    dtype: Any


class Views:
    """Views that a model requests.

    Args:
        requirements: The model's `view_requirements`.
        obs_shape: Shape of an encoded observation.
        obs_dtype: Dtype of an encoded observation.
        actions: The codec of the action space.
        flat: Whether the model sees Tuple or Dict actions as one flat vector, instead of a
            structure.
        model_name: The model's name, for error messages.

    Attributes:
        all: All views, except the current observation and the model's states.
        ahead: Views that need a finished rollout.
        windows: Column → the window of its last values that a history keeps.
        reads_rewards: Whether a view reads past rewards.
        acting_names: Names of the views a model sees while acting.
        training_repeats: Names of the views a model sees in training → their `batch_repeat_value`.

    Raises:
        NotServedError: A view is not supported.
    """

    def __init__(
        self,
        requirements: Mapping[str, ViewRequirement],
        obs_shape: tuple[int, ...],
        obs_dtype: np.dtype[Any] | type[np.generic] | None,
        actions: ActionCodec,
        flat: bool,
        model_name: str,
    ) -> None:
        self._actions = actions
        self._model_name = model_name
        # The raw actions of a Tuple or Dict are its flat vector.
        self._shows_raw_actions = flat and actions.info.is_composite
        self.all = [
            _parse_view(name, requirement, model_name)
            for name, requirement in requirements.items()
            if _is_view(name, requirement)
        ]
        for view in self.all:
            self._check_direction(view)
        self.ahead = [view for view in self.all if view.looks_ahead]
        self._past_views = [view for view in self.all if not view.looks_ahead]

        raw_dtype = np.int64 if actions.whole else np.float32
        # The history keeps a window of each column into which a view looks back.
        self.windows: dict[str, ColumnWindow] = {}
        self._add_window("obs", obs_shape, obs_dtype)
        self._add_window("actions", (actions.width,), raw_dtype)
        self._add_window("action_inputs", (actions.input_width,), np.float32)
        self._add_window("rewards", (), np.float32)

        self.reads_rewards = "rewards" in self.windows
        self.acting_names = tuple(view.name for view in self._past_views if view.is_for_acting)
        self.training_repeats = {
            view.name: view.batch_repeat for view in self.all if view.is_for_training
        }

    def _check_direction(self, view: View) -> None:
        """Check that a view that looks ahead is not for acting, and does not also look back."""
        if not view.looks_ahead:
            return
        if view.is_for_acting:
            raise NotServedError(
                f"{self._model_name} requests the view {view.name!r}: {view.column} at"
                f" {list(view.shifts)}, which is not known when it acts; pass"
                " used_for_compute_actions=False, or a negative shift."
            )
        if min(view.shifts) < 0:
            raise NotServedError(
                f"{self._model_name} requests the view {view.name!r}: {view.column} at"
                f" {list(view.shifts)}; a view looks either back or ahead. Request two views."
            )

    def _add_window(
        self, column: str, shape: tuple[int, ...], dtype: np.dtype[Any] | type[np.generic] | None
    ) -> None:
        """Keep as many of a column's last values as the furthest view into it needs."""
        first_shifts = [min(view.shifts) for view in self._past_views if view.column == column]
        depth = -min(first_shifts, default=0)
        if depth > 0:
            self.windows[column] = ColumnWindow(depth, shape, dtype)

    def __bool__(self) -> bool:
        return bool(self.all)

    def start(self, batch_size: int) -> History:
        """Return the history at the start of episodes."""
        windows = {
            column: np.zeros((batch_size, window.depth, *window.shape), window.dtype)
            for column, window in self.windows.items()
        }
        return History(windows, np.zeros(batch_size, np.int64))

    def restart(self, history: History, rows: Rows) -> History:
        """Return the history with new episodes started in some rows (indices or booleans)."""
        windows = {
            column: with_rows(values, rows, value=0) for column, values in history.windows.items()
        }
        return History(windows, with_rows(history.t, rows, value=0))

    def rewarded(self, history: History, reward: Rewards | None) -> History:
        """Return the history with the rewards `[B]` of the last step.

        Raises:
            ModelContractError: The model requests rewards, but the number of rewards does not match
                the number of rows.
            NonFiniteError: A reward is NaN or infinite.
        """
        if not self.reads_rewards:
            return history
        rewards = check_reward(reward, history.t, self._model_name)
        if rewards is None:
            return history
        return self.with_last_rewards(history, rewards)

    def with_last_rewards(
        self, history: History, rewards: Tensor, ops: TensorOps = NUMPY_OPS
    ) -> History:
        """Return the history with rewards `[B]` that have been checked, float32 and 0 at the start
        of an episode.
        """
        last_rewards = _push(history.windows["rewards"], rewards, ops)
        return history._replace(windows={**history.windows, "rewards": last_rewards})

    def see(
        self,
        history: History,
        obs: Tensor,
        ops: TensorOps = NUMPY_OPS,
        actions: _ActionReader | None = None,
    ) -> dict[str, Any]:
        """Return every view of the current and past steps: arrays `[B, ...]`, or `[B, n, ...]` for
        n steps.

        Args:
            history: The last steps.
            obs: The current encoded observations.
            ops: Operations for the arrays or tensors.
            actions: Reader for actions given as tensors.
        """
        if actions is None:
            actions = self._actions
        return {
            view.name: self._see_one(view, history, obs, ops, actions) for view in self._past_views
        }

    def _see_one(
        self,
        view: View,
        history: History,
        obs: Tensor,
        ops: TensorOps,
        actions: _ActionReader,
    ) -> Any:
        """Return one view of the current and past steps; see `see`."""
        if view.column == "t":
            shifts = np.array(view.shifts, np.int64)
            steps: Any = history.t[:, None] + ops.constant(shifts, history.t)
            steps = ops.maximum(steps, 0)  # there is no step before the episode
            return steps[:, 0] if view.is_single_step else steps

        sees_current_step = max(view.shifts) == 0
        values: Any = history.windows.get(view.column)
        if values is None:
            values = obs[:, None]  # views of the current observation alone need no history
        elif sees_current_step:
            values = ops.concat([values, obs[:, None]], axis=1)
        depth = values.shape[1]
        # The last value is that of the current step, whose shift is 0, or that of shift -1.
        place_of_current_step = depth - 1 if sees_current_step else depth
        places = [place_of_current_step + shift for shift in view.shifts]
        sees_all_values = places == list(range(depth))
        if not sees_all_values:
            values = ops.columns_at(values, places)
        if view.is_single_step:
            values = values[:, 0]
        if view.column == "actions":
            return self._shown_actions(values, actions)
        return values

    def _shown_actions(self, raw: Any, actions: _ActionReader) -> Any:
        """Return past raw actions in the form in which a model sees them."""
        if self._shows_raw_actions:
            return raw
        return actions.shown(raw)

    def after(
        self,
        history: History,
        obs: Tensor,
        raw_action: Any,
        ops: TensorOps = NUMPY_OPS,
        actions: _ActionReader | None = None,
    ) -> History:
        """Return the history after a step; the reward comes with the next step."""
        if actions is None:
            actions = self._actions
        windows = dict(history.windows)
        if "obs" in windows:
            windows["obs"] = _push(windows["obs"], obs, ops)
        if "actions" in windows:
            windows["actions"] = _push(windows["actions"], raw_action, ops)
        if "action_inputs" in windows:
            inputs = actions.inputs(raw_action)
            windows["action_inputs"] = _push(windows["action_inputs"], inputs, ops)
        return History(windows, history.t + 1)

    def look_ahead(self, columns: Mapping[str, Array], ended: Array) -> dict[str, Any]:
        """Return the views of future steps, taken from a rollout.

        Args:
            columns: Column → its values `[T, N, ...]`, for all columns that these views read.
            ended: Whether the episode ended with the step, `[T, N]`.

        Returns:
            Arrays `[T, N, ...]`, or `[T, N, n, ...]` for n steps; zeros after the end of the
            episode or rollout.

        Raises:
            NotServedError: A column is missing.
        """
        return {view.name: self._look_ahead_in_one(view, columns, ended) for view in self.ahead}

    def _look_ahead_in_one(self, view: View, columns: Mapping[str, Array], ended: Array) -> Any:
        """Return one view of future steps; see `look_ahead`."""
        if view.column not in columns:
            raise NotServedError(
                f"{self._model_name} requests the view {view.name!r} into {view.column!r}, which"
                " this rollout lacks. Add the column in a postprocessing step. The rollout has"
                f" {', '.join(sorted(columns))}."
            )
        column = columns[view.column]
        # Number of the episode a step belongs to, in its environment.
        episode = np.cumsum(ended, axis=0) - ended
        values_by_shift = []
        for shift in view.shifts:
            values = np.zeros_like(column)
            # The last `shift` steps have no value so far ahead in this rollout.
            num_steps = len(column) - shift
            if num_steps > 0:
                is_same_episode = episode[shift:] == episode[:num_steps]
                values[:num_steps][is_same_episode] = column[shift:][is_same_episode]
            values_by_shift.append(values)
        if view.is_single_step:
            view_values = values_by_shift[0]
        else:
            view_values = np.stack(values_by_shift, axis=2)
        if view.column == "actions":
            return self._shown_actions(view_values, self._actions)
        return view_values


def check_reward(reward: Rewards | None, t: Array, who: str) -> Array | None:
    """Return the last step's rewards `[B]` as float32, 0 at the start of an episode; None if all
    episodes are starting.

    Args:
        reward: The rewards, or None.
        t: Number of steps taken in each episode `[B]`.
        who: The model's name, for error messages.

    Raises:
        ModelContractError: The number of rewards does not match the number of rows.
        NonFiniteError: A reward is NaN or infinite.
    """
    has_begun = t > 0
    if reward is None:
        if has_begun.any():
            raise ModelContractError(
                f"{who} requests past rewards: pass the last step's rewards as prev_reward=."
            )
        return None
    numbers = np.asarray(reward)
    if numbers.shape != has_begun.shape or numbers.dtype.kind not in NUMBER_KINDS:
        raise ModelContractError(
            f"prev_reward: expected {len(has_begun)} numbers, one for each row, found shape"
            f" {numbers.shape}, dtype {numbers.dtype}."
        )
    # A value too large for float32 becomes infinite, which `check_rows` finds.
    with np.errstate(over="ignore"):
        rewards: Array = np.where(has_begun, numbers.astype(np.float32), np.float32(0))
    check_rows(rewards, what="prev_reward", why="look at the environment's reward", t=t)
    return rewards


def _is_view(name: str, requirement: ViewRequirement) -> bool:
    """Return whether a requirement is a view, and not a state or the current observation."""
    if name.startswith(("state_in_", "state_out_")):
        return False
    is_current_step = requirement.shift_arr.tolist() == [0]
    is_obs = name == "obs" and requirement.data_col in (None, "obs")
    return not (is_obs and is_current_step)


def is_one_step(requirement: ViewRequirement) -> bool:
    """Return whether a view is a single step; a list or a range of steps adds an axis."""
    return np.ndim(requirement.shift) == 0 and not isinstance(requirement.shift, str)


def _parse_view(name: str, requirement: ViewRequirement, model_name: str) -> View:
    """Return a requirement as a view, with rlcatalog's name for the column that it reads."""
    column = requirement.data_col or name
    shifts = tuple(int(shift) for shift in requirement.shift_arr)
    if column in _COLUMNS_ONE_STEP_BACK:
        # RLlib's "prev_actions" is "actions" one step back. If the requirement has a shift of its
        # own, that is already the shift into "actions".
        column = _COLUMNS_ONE_STEP_BACK[column]
        if shifts == (0,):
            shifts = (-1,)
    column = _COLUMN_SYNONYMS.get(column, column)

    supported_columns = (*_PAST_COLUMNS, "t", *_ROLLOUT_COLUMNS)
    if column not in supported_columns and requirement.used_for_compute_actions:
        raise NotServedError(
            f"{model_name} requests the view {name!r} into the column {column!r}; expected one of"
            f" {', '.join(supported_columns)}; with used_for_compute_actions=False, columns that a"
            " training loop adds to its rollouts also work."
        )
    return View(
        name=name,
        column=column,
        shifts=shifts,
        is_single_step=is_one_step(requirement),
        is_for_acting=requirement.used_for_compute_actions,
        is_for_training=requirement.used_for_training,
        batch_repeat=requirement.batch_repeat_value,
    )


def _push(values: Tensor, newest: Tensor, ops: TensorOps = NUMPY_OPS) -> Any:
    """Return the last values `[B, depth, ...]` with a new one at the end, without the oldest."""
    return ops.concat([values[:, 1:], newest[:, None]], axis=1)


def with_rows(array: Array, rows: Rows, value: float | Array) -> Array:
    """Return a copy of an array in which some rows, given by indices or booleans, are set to a
    value.
    """
    array = array.copy()
    array[rows] = value
    return array
