"""Each episode's history while acting, for the views of past steps that a model requests.

Training needs no history, because it uses the stored views that acting returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rlcatalog.actions import ActionCodec, LoweredActions
from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.frameworks import Array, TensorOps
from rlcatalog.internals import NUMPY_OPS, ViewRequirement
from rlcatalog_policy.non_finite import check_rows

#: Reader for raw actions, as arrays or as tensors.
_Actions = ActionCodec | LoweredActions

#: RLlib's names for a column one step back.
_STEP_BACK = {
    "prev_actions": "actions", "prev_action": "actions", "prev_rewards": "rewards",
    "prev_reward": "rewards",
}  # fmt: skip
#: Columns of past steps that are known when acting; for the current step, `obs` and `t` are known.
_PAST = ("obs", "actions", "action_inputs", "rewards")
#: Columns that only a finished rollout has, in addition to the columns known when acting.
_TRAINING = (
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
        single: Whether the view is a single step, without an axis for steps.
        acting: Whether the model sees the view while acting.
        training: Whether the model sees the view in training.
        repeat: Number of sequence rows per value.
    """

    name: str
    column: str
    shifts: tuple[int, ...]
    single: bool
    acting: bool
    training: bool
    repeat: int

    @property
    def ahead(self) -> bool:
        """Whether the view needs values that are not yet known when acting."""
        known = 0 if self.column in ("obs", "t") else -1
        return self.column not in (*_PAST, "t") or max(self.shifts) > known


class Views:
    """Views that a model requests.

    Args:
        requirements: The model's `view_requirements`.
        obs_shape: Shape of an encoded observation.
        obs_dtype: Dtype of an encoded observation.
        actions: The codec of the action space.
        flat: Whether the model sees Tuple or Dict actions as one flat vector, instead of a
            structure.
        who: The model's name, for error messages.

    Raises:
        NotServedError: A view is not supported.
    """

    def __init__(
        self,
        requirements: Mapping[str, ViewRequirement],
        obs_shape: tuple[int, ...],
        obs_dtype: Any,
        actions: ActionCodec,
        flat: bool,
        who: str,
    ) -> None:
        self._actions, self._who = actions, who
        self._as_drawn = flat and actions.info.is_composite
        self.all = [
            _read(name, row, who) for name, row in requirements.items() if not _is_plain(name, row)
        ]
        for view in self.all:
            if view.ahead and view.acting:
                raise NotServedError(
                    f"{who} requests the view {view.name!r}: {view.column} at {list(view.shifts)},"
                    " which is not known when it acts; pass used_for_compute_actions=False, or a"
                    " negative shift."
                )
            if view.ahead and min(view.shifts) < 0:
                raise NotServedError(
                    f"{who} requests the view {view.name!r}: {view.column} at {list(view.shifts)};"
                    " a view looks either back or ahead. Request two views."
                )
        self._back = [view for view in self.all if not view.ahead]
        #: Views that need a finished rollout.
        self.ahead = [view for view in self.all if view.ahead]
        shapes: dict[str, tuple[tuple[int, ...], Any]] = {
            "obs": (obs_shape, obs_dtype),
            "rewards": ((), np.float32),
            "actions": ((actions.width,), np.int64 if actions.whole else np.float32),
            "action_inputs": ((actions.input_width,), np.float32),
        }
        #: Column → how many of its last values are kept, and the shape and dtype of one.
        self.windows = {
            column: (max(depths), *shapes[column])
            for column in _PAST
            if (
                depths := [
                    -min(v.shifts) for v in self._back if v.column == column and min(v.shifts) < 0
                ]
            )
        }
        self.reads_rewards = "rewards" in self.windows
        #: Names of the views a model sees while acting.
        self.acting = tuple(view.name for view in self._back if view.acting)
        #: Names of the views a model sees in training → their `batch_repeat_value`.
        self.training = {view.name: view.repeat for view in self.all if view.training}

    def __bool__(self) -> bool:
        return bool(self.all)

    def start(self, batch_size: int) -> History:
        """Return the history at the start of episodes."""
        windows = {
            column: np.zeros((batch_size, depth, *shape), dtype)
            for column, (depth, shape, dtype) in self.windows.items()
        }
        return History(windows, np.zeros(batch_size, np.int64))

    def restart(self, history: History, rows: Array) -> History:
        """Return the history with new episodes started in some rows (indices or booleans)."""
        windows = {column: with_rows(window, rows, 0) for column, window in history.windows.items()}
        return History(windows, with_rows(history.t, rows, 0))

    def rewarded(self, history: History, reward: Any) -> History:
        """Return the history with the rewards `[B]` of the last step.

        Raises:
            ModelContractError: The model requests rewards, but the number of rewards does not match
                the number of rows.
            NonFiniteError: A reward is NaN or infinite.
        """
        if not self.reads_rewards:
            return history
        if (given := check_reward(reward, history.t, self._who)) is None:
            return history
        return history._replace(
            windows={**history.windows, "rewards": _pushed(history.windows["rewards"], given)}
        )

    def see(
        self,
        history: History,
        obs: Any,
        ops: TensorOps = NUMPY_OPS,
        actions: _Actions | None = None,
    ) -> dict[str, Any]:
        """Return every view of the current and past steps: arrays `[B, ...]`, or `[B, n, ...]` for
        n steps.

        Args:
            history: The last steps.
            obs: The current encoded observations.
            ops: Operations for the arrays or tensors.
            actions: Reader for actions given as tensors.
        """
        actions = self._actions if actions is None else actions
        return {view.name: self._seen(view, history, obs, ops, actions) for view in self._back}

    def _seen(
        self, view: View, history: History, obs: Any, ops: TensorOps, actions: _Actions
    ) -> Any:
        if view.column == "t":
            values = ops.maximum(history.t[:, None] + ops.tensor(view.shifts, history.t), 0)
            return values[:, 0] if view.single else values
        window, now = history.windows.get(view.column), max(view.shifts) == 0
        if window is None:
            window = obs[:, None]
        elif now:
            window = ops.concat([window, obs[:, None]], 1)
        depth = window.shape[1]
        if (places := [depth + shift - now for shift in view.shifts]) != list(range(depth)):
            window = ops.columns_at(window, places)
        values = window[:, 0] if view.single else window
        return self._shown(values, actions) if view.column == "actions" else values

    def _shown(self, raw: Any, actions: _Actions) -> Any:
        return raw if self._as_drawn else actions.shown(raw)

    def after(
        self,
        history: History,
        obs: Any,
        raw_action: Any,
        ops: TensorOps = NUMPY_OPS,
        actions: _Actions | None = None,
    ) -> History:
        """Return the history after a step; the reward comes with the next step."""
        new = {"obs": obs, "actions": raw_action}
        if "action_inputs" in history.windows:
            new["action_inputs"] = (self._actions if actions is None else actions).inputs(
                raw_action
            )
        windows = {
            column: _pushed(window, new[column], ops) if column in new else window
            for column, window in history.windows.items()
        }
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
        return {view.name: self._ahead(view, columns, ended) for view in self.ahead}

    def _ahead(self, view: View, columns: Mapping[str, Array], ended: Array) -> Any:
        if view.column not in columns:
            raise NotServedError(
                f"{self._who} requests the view {view.name!r} into {view.column!r}, which this"
                " rollout lacks. Add the column in a postprocessing step. The rollout has"
                f" {', '.join(sorted(columns))}."
            )
        column = columns[view.column]
        steps = []
        # Number of the episode a step belongs to, in its environment.
        episode = np.cumsum(ended, axis=0) - ended
        for shift in view.shifts:
            value = np.zeros_like(column)
            if (kept := len(column) - shift) > 0:
                same = episode[shift:] == episode[:kept]
                value[:kept][same] = column[shift:][same]
            steps.append(value)
        values = steps[0] if view.single else np.stack(steps, axis=2)
        return self._shown(values, self._actions) if view.column == "actions" else values


