"""Optional rollout columns: sequence starts, and views of the future."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlcatalog import Policy, Step
from rlcatalog.errors import ModelContractError
from rlcatalog_policy import State
from rlcatalog_ppo.loss import as_drawn

Array = np.ndarray[Any, Any]


class Sequences:
    """Recorder for the starts of sequences and their initial memory.

    A sequence begins with each episode and after every `max_seq_len` steps.

    Args:
        policy: A policy with memory.
        n: Number of environments.
    """

    def __init__(self, policy: Policy, n: int) -> None:
        self._longest = policy.config["max_seq_len"]
        self._age = np.zeros(n, np.int64)
        self._starts: list[Array] = []
        self._memory: list[tuple[Array, ...]] = []

    def note(self, state: State | None, idle: Array) -> None:
        """Store the memory of environments in which a sequence begins; an idle step does not begin
        one.
        """
        assert state is not None
        starts = (self._age % self._longest == 0) & ~idle
        self._starts.append(starts)
        if starts.any():
            self._memory.append(tuple(part[starts] for part in state.memory))

    def step(self, over: Array) -> None:
        """Advance one step. After an episode ends, the next step begins a sequence."""
        self._age = np.where(over, 0, self._age + 1)

    def arrays(self) -> dict[str, Any]:
        """Return `starts` `[T, N]` and `memory`, with the sequences ordered by environment."""
        starts = np.stack(self._starts)
        # By environment, then by time; they were stored by time.
        order = np.lexsort(np.nonzero(starts))
        parts = zip(*self._memory, strict=True)
        return {"starts": starts, "memory": tuple(np.concatenate(part)[order] for part in parts)}


class Ahead:
    """Recorder for the columns that views of the future need.

    Args:
        policy: The policy; its model need not request such views.
        everything: Whether to store all columns. By default, only the requested columns are stored.

    Attributes:
        last_obs: Whether the last observations of all episodes are needed.
    """

    def __init__(self, policy: Policy, everything: bool = False) -> None:
        self._everything, self._asked = everything, {view.column for view in policy.views.ahead}
        self.last_obs = everything or "new_obs" in self._asked

    def __bool__(self) -> bool:
        return self._everything or bool(self._asked)

    def row(
        self,
        row: Mapping[str, Any],
        step: Step,
        terminated: Array,
        truncated: Array,
        encoded: Array,
        last: Array | None,
    ) -> dict[str, Array]:
        """Return the columns that are required for a step.

        Args:
            row: The step's other columns.
            step: The policy's return value.
            terminated: Booleans `[N]`.
            truncated: Booleans `[N]`.
            encoded: The encoded observations that follow the step.
            last: The last observations of the episodes that ended at this step.
        """
        known: dict[str, Callable[[], Any]] = {
            "obs": lambda: row["obs"],
            "actions": lambda: step.raw_action,
            "rewards": lambda: row["reward"],
            "t": lambda: None if step.state is None else step.state.history.t - 1,
            "terminateds": lambda: terminated,
            "truncateds": lambda: truncated,
            "action_logp": lambda: step.logp,
            "action_dist_inputs": lambda: step.dist_inputs,
            "vf_preds": lambda: step.value,
            "new_obs": lambda: _following(encoded, terminated | truncated, last),
        }
        wanted = {
            name: column()
            for name, column in known.items()
            if self._everything or name in self._asked
        }
        return {name: column for name, column in wanted.items() if column is not None}


#: A function with RLlib's signature. Arguments: the policy, the columns of one trajectory
#: `[t, ...]`, other agents' columns (empty), the episode (None). It returns the columns and may add
#: others.
Postprocess = Callable[[Policy, dict[str, Array], dict[Any, Any], None], Mapping[str, Any]]


def added_columns(
    postprocess: Postprocess,
    policy: Policy,
    columns: Mapping[str, Array],
    done: Array,
    idle: Array | None,
) -> dict[str, Array]:
    """Return the columns `[T, N, ...]` that a postprocessing function adds to a rollout, with zeros
    for idle steps.

    Args:
        postprocess: The function, which is called once per trajectory, that is, for all steps of
            one episode in the rollout.
        policy: The policy.
        columns: Column → values `[T, N, ...]`.
        done: Whether the episode ended at this step.
        idle: Steps that only began an episode, or None.

    Raises:
        ModelContractError: The function does not return a mapping, or a column has the wrong number
            of rows.
    """
    name = getattr(postprocess, "__name__", repr(postprocess))
    added: dict[str, Array] = {}
    for i in range(done.shape[1]):
        steps = np.arange(len(done)) if idle is None else np.flatnonzero(~idle[:, i])
        for places in np.split(steps, np.flatnonzero(done[steps, i]) + 1):
            if not len(places):
                continue
            given = {column: values[places, i] for column, values in columns.items()}
            given["actions"] = as_drawn(policy, given["actions"])
            found = postprocess(policy, dict(given), {}, None)
            if not isinstance(found, Mapping):
                raise ModelContractError(
                    f"{name}() must return the trajectory's columns, found {type(found).__name__}."
                )
            for column in found.keys() - given.keys():
                values = np.asarray(found[column])
                if values.shape[:1] != places.shape:
                    raise ModelContractError(
                        f"{name}() must return a row for each of {len(places)} steps; found shape"
                        f" {values.shape} in the column {column!r}."
                    )
                if column not in added:
                    added[column] = np.zeros((*done.shape, *values.shape[1:]), values.dtype)
                added[column][places, i] = values
    return added


def _following(encoded: Array, ended: Array, last: Array | None) -> Array:
    """Return the observation after each step.

    For an episode's last step, it is the episode's last observation.
    """
    if last is None:
        return encoded
    following = encoded.copy()
    following[ended] = last
    return following
