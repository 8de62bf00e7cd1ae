"""Columns of a rollout that not every model asks for: where sequences begin, and what lies ahead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlcatalog import Policy, Step
from rlcatalog.policy import State

Array = np.ndarray[Any, Any]


class Sequences:
    """Where sequences begin, and the memory they begin with: at each episode's start and every `max_seq_len` steps.

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
        """Keep the memory of the environments in which a sequence begins; none does where a step is idle."""
        assert state is not None
        starts = (self._age % self._longest == 0) & ~idle
        self._starts.append(starts)
        if starts.any():
            self._memory.append(tuple(part[starts] for part in state.memory))

    def step(self, over: Array) -> None:
        """Go one step on; where an episode is over, the next step begins a sequence."""
        self._age = np.where(over, 0, self._age + 1)

    def arrays(self) -> dict[str, Any]:
        """Return `starts` `[T, N]` and `memory`, its sequences environment after environment."""
        starts = np.stack(self._starts)
        order = np.lexsort(np.nonzero(starts))  # by environment, then by time; they were kept by time
        parts = zip(*self._memory, strict=True)
        return {"starts": starts, "memory": tuple(np.concatenate(part)[order] for part in parts)}


class Ahead:
    """The columns that views into the future look at.

    Args:
        policy: The policy; its model may ask for none.

    Attributes:
        last_obs: Whether the last observations of all episodes are wanted.
    """

    def __init__(self, policy: Policy) -> None:
        self._wanted = {view.column for view in policy.views.ahead}
        self.last_obs = "new_obs" in self._wanted

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def row(
        self, row: Mapping[str, Any], step: Step, terminated: Array, truncated: Array, encoded: Array,
        last: Array | None,
    ) -> dict[str, Array]:  # fmt: skip
        """Return what is wanted of a step.

        Args:
            row: Its other columns.
            step: What the policy returned.
            terminated: Booleans `[N]`.
            truncated: Booleans `[N]`.
            encoded: What was observed after it.
            last: The last observations of the episodes that ended with it.
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
        return {name: known[name]() for name in self._wanted if name in known}


def _following(encoded: Array, ended: Array, last: Array | None) -> Array:
    """Return what followed each step: an episode's own last observation, not the next one's first."""
    if last is None:
        return encoded
    following = encoded.copy()
    following[ended] = last
    return following