def check_reward(reward: Any, t: Array, who: str) -> Array | None:
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
    begun = t > 0
    if reward is None:
        if begun.any():
            raise ModelContractError(
                f"{who} requests past rewards: pass the last step's rewards as prev_reward=."
            )
        return None
    given = np.asarray(reward)
    if given.shape != begun.shape or given.dtype.kind not in "biuf":
        raise ModelContractError(
            f"prev_reward: expected {len(begun)} numbers, one for each row, found shape"
            f" {given.shape}, dtype {given.dtype}."
        )
    with np.errstate(over="ignore"):  # values too large for float32 are found below
        rewards: Array = np.where(begun, given.astype(np.float32), np.float32(0))
    check_rows(rewards, "prev_reward", "look at the environment's reward", t)
    return rewards


def _is_plain(name: str, row: ViewRequirement) -> bool:
    """Return whether a requirement is not a view but the current observation or a state."""
    if name.startswith(("state_in_", "state_out_")):
        return True
    return name == "obs" and row.data_col in (None, "obs") and row.shift_arr.tolist() == [0]


def _read(name: str, row: ViewRequirement, who: str) -> View:
    column, back = row.data_col or name, 0
    if column in _STEP_BACK:
        column = _STEP_BACK[column]
        back = -1 if row.shift_arr.tolist() == [0] else 0
    column = {"dones": "terminateds", "action": "actions", "reward": "rewards"}.get(column, column)
    known = (*_PAST, "t", *_TRAINING)
    if column not in known and row.used_for_compute_actions:
        raise NotServedError(
            f"{who} requests the view {name!r} into the column {column!r}; expected one of"
            f" {', '.join(known)}; with used_for_compute_actions=False, columns that a training"
            " loop adds to its rollouts also work."
        )
    shifts = tuple(int(s) + back for s in row.shift_arr)
    return View(
        name,
        column,
        shifts,
        np.ndim(row.shift) == 0 and not isinstance(row.shift, str),
        row.used_for_compute_actions,
        row.used_for_training,
        row.batch_repeat_value,
    )


def _pushed(window: Any, value: Any, ops: TensorOps = NUMPY_OPS) -> Any:
    return ops.concat([window[:, 1:], value[:, None]], 1)


def with_rows(array: Array, rows: Any, value: Any) -> Array:
    """Return a copy of an array in which some rows, given by indices or booleans, are set to a
    value.
    """
    array = array.copy()
    array[rows] = value
    return array
