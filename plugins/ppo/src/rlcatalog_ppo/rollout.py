"""Rollouts: experience collected with a policy, as rows for training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlcatalog.frameworks import Array, TensorTree
from rlcatalog.spaces import map_tensors
from rlcatalog_ppo.steps import StepRecord
from rlcatalog_ppo.trees import stack_steps


@dataclass
class Rollout:
    """Experience from N environments over T steps; arrays begin with `[T, N]` unless noted.

    Attributes:
        obs: Encoded observations.
        raw_action: Raw actions `[T, N, width]`.
        logp: Log densities of the actions at the time they were drawn.
        value: Value estimates for the observations; 0 if the algorithm does not use values.
        reward: Rewards, as returned by the environments.
        done: Whether the episode ended at this step.
        bootstrap: Discounted value of the last observation where an episode was truncated,
            otherwise 0. A time limit does not end the task, so this value replaces the later
            rewards.
        last_value: Value estimates `[N]` after the last step.
        dist_inputs: Parameters `[T, N, n]` of the distributions that the actions were drawn from.
        mask: Action masks `[T, N, m]`, or None if the environment has none.
        views: The model's inputs in addition to the observation, by name; each is an array or a
            structure.
        starts: Whether a sequence begins at each step, for a model with memory; otherwise None.
        memory: The memory at the start of each sequence, `[S, ...]`, one environment after another.
        idle: Steps that only began an episode, or None if there are none. `batch` and `rows` omit
            them.
        scaled_reward: Rewards to use for training, or None to use `reward`.
        columns: Columns that only a model's `custom_loss` reads, under RLlib's names; empty if
            there is no `custom_loss`.
    """

    obs: Array
    raw_action: Array
    logp: Array
    value: Array
    reward: Array
    done: Array
    bootstrap: Array
    last_value: Array
    dist_inputs: Array | None = None
    mask: Array | None = None
    views: Mapping[str, Any] = field(default_factory=dict)
    starts: Array | None = None
    memory: tuple[Array, ...] = ()
    idle: Array | None = None
    scaled_reward: Array | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_records(cls, records: Sequence[StepRecord], *, last_value: Array) -> Rollout:
        """Return a rollout of the recorded steps.

        Args:
            records: A record for each step.
            last_value: Value estimates `[N]` after the last step.
        """

        def stack_if_present(columns: list[Array | None]) -> Array | None:
            # A column is there in all steps or in none.
            return None if columns[0] is None else stack_steps(columns)

        return cls(
            obs=stack_steps([record.obs for record in records]),
            raw_action=stack_steps([record.raw_action for record in records]),
            logp=stack_steps([record.logp for record in records]),
            value=stack_steps([record.value for record in records]),
            reward=stack_steps([record.reward for record in records]),
            done=stack_steps([record.done for record in records]),
            bootstrap=stack_steps([record.bootstrap for record in records]),
            last_value=last_value,
            dist_inputs=stack_steps([record.dist_inputs for record in records]),
            mask=stack_if_present([record.mask for record in records]),
            views=stack_steps([record.views for record in records]),
            idle=stack_if_present([record.idle for record in records]),
            scaled_reward=stack_if_present([record.scaled_reward for record in records]),
        )

    @property
    def steps(self) -> int:
        """Number of steps that contain experience."""
        if self.idle is None:
            return self.done.size
        return int(self.done.size - self.idle.sum())

    @property
    def training_reward(self) -> Array:
        """The rewards to learn from: scaled ones, if the algorithm scales them."""
        return self.reward if self.scaled_reward is None else self.scaled_reward

    def rows(self, columns: TensorTree) -> Any:
        """Flatten columns `[T, N, ...]` to rows, one environment after another, without idle steps.

        Args:
            columns: An array, or a structure of arrays.
        """

        def flatten(array: Array) -> Array:
            rows = array.swapaxes(0, 1).reshape(-1, *array.shape[2:])
            if self.idle is None:
                return rows
            has_experience = ~self.idle.swapaxes(0, 1).reshape(-1)
            return rows[has_experience]

        return map_tensors(columns, flatten)
